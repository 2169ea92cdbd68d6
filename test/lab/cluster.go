package lab

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"saltern/internal/control"
	"saltern/master/cluster"
)

// ports of every member.
const (
	FrontPublish  = 4505 // of the load balancer
	FrontRequest  = 4506
	masterPublish = 14505
	masterRequest = 14506
	poolPort      = 4520
)

// ClusterSecret is the cluster_secret of clusters in tests.
const ClusterSecret = "the secret of this test's cluster"

// ClusterConfig changes the cluster that [StartCluster] makes.
type ClusterConfig struct {
	Nodes   int               // 3
	Network *Network          // hosts of their own; nil: loopback addresses
	Options map[string]any    // further options of each master
	Health  map[string]any    // section health of each load balancer
	States  map[string]string // files under the shared file root
	Pillar  map[string]string // files under the shared pillar root
	NoLB    bool              // masters only, on the front ports
	Shared  string            // an empty folder for pki and srv; "": one on this disk
}

// Cluster is several masters with a load balancer each that share a folder.
type Cluster struct {
	Members []*Member
	Shared  string // pki, srv
	Config  ClusterConfig

	minions []*Minion // those that were started for it
}

// Member is one node of a cluster: a master and, before it, a load balancer
// that knows all masters.
type Member struct {
	Addr   string // id, interface and address
	Dir    string
	Master *Proc
	LB     *Proc
	c      *Cluster
	conf   string   // the folder for Salt's tools
	enter  []string // words before a command that run it on the member's host; empty: those of the network
}

// ForeignMember is a node that others run. It is asked by Salt's tools with the configuration
// in the folder conf; enter are the words before a command that run it on the node.
func ForeignMember(addr, conf string, enter ...string) *Member {
	return &Member{
		Addr:  addr,
		conf:  conf,
		enter: enter,
	}
}

// ForeignCluster gives nodes that others run as a cluster: it starts and stops nothing.
// shared is their folder as the test sees it.
func ForeignCluster(shared string, members ...*Member) *Cluster {
	c := &Cluster{Shared: shared, Members: members, Config: ClusterConfig{Nodes: len(members)}}
	for _, m := range members {
		m.c = c
	}
	return c
}

