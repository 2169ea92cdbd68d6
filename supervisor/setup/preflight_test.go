package setup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"saltern/internal/audit"
	"saltern/internal/control"
	"saltern/internal/control/toolrun"
	"saltern/internal/release"
	"saltern/supervisor/history"
	"saltern/supervisor/keyuse"
	"saltern/supervisor/marks"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/nodes"
	"saltern/supervisor/options"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
	"saltern/supervisor/upgrade/rollout"
	"saltern/test/smalldisk"
)

// peer is a node of a cluster as a machine that joins meets it.
type peer struct {
	key    *nodeapi.ClusterKey
	keyErr error
	table  nodes.Table
	kind   string
	path   string // of a shared directory
}

func (p *peer) Table() nodes.Table                       { return p.table.Clone() }
func (p *peer) Secrets() ([]string, error)               { return []string{someSecret}, nil }
func (p *peer) ClusterKey() (*nodeapi.ClusterKey, error) { return p.key, p.keyErr }
func (p *peer) Storage() nodeapi.Storage                 { return nodeapi.Storage{Kind: p.kind, Path: p.path} }
func (p *peer) Summary() nodeapi.Summary                 { return nodeapi.Summary{} }
func (p *peer) Marks(string) marks.Report                { return marks.Report{} }
func (p *peer) Offer(nodes.Table) error                  { return nil }
func (p *peer) Used(nodes.Node, keyuse.Speaker, string) (refusal string) {
	return ""
}
func (p *peer) Admit(_ context.Context, n nodes.Node) (nodes.Table, error) {
	t := p.table.Clone()
	return t, nodes.Admit(&t, n)
}
func (p *peer) SetState(context.Context, string, nodes.State) (nodes.Table, error) {
	return p.table, nil
}
func (p *peer) Options() options.Node { return nil }
func (p *peer) LookForTable()         {}
func (p *peer) SignStorage([]byte, string) (nodeapi.Certificate, error) {
	return nodeapi.Certificate{}, nil
}
func (p *peer) StorageAuthority() (nodeapi.Authority, error)           { return nodeapi.Authority{}, nil }
func (p *peer) Audit(context.Context, audit.Query) (audit.Page, error) { return audit.Page{}, nil }
func (p *peer) Events(history.Query) ([]history.Event, error)          { return nil, nil }
func (p *peer) Points() []control.Point                                { return nil }
func (p *peer) RestartService(string) error                            { return nil }
func (p *peer) Newest(context.Context) control.Newest                  { return control.Newest{} }
func (p *peer) Record(audit.Record)                                    {}
func (p *peer) System() rollout.Node                                   { return nil }
func (p *peer) Git(context.Context, bool, string) (status.GitView, error) {
	return status.GitView{}, nil
}

func (p *peer) Tool(context.Context, toolrun.Request) (func(context.Context, io.Writer), error) {
	return nil, errors.New("not here")
}
func (p *peer) Minions(context.Context, bool) (status.MinionView, error) {
	return status.MinionView{}, nil
}

