package child

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-multierror"

	"saltern/supervisor/layout"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

// TestEveryErrnoOfAPreparation: what keeps a service from its start is a disk that is full, files
// that cannot be used, or the service's own trouble, and never one for another.
func TestEveryErrnoOfAPreparation(t *testing.T) {
	cfg := settings.Default("n1")
	cfg.DataDir, cfg.Storage.Path = "/data", "/shared"
	p := &Programs{env: Env{Settings: &cfg}}
	for errno := syscall.Errno(1); errno <= 133; errno++ {
		want := status.StorageUnusable
		if errno == syscall.ENOSPC || errno == syscall.EDQUOT {
			want = status.DiskFull
		}

		for subject, err := range map[string]error{
			"/data": &fs.PathError{Op: "mkdir", Path: "/data/etc", Err: errno},
			"/shared": fmt.Errorf("make directory: %w",
				&os.LinkError{Op: "rename", Old: "/shared/a", New: "/shared/b", Err: errno}),
			"/data2/x": multierror.Append(nil, &fs.PathError{Op: "open", Path: "/data2/x", Err: errno}),
		} {
			if f := p.unprepared(status.MasterService, err); f.Code != want || f.Subject != subject {
				t.Errorf("%v: %+v, want %s %s", err, f, want, subject)
			}
		}
	}

	for name, want := range map[string]status.Code{
		status.MasterService:   status.MasterDown,
		status.BalancerService: status.BalancerDown,
	} {
		if f := p.unprepared(name, errors.New("a process of before does not end")); f.Code != want {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// testPrograms returns the programs of a node in a folder of the test.
func testPrograms(t *testing.T, inImage bool) *Programs {
	t.Helper()
	cfg := settings.Default("n1")
	cfg.DataDir = t.TempDir()
	cfg.RuntimeDir = t.TempDir()
	if err := os.MkdirAll(cfg.LogDir(), 0o755); err != nil {
		t.Fatal(err)
	}
	p, err := NewPrograms(Env{Settings: &cfg, Log: slog.New(slog.DiscardHandler), Now: time.Now}, inImage)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// TestBlock: the status has why a service is not started until it is started, and each service has
// its own reasons.
func TestBlock(t *testing.T) {
	p := testPrograms(t, false)
	full := Blockers{
		{Code: status.DiskFull, Cause: "the disk is full"},
		{Code: status.PortInUse, Cause: "port 4505 is taken"},
	}
	if err := p.Block(status.MasterService, fmt.Errorf("prepare: %w", full)); !errors.As(err, new(Blockers)) {
		t.Errorf("%v", err)
	}
	if err := p.Block(status.BalancerService, errors.New("no luck")); err == nil || err.Error() != "no luck" {
		t.Errorf("%v", err)
	}

	blocked := p.Blocked()
	if got := blocked[status.MasterService]; !slices.Equal(got, full) {
		t.Errorf("%+v, want %+v", got, full)
	}
	got := blocked[status.BalancerService]
	if len(got) != 1 || got[0].Code != status.BalancerDown || !strings.HasSuffix(got[0].Cause, "no luck") {
		t.Errorf("%+v", got)
	}
	if text := full.Error(); text != "the disk is full; port 4505 is taken" {
		t.Errorf("%q", text)
	}

	if err := p.Block(status.MasterService, nil); err != nil {
		t.Errorf("%v", err)
	}
	if len(p.Blocked()[status.MasterService]) != 0 || len(blocked[status.MasterService]) != 2 {
		t.Errorf("after its start %+v; the list of before %+v", p.Blocked(), blocked)
	}
}

// TestMissingAccount: in the image a child without its account is refused, elsewhere it runs as root
// and the status lists it, unless the node does not run it at all.
func TestMissingAccount(t *testing.T) {
	missing := layout.Account{Missing: true}
	for name, c := range map[string]struct {
		inImage, arbiter, api, balancer bool
		want                            []string
	}{
		"host":          {api: true, balancer: true, want: []string{"salt-master", "salt-api", "applianced lb"}},
		"host, no API":  {balancer: true, want: []string{"salt-master", "applianced lb"}},
		"arbiter":       {arbiter: true, api: true},
		"in the image":  {inImage: true, api: true, balancer: true},
		"nothing to do": {arbiter: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := testPrograms(t, c.inImage)
			p.Master, p.Balancer = missing, missing
			p.env.Settings.Arbiter = c.arbiter
			p.env.Settings.API.Enabled = c.api
			p.env.Settings.LB.Enabled = c.balancer
			if got := p.AsRoot(); !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}

			err := p.RequireAccount("salt-master", "salt", missing)
			if (err != nil) != c.inImage {
				t.Errorf("%v", err)
			}
			if err := p.RequireAccount("salt-master", "salt", layout.Account{}); err != nil {
				t.Errorf("an account that is there: %v", err)
			}
		})
	}
}

// TestOutput: what a service writes is in its log, and no other one's.
func TestOutput(t *testing.T) {
	p := testPrograms(t, false)
	if _, err := p.Output("master").Write([]byte("one\ntwo\n")); err != nil {
		t.Fatal(err)
	}
	p.Output("lb")

	page, err := p.Log("master").Last(9)
	if err != nil || len(page.Lines) != 2 || !strings.HasSuffix(page.Lines[1], "two") {
		t.Errorf("%q %v", page.Lines, err)
	}
	if page, err := p.Log("lb").Last(9); err != nil || len(page.Lines) != 0 {
		t.Errorf("the load balancer's: %q %v", page.Lines, err)
	}
	if p.Log("api") != nil {
		t.Error("a service that writes nothing has a log")
	}
}

// TestEnvironment: a child learns nothing of the supervisor's environment but where programs are.
func TestEnvironment(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "/run/notify")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("PATH", "/opt/bin")
	if got, want := Environ(), []string{"PATH=/opt/bin", "LANG=C.UTF-8", "HOME=/"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}

	e := Env{Executable: "/opt/saltern/applianced"}
	if path := e.Beside("salt-master"); path != "/opt/saltern/salt-master" {
		t.Error(path)
	}
	if path := PIDFile(&settings.Settings{RuntimeDir: "/run/saltern"}, "lb"); path != "/run/saltern/lb.pid" {
		t.Error(path)
	}
}

func TestCheckProgram(t *testing.T) {
	dir := t.TempDir()
	files := map[string]fs.FileMode{"good": 0o755, "not executable": 0o644}
	for name, mode := range files {
		if err := os.WriteFile(filepath.Join(dir, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}

	for name, missing := range map[string]bool{"good": false, "not executable": true, "none": true, ".": true} {
		path := filepath.Join(dir, name)
		found := CheckProgram(path)
		if missing != (len(found) == 1 && found[0].Code == status.ProgramMissing && found[0].Subject == path) {
			t.Errorf("%s: %+v", name, found)
		}
	}
}