// StartCluster starts the members one after another and waits until each
// serves and all are connected.
func StartCluster(t testing.TB, cfg ClusterConfig) *Cluster {
	t.Helper()
	if cfg.Nodes == 0 {
		cfg.Nodes = 3
	}

	if cfg.Shared == "" {
		cfg.Shared = Dir(t)
	}

	c := &Cluster{Shared: cfg.Shared, Config: cfg}
	for _, d := range []string{"pki", "srv/salt", "srv/pillar"} {
		if err := os.MkdirAll(filepath.Join(c.Shared, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}

	WriteTree(t, c.Shared+"/srv/salt", cfg.States)
	WriteTree(t, c.Shared+"/srv/pillar", cfg.Pillar)
	for range cfg.Nodes {
		c.Prepare(t)
	}

	for _, m := range c.Members {
		m.StartMaster(t)
		m.WaitReady(t)
	}

	for _, m := range c.Members {
		m.StartLB(t)
	}

	c.WaitWhole(t)
	return c
}

// Prepare makes a further member and starts nothing. Its peers are those that
// there are now.
func (c *Cluster) Prepare(t testing.TB) *Member {
	t.Helper()
	m := &Member{Dir: Dir(t), c: c}
	m.conf = filepath.Join(m.Dir, "etc")
	if c.Config.Network != nil {
		m.Addr = c.Config.Network.Host(t, len(c.Members)+1)
	} else {
		m.Addr = Address(t, FrontPublish, FrontRequest, masterPublish, masterRequest, poolPort)
	}

	c.Members = append(c.Members, m)
	for _, d := range []string{"pki", "cache", "sock", "lb"} {
		if err := os.MkdirAll(filepath.Join(m.Dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}

	m.Configure(t, nil)
	return m
}

// Configure writes the configuration of the master with more or other options;
// cluster_peers are all other members there are now, unless given.
func (m *Member) Configure(t testing.TB, options map[string]any) {
	t.Helper()
	var peers []string
	for _, o := range m.c.Members {
		if o != m {
			peers = append(peers, o.Addr)
		}
	}

	conf := map[string]any{
		"id": m.Addr, "interface": m.Addr, "user": "root", "root_dir": "/", "cluster_id": "lab", "cluster_peers": peers,
		"cluster_pki_dir": m.c.Shared + "/pki", "cluster_secret": ClusterSecret,
		"pki_dir": m.Dir + "/pki", "cachedir": m.Dir +
			"/cache", "sock_dir": m.Dir + "/sock", "pidfile": m.Dir + "/sock/master.pid",
		"log_file": m.Dir + "/master.log", "log_level": "info", "log_level_logfile": "quiet",
		"file_roots":   map[string][]string{"base": {m.c.Shared + "/srv/salt"}},
		"pillar_roots": map[string][]string{"base": {m.c.Shared + "/srv/pillar"}},
	}

	if m.c.Config.NoLB {
		conf["publish_port"], conf["ret_port"] = FrontPublish, FrontRequest
	} else {
		conf["publish_port"] = masterPublish
		conf["ret_port"] = masterRequest
		conf["saltern_front_publish_port"] = FrontPublish
		var from []string
		for _, o := range m.c.Members {
			from = append(from, o.Addr+"/32")
		}

		conf["saltern_proxy_from"] = append(from, "127.0.0.1/32")
		if m.c.Config.Network != nil {
			conf["saltern_proxy_from"] = []string{m.c.Config.Network.net + "0/24"}
		}
	}

	if !Peer() {
		conf["saltern_renderer_python"] = filepath.Join(Venv(t, Newest), "python3")
	}

	maps.Copy(conf, m.c.Config.Options)
	maps.Copy(conf, options)
	text, err := yaml.Marshal(conf)
	if err != nil {
		t.Fatal(err)
	}

	WriteTree(t, m.Dir, map[string]string{"etc/master": string(text)})
}

// start starts a program on the member's host.
func (m *Member) start(t testing.TB, name, log, path string, args ...string) *Proc {
	t.Helper()
	path, args = m.c.Config.Network.wrap(m.Addr, path, args)
	return Start(t, name+" "+m.Addr, filepath.Join(m.Dir, log), path, args...)
}

// StartMaster starts the master and does not wait.
func (m *Member) StartMaster(t testing.TB) {
	t.Helper()
	_ = os.Remove(m.Dir + "/cache/health/ready")
	m.Master = m.start(t, "salt-master", "master.out", Bin(t, "salt-master"), "-c", m.Dir+"/etc")
}

// Ready reports whether the master serves.
func (m *Member) Ready() bool {
	_, err := os.Stat(m.Dir + "/cache/health/ready")
	return err == nil && m.Master.Running()
}

// Signal sends a signal to the master and the load balancer of this member.
func (m *Member) Signal(s syscall.Signal) {
	for _, p := range []*Proc{m.Master, m.LB} {
		if p != nil && p.Running() {
			_ = syscall.Kill(p.PID(), s)
		}
	}
}

// Ended reports whether master and load balancer have ended.
func (m *Member) Ended() bool { return !m.Master.Running() && (m.LB == nil || !m.LB.Running()) }

// WaitReady waits until the master serves.
func (m *Member) WaitReady(t testing.TB) {
	t.Helper()
	Eventually(t, 60*time.Second, "master "+m.Addr+" serves", func() error {
		if !m.Master.Running() {
			t.Fatalf("master %s has ended:\n%s", m.Addr, Tail(m.Master.Log, 5))
		}
		if !m.Ready() {
			return fmt.Errorf("not ready")
		}
		return nil
	})
}

// StartLB starts the load balancer with all members of now as backends.
func (m *Member) StartLB(t testing.TB) {
	t.Helper()
	if m.c.Config.NoLB {
		return
	}

	bind := func(port int) []string {
		out := []string{fmt.Sprintf("%s:%d", m.Addr, port)}
		if n := m.c.Config.Network; n != nil { // whoever has the virtual address
			out = []string{fmt.Sprintf("0.0.0.0:%d", port)}
		}
		return out
	}

	var backends []map[string]any
	for _, o := range m.c.Members {
		backends = append(backends, o.Backend())
	}

	conf := map[string]any{
		"frontends": []map[string]any{
			{"name": "publish", "mode": "publish", "bind": bind(FrontPublish)},
			{"name": "request", "mode": "request", "bind": bind(FrontRequest)},
		},
		"backends": backends, "admin": map[string]any{"socket": m.LBSocket()}, "log": map[string]any{"sessions": "publish"},
	}

	if m.c.Config.Health != nil {
		conf["health"] = m.c.Config.Health
	}

	text, err := yaml.Marshal(conf)
	if err != nil {
		t.Fatal(err)
	}

	WriteTree(t, m.Dir, map[string]string{"etc/lb.yaml": string(text)})
	m.LB = m.start(t, "lb", "lb.out", Bin(t, "applianced"), "lb", "--config", m.Dir+"/etc/lb.yaml")
}

// Backend is this member as load balancers are told.
func (m *Member) Backend() map[string]any {
	return map[string]any{
		"name":         m.Addr,
		"address":      m.Addr,
		"publish_port": masterPublish,
		"request_port": masterRequest,
		"proxy_v2":     true,
	}
}

// LBSocket is the admin socket of the load balancer.
func (m *Member) LBSocket() string { return m.Dir + "/lb/admin.sock" }

// View reads how the member's master last saw the cluster, and how many listen
// at it.
func (m *Member) View() (v cluster.Status, subscribers int, err error) {
	b, err := os.ReadFile(filepath.Join(m.Dir, "cache", control.StatusFile))
	if err != nil {
		return v, 0, err
	}

	var s struct {
		control.Status
		Cluster *cluster.Status `json:"cluster"`
	}

	if err := json.Unmarshal(b, &s); err != nil {
		return v, 0, err
	}
	if s.Cluster == nil {
		return v, 0, fmt.Errorf("master %s is in no cluster", m.Addr)
	}
	if time.Since(s.Written) > control.StatusStale {
		return v, 0, fmt.Errorf("the status of %s is old", m.Addr)
	}

	return *s.Cluster, s.Subscribers, nil
}

// Alive are the members whose master runs.
func (c *Cluster) Alive() []*Member {
	return slices.DeleteFunc(slices.Clone(c.Members),
		func(m *Member) bool { return m.Master == nil || !m.Master.Running() })
}

// WaitWhole waits until all masters that run see each other.
func (c *Cluster) WaitWhole(t testing.TB) {
	t.Helper()
	alive := c.Alive()
	Eventually(t, 60*time.Second, "all masters are connected", func() error {
		for _, m := range alive {
			v, _, err := m.View()
			if err != nil {
				return err
			}

			n := 0
			for _, p := range v.Peers {
				if p.Connected && p.Alive {
					n++
				}
			}

			if n < len(alive)-1 {
				return fmt.Errorf("%s sees %d of %d: %+v", m.Addr, n, len(alive)-1, v.Peers)
			}
		}

		return nil
	})
}

// wrap gives the command line that runs a program on the member's host.
func (m *Member) wrap(path string, args []string) (string, []string) {
	if len(m.enter) == 0 {
		return m.c.Config.Network.wrap(m.Addr, path, args)
	}
	words := slices.Concat(m.enter, []string{path}, args)
	return words[0], words[1:]
}

func (m *Member) cli(t testing.TB, name string, args []string) Result {
	t.Helper()
	path, argv := m.wrap(CLI(t, name), append([]string{"-c", m.conf}, args...))
	return Run(t, 90*time.Second, path, argv...)
}

// Salt runs salt at this member.
func (m *Member) Salt(t testing.TB, args ...string) Result { t.Helper(); return m.cli(t, "salt", args) }

// Key runs salt-key.
func (m *Member) Key(t testing.TB, args ...string) Result {
	t.Helper()
	return m.cli(t, "salt-key", args)
}

// SaltRun runs salt-run.
func (m *Member) SaltRun(t testing.TB, args ...string) Result {
	t.Helper()
	return m.cli(t, "salt-run", args)
}

// JSON runs salt with JSON output and decodes it: minion → return.
func (m *Member) JSON(t testing.TB, args ...string) (map[string]any, error) {
	t.Helper()
	r := m.Salt(t, append([]string{"--out", "json", "--static"}, args...)...)
	return r.returns(args)
}

// Lookup asks for the returns of a job: jobs.lookup_jid.
func (m *Member) Lookup(t testing.TB, jid string) (map[string]any, error) {
	t.Helper()
	r := m.SaltRun(t, "jobs.lookup_jid", jid, "--out", "json")
	var v map[string]any
	if err := json.Unmarshal([]byte(r.Out), &v); err != nil {
		return nil, fmt.Errorf("job %s: %w\n%s%s", jid, err, r.Out, r.Err)
	}
	for id := range v {
		if n := strings.Count(r.Out, `    "`+id+`": `); n > 1 {
			t.Fatalf("job %s: %d returns of %s", jid, n, id)
		}
	}
	return v, nil
}

// StartMinion starts a minion of a version that knows one address, its
// load balancer's.
func (c *Cluster) StartMinion(t testing.TB, id, version, address string, options map[string]any) *Minion {
	t.Helper()
	m := &Minion{ID: id, Version: version, Dir: Dir(t), bin: Venv(t, version)}
	conf := map[string]any{"master": address, "master_port": FrontRequest, "tcp_keepalive_idle": 10,
		"log_fmt_console": "%(asctime)s,%(msecs)03d [%(levelname)s] %(message)s"}
	maps.Copy(conf, options)
	m.prepare(t, conf)
	m.Launch(t)
	c.minions = append(c.minions, m)
	return m
}

// Untangle restarts the cluster's minions that Salt's own fault has made deaf or ended.
func (m *Member) Untangle(t testing.TB) {
	t.Helper()
	for _, minion := range m.c.minions {
		minion.Untangle(t)
	}
}

// Reliable leaves out the minions that were restarted for Salt's own fault: what they
// owed a job then is lost.
func (m *Member) Reliable(ids []string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
		return slices.ContainsFunc(m.c.minions, func(m *Minion) bool { return m.ID == id && m.faults > 0 })
	})
}

// Grep names the files under dir that hold a text.
func Grep(t testing.TB, dir, text string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil // it may have gone meanwhile
		}
		if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), text) {
			found = append(found, path)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}

	return found
}