// startPeer serves a node on 127.0.70.1 with a clock of its own; it gives the
// port.
func startPeer(t *testing.T, version string, ahead time.Duration) (*peer, int) {
	t.Helper()
	text, err := nodeapi.NewClusterKey()
	if err != nil {
		t.Fatal(err)
	}

	id, err := nodeapi.LoadIdentity(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	p := &peer{kind: settings.DirectoryStorage, path: t.TempDir()}
	if p.key, err = nodeapi.ParseClusterKey(text); err != nil {
		t.Fatal(err)
	}

	p.table = nodes.Table{
		Version: 1,
		Cluster: "prod",
		KeyHash: p.key.Hash,
		Nodes:   []nodes.Node{{Name: "n1", Address: "127.0.70.1", State: nodes.Member, Certificate: id.Hash}},
	}

	ln, err := net.Listen("tcp", "127.0.70.1:0")
	if err != nil {
		t.Skipf("NOT TESTED: 127.0.70.1 cannot be used here: %v", err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = nodeapi.NewServer(p, id, version, slog.New(slog.DiscardHandler),
			func() time.Time { return time.Now().Add(ahead) }).Serve(ctx, ln)
	}()

	t.Cleanup(func() { cancel(); <-done })
	return p, ln.Addr().(*net.TCPAddr).Port
}

// freePort gives a port that nobody listens on just now.
func freePort(t *testing.T) int {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.70.9:0")
	if err != nil {
		t.Skipf("NOT TESTED: 127.0.70.9 cannot be used here: %v", err)
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port
}

// freePortBut gives a free port that is another one than not.
func freePortBut(t *testing.T, not int) int {
	t.Helper()
	port := freePort(t)
	for port == not {
		port = freePort(t)
	}
	return port
}

// TestPreflightStops: each thing that does not fit is found before anything is
// changed, is named, and comes with a hint; what may pass by itself is told
// from what will not.
func TestPreflightStops(t *testing.T) {
	_, port := startPeer(t, "v1", 0)
	_, fast := startPeer(t, "v1", 10*time.Minute)
	busy, atBusy := startPeer(t, "v1", 0)
	busy.keyErr = fmt.Errorf("this node waits for the shared volume")
	alone, atAlone := startPeer(t, "v1", 0)
	alone.kind = settings.LocalStorage
	copies, atCopies := startPeer(t, "v1", 0)
	copies.kind = settings.VolumeStorage
	onRoot := map[string]any{"bricks": "/none/of/these"}
	for name, tt := range map[string]struct {
		port    int
		change  func(*Answers)
		check   string // "" passes
		says    string
		passing bool
	}{
		"all is well": {port, func(*Answers) {}, "", "", false},
		"wrong secret": {port, func(a *Answers) { a.Secret = "another-secret-of-that-length" },
			"cluster", "not that of the cluster", false},
		"other cluster": {port, func(a *Answers) { a.Cluster = "test" }, "cluster",
			"another cluster", false},
		"false join string": {port,
			func(a *Answers) { a.JoinString = JoinInfo{someHash, someSecret, a.Peers}.String() }, "cluster",
			"prove", false},
		"name is taken":    {port, func(a *Answers) { a.Node = "n1" }, "name", "is taken", false},
		"clock 10 minutes": {fast, func(*Answers) {}, "clock", "behind", false},
		"unreachable": {port, func(a *Answers) { a.Peers = []string{"127.0.70.77"} }, "port",
			"refused", true},
		"storage not there":   {atBusy, func(*Answers) {}, "cluster", "waits for the shared volume", true},
		"cluster keeps alone": {atAlone, func(*Answers) {}, "cluster", "local directory", false},
		"second peer answers": {port,
			func(a *Answers) { a.Peers = []string{"127.0.70.77", "127.0.70.1"} }, "", "", false},
		"address elsewhere": {port, func(a *Answers) { a.Address = "192.0.2.9" }, "address",
			"no interface", true},
		"a copy beside the system": {atCopies, func(a *Answers) { a.Settings["storage"] = onRoot }, "disk",
			"on the root file system", false},
		"a copy elsewhere": {atCopies,
			func(a *Answers) { a.Settings["storage"] = map[string]any{"bricks": "/proc/bricks"} }, "", "",
			false},
		"no glusterd": {atCopies, func(*Answers) {}, "disk", "not installed", false},
		"first copy beside the system": {port, func(a *Answers) {
			a.Mode = Form
			a.Peers = nil
			a.Secret = ""
			a.Storage.Kind = settings.VolumeStorage
			a.Settings["storage"] = onRoot
		}, "disk", "on the root file system", false},
		"no directory": {port, func(a *Answers) {
			a.Storage = Storage{Kind: settings.DirectoryStorage, Path: filepath.Join(t.TempDir(), "not", "mounted")}
		}, "disk", "no such file", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newMachine(t)
			a := w.answers()
			a.Mode = Join
			a.Peers = []string{"127.0.70.1"}
			a.Secret = someSecret
			a.Storage = Storage{}
			a.Node = "n9"
			a.Settings["peering"] = map[string]any{"node_port": tt.port, "pool_port": freePortBut(t, tt.port)}
			tt.change(&a)
			f := w.fact()
			f.Volume = name != "no glusterd"
			id, err := nodeapi.LoadIdentity(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}

			p := Preflight{Facts: f, Base: Base{DataDir: w.dir}, Identity: id, Version: "v1"}
			ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
			defer cancel()

			checks, _ := p.Run(ctx, a)
			failed, passing := failedChecks(checks)
			if tt.check == "" {
				if len(failed) > 0 {
					t.Fatalf("%+v", failed)
				}
				return
			}

			if len(failed) == 0 || passing != tt.passing {
				t.Fatalf("failed %+v, passing %v", failed, passing)
			}

			c := failed[0]
			if c.Name != tt.check || !strings.Contains(c.Detail, tt.says) || c.Hint == "" {
				t.Errorf("%+v", c)
			}
		})
	}
}

// TestPreflightVersion: another version is told, another protocol stops.
func TestPreflightVersion(t *testing.T) {
	m := &nodeapi.Met{Version: "v2"}
	if c := versionCheck("v1", m); c.Result != Warn || !strings.Contains(c.Detail, "v2") || c.Hint == "" {
		t.Errorf("%+v", c)
	}

	for _, v := range [][2]string{
		{release.Unknown, "v2"},
		{"v1", release.Unknown},
		{release.Unknown, release.Unknown},
	} {
		if c := versionCheck(v[0], &nodeapi.Met{Version: v[1]}); c.Result != Skip {
			t.Errorf("%q: versions that are not known count as compared: %+v", v, c)
		}
	}

	if c := versionCheck("v2", m); c.Result != Pass {
		t.Errorf("%+v", c)
	}

	c := meetCheck("n1", 4521, fmt.Errorf("%w: protocol 2", nodeapi.ErrProtocol))
	if c.Name != "version" || c.Result != Fail || c.passing || c.Hint == "" {
		t.Errorf("%+v", c)
	}
}

// TestPreflightDepends: what depends on a check that failed is not looked at,
// and gives no hint.
func TestPreflightDepends(t *testing.T) {
	w := newMachine(t)
	a := w.answers()
	a.Mode = Join
	a.Peers = []string{"127.0.70.77"}
	a.Secret = someSecret
	a.Storage = Storage{}
	a.Address = "192.0.2.9"
	id, err := nodeapi.LoadIdentity(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	p := Preflight{Facts: w.fact(), Base: Base{DataDir: w.dir}, Identity: id, Version: "v1"}
	checks, _ := p.Run(t.Context(), a)
	var skipped []string
	for _, c := range checks {
		if strings.HasPrefix(c.Detail, "not looked at: ") {
			skipped = append(skipped, c.Name)
		}
		if c.Name == "port" && strings.Contains(c.Detail, "192.0.2.9:") || c.Result == Skip && c.Hint != "" {
			t.Errorf("%+v", c)
		}
	}

	if got := strings.Join(skipped, " "); got != "port cluster" {
		t.Errorf("not looked at: %s of %+v", got, checks)
	}

	if failed, passing := failedChecks(checks); len(failed) != 2 || !passing {
		t.Errorf("passing %v, %+v", passing, failed)
	}

	a.Mode = Form
	a.Peers = nil
	a.Virtual = "192.0.2.20"
	checks, _ = p.Run(t.Context(), a)
	if last := checks[len(checks)-1]; last.Name != "virtual" || last.Result != Skip {
		t.Errorf("%+v", last)
	}
}

// TestPreflightTellsTheStorage: a node that joins reads where its cluster keeps
// its files, and which of its own answers count.
func TestPreflightTellsTheStorage(t *testing.T) {
	shared := t.TempDir()
	s := settings.Default("n2")
	knows := nodeapi.Storage{Kind: settings.VolumeStorage, Arbiters: true}
	volume := nodeapi.Storage{Kind: settings.VolumeStorage}
	directory := nodeapi.Storage{Kind: settings.DirectoryStorage, Path: shared}
	for name, tt := range map[string]struct {
		of      nodeapi.Storage
		a       Answers
		results string
		says    string
	}{
		"a copy on a disk": {volume, Answers{DataDisk: "/dev/sdb"}, "pass", "goes to /dev/sdb"},
		"an arbiter on a disk": {knows,
			Answers{DataDisk: "/dev/sdb", Storage: Storage{Role: RoleArbiter}}, "pass pass",
			"keeps the names of the files only, in /dev/sdb"},
		"an arbiter's tiny disk": {knows,
			Answers{DataDisk: "/dev/tiny", Storage: Storage{Role: RoleArbiter}}, "pass fail",
			"at least 1 GiB"},
		"an arbiter's small one": {knows,
			Answers{DataDisk: "/dev/small", Storage: Storage{Role: RoleArbiter}}, "pass warn",
			"up to 4 KiB each"},
		"an arbiter of copies that are none": {directory, Answers{Storage: Storage{Role: RoleArbiter}},
			"fail", "no copies for an arbiter"},
		"an arbiter of an old cluster": {volume, Answers{Storage: Storage{Role: RoleArbiter}}, "fail",
			"knows no arbiter"},
		"a directory for a copy": {volume,
			Answers{DataDisk: "", Storage: Storage{Kind: settings.DirectoryStorage, Path: "/srv"}}, "warn",
			"/srv is not used"},
		"the directory": {directory, Answers{}, "pass pass", "the directory " + shared},
		"mounted elsewhere": {directory,
			Answers{Storage: Storage{Kind: settings.DirectoryStorage, Path: "/mnt/x"}}, "pass",
			"the directory /mnt/x"},
		"a disk for nothing": {directory, Answers{DataDisk: "/dev/sdb"}, "warn pass",
			"/dev/sdb would be formatted and not used"},
		"not mounted": {
			nodeapi.Storage{Kind: settings.DirectoryStorage, Path: shared + "/none"}, Answers{}, "pass fail",
			"no such file"},
	} {
		p := &Preflight{Facts: Facts{
			Volume: true,
			Disks: []Disk{
				{Path: "/dev/sdb", Size: 8 << 30},
				{Path: "/dev/small", Size: 600 << 20},
				{Path: "/dev/tiny", Size: 100 << 20},
			},
		}}

		s := s
		s.Arbiter = tt.a.arbiter()
		var results, text []string
		for _, c := range p.checkJoinedStorage(t.Context(), tt.a, &s, tt.of) {
			if c.What != "room for a copy of the shared volume" { // as this machine has it
				results, text = append(results, string(c.Result)), append(text, c.Detail, c.Hint)
			}
		}

		if got := strings.Join(results, " "); got != tt.results || !strings.Contains(strings.Join(text, " "), tt.says) {
			t.Errorf("%s: %s: %q", name, got, text)
		}
	}
}

// TestPreflightClockHint: the screen of a machine without a shell advises no command.
func TestPreflightClockHint(t *testing.T) {
	for managed, want := range map[bool]string{true: "page Network", false: "timedatectl"} {
		p := &Preflight{Facts: Facts{Managed: managed}}
		if hint := p.clockHint(); !strings.Contains(hint, want) || managed && strings.Contains(hint, "timedatectl") {
			t.Errorf("managed %v: %s", managed, hint)
		}
	}
}

// TestPreflightNamesFree: who chose a name that is taken reads one that is not.
func TestPreflightNamesFree(t *testing.T) {
	m := &nodeapi.Met{Table: nodes.Table{
		Cluster: "prod",
		Nodes:   []nodes.Node{{Name: "prod-1", Address: "192.0.2.1", Certificate: "a"}},
	}}
	c := nameCheck(Answers{Node: "prod-1", Address: "192.0.2.2"}, "b", m)
	if c.Result != Fail || !strings.Contains(c.Hint, "prod-2 is free") {
		t.Errorf("%+v", c)
	}
}

// TestPreflightFullDisk needs root for a small file system.
func TestPreflightFullDisk(t *testing.T) {
	dir := t.TempDir()
	smalldisk.MountOn(t, dir, "size=1m")
	if err := os.WriteFile(filepath.Join(dir, "full"), make([]byte, 1<<19), 0o600); err != nil {
		t.Fatal(err)
	}
	s := settings.Default("n1")
	s.DataDir = filepath.Join(dir, "not", "made", "yet")
	if c := (&Preflight{}).checkDisk(&s); c.Result != Fail || c.Hint == "" {
		t.Errorf("%+v", c)
	}
}

// TestPreflightPort: a port that another program has is named.
func TestPreflightPort(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()

	s := settings.Default("n1")
	s.Front.Addresses = []string{"127.0.0.1"}
	s.Front.RequestPort = ln.Addr().(*net.TCPAddr).Port
	s.Peering.Address = "127.0.0.1"
	c := (&Preflight{}).checkListening(&s, true)
	if c.Result != Fail || !strings.Contains(c.Detail, strconv.Itoa(s.Front.RequestPort)) {
		t.Errorf("%+v", c)
	}

	// That of Salt's API counts where it is switched on.
	taken := s.Front.RequestPort
	s.Front.RequestPort = 0
	s.Master.Options = map[string]any{"rest_cherrypy": map[string]any{"port": taken}}
	for on, want := range map[bool]bool{false: false, true: true} {
		s.API.Enabled = on
		if c := (&Preflight{}).checkListening(&s, true); strings.Contains(c.Detail, strconv.Itoa(taken)) != want {
			t.Errorf("API %v: %+v", on, c)
		}
	}

	s.Master.Options = nil
	s.Front.APIPort = taken
	s.API.Enabled = true
	if c := (&Preflight{}).checkListening(&s, true); !strings.Contains(c.Detail, strconv.Itoa(taken)) {
		t.Errorf("the API's front: %+v", c)
	}
}
