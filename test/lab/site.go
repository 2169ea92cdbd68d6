package lab

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// Site is one master without a load balancer, ours or Salt's own, on an
// address and with folders of its own. Salt's takes the place of ours, and the
// other way round, when Python is changed between Stop and Launch.
type Site struct {
	*Proc
	Addr    string // also id and interface
	Dir     string
	Python  bool
	Options map[string]any // further options of the master
}

// NewSites prepares n masters, sorted by their addresses as texts, since the
// first of Salt's founds a cluster. It starts nothing.
func NewSites(t testing.TB, n int) []*Site {
	t.Helper()
	var out []*Site
	for range n {
		s := &Site{Dir: Dir(t), Addr: Address(t, FrontPublish, FrontRequest, poolPort)}
		for _, d := range []string{"pki", "cache", "sock", "srv/salt", "srv/pillar"} {
			if err := os.MkdirAll(filepath.Join(s.Dir, d), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b *Site) int { return strings.Compare(a.Addr, b.Addr) })
	return out
}

// Configure writes the configuration.
func (s *Site) Configure(t testing.TB) {
	t.Helper()
	conf := map[string]any{
		"id": s.Addr, "interface": s.Addr, "user": "root", "root_dir": "/", "worker_threads": 3, "gather_job_timeout": 3, "log_fmt_console": "%(asctime)s.%(msecs)03d [%(levelname)s] %(message)s",
		"pki_dir": s.Dir + "/pki", "cachedir": s.Dir +
			"/cache", "sock_dir": s.Dir + "/sock", "pidfile": s.Dir + "/sock/master.pid",
		"token_dir": s.Dir + "/tokens", "log_file": s.Dir +
			"/master.log", "log_level": "info", "log_level_logfile": "quiet",
		"file_roots": map[string][]string{"base": {s.Dir +
			"/srv/salt"}}, "pillar_roots": map[string][]string{"base": {s.Dir + "/srv/pillar"}},
		"enable_fqdns_grains": false, "enable_gpu_grains": false,
	}

	if !s.Python {
		conf["saltern_renderer_python"] = filepath.Join(Venv(t, Newest), "python3")
	}

	maps.Copy(conf, s.Options)
	if s.Python {
		maps.DeleteFunc(conf, func(k string, _ any) bool { return strings.HasPrefix(k, "saltern_") })
	}

	text, err := yaml.Marshal(conf)
	if err != nil {
		t.Fatal(err)
	}

	WriteTree(t, s.Dir, map[string]string{"etc/master": string(text)})
}

// tool is a program of the kind of this master.
func (s *Site) tool(t testing.TB, name string) string {
	t.Helper()
	if s.Python {
		return filepath.Join(Venv(t, Newest), name)
	}
	return Bin(t, name)
}

// Launch writes the configuration and starts the master.
func (s *Site) Launch(t testing.TB) {
	t.Helper()
	s.Configure(t)
	kind := "salt-master"
	if s.Python {
		kind = "Salt's salt-master"
	}
	s.Proc = Start(t, kind+" "+s.Addr, filepath.Join(s.Dir, "master.out"), s.tool(t, "salt-master"), "-c",
		filepath.Join(s.Dir, "etc"))
}

func (s *Site) cli(t testing.TB, name string, args []string) Result {
	t.Helper()
	return Run(t, 4*time.Minute, s.tool(t, name), append([]string{"-c", filepath.Join(s.Dir, "etc")}, args...)...)
}

// Salt, Key and SaltRun run the command line programs of this master's kind.
func (s *Site) Salt(t testing.TB, args ...string) Result { t.Helper(); return s.cli(t, "salt", args) }

// Key runs salt-key.
func (s *Site) Key(t testing.TB, args ...string) Result {
	t.Helper()
	return s.cli(t, "salt-key", args)
}

// SaltRun runs salt-run.
func (s *Site) SaltRun(t testing.TB, args ...string) Result {
	t.Helper()
	return s.cli(t, "salt-run", args)
}

// JSON runs our salt, which works beside Salt's masters as well and needs no
// seconds to start, with JSON output and decodes it: minion → return.
func (s *Site) JSON(t testing.TB, args ...string) (map[string]any, error) {
	t.Helper()
	r := Run(t, 120*time.Second, Bin(t, "salt"),
		append([]string{"-c", filepath.Join(s.Dir, "etc"), "--out", "json", "--static"}, args...)...)
	return r.returns(args)
}

// Ping waits until every one of ids answers test.ping in one job of this
// master.
func (s *Site) Ping(t testing.TB, limit time.Duration, ids ...string) {
	t.Helper()

	// Each try waits longer: on a busy machine many short ones pile up.
	wait := 4 * time.Second
	Eventually(t, limit, "test.ping from "+s.Name+" of "+strings.Join(ids, ", "), func() error {
		if !s.Running() {
			t.Fatalf("%s has ended:\n%s", s.Name, Tail(s.Log, 5))
		}

		began := time.Now()
		m, err := s.JSON(t, "-L", strings.Join(ids, ","), "-t", strconv.Itoa(int(wait.Seconds())), "test.ping")
		if time.Since(began) >= wait { // a master that refuses says so at once
			wait = min(wait*3/2, 40*time.Second)
		}

		if err != nil {
			return err
		}

		for _, id := range ids {
			if m[id] != true {
				return fmt.Errorf("%s gave %v", id, m[id])
			}
		}

		return nil
	})
}

// WaitKey waits until a minion's key is in a folder: minions, minions_pre.
func (s *Site) WaitKey(t testing.TB, limit time.Duration, folder, id string) {
	t.Helper()
	Eventually(t, limit, "key of "+id+" in "+folder+" of "+s.Addr, func() error {
		if !s.hasKey(folder, id) {
			return errors.New("it is not there")
		}
		return nil
	})
}

func (s *Site) hasKey(folder, id string) bool {
	dir := s.Dir + "/pki"
	if d, ok := s.Options["cluster_pki_dir"].(string); ok {
		dir = d
	}
	_, err := os.Stat(filepath.Join(dir, folder, id))
	return err == nil
}

// Accept accepts the keys of minions that wait here, until they do not any more. Salt's
// master may write a key to the pending ones that salt-key has just accepted: it had
// looked before that (salt/channel/server.py _auth).
func (s *Site) Accept(t testing.TB, ids ...string) {
	t.Helper()
	for _, id := range ids {
		s.WaitKey(t, 4*time.Minute, "minions_pre", id)
	}

	var since time.Time
	Eventually(t, 2*time.Minute, "keys are accepted on "+s.Addr, func() error {
		for _, id := range ids {
			if !s.hasKey("minions", id) || s.hasKey("minions_pre", id) {
				since = time.Now()
				r := s.Key(t, "-y", "-a", id)
				if r.Code != 0 {
					t.Fatalf("salt-key -a %s on %s: %+v", id, s.Name, r)
				}
				return fmt.Errorf("the key of %s is not accepted yet: %+v", id, r)
			}
		}

		if time.Since(since) < 2*time.Second {
			return errors.New("a sign-in may be under way")
		}

		return nil
	})
}

// SiteMinion starts a minion that knows the masters' addresses.
func SiteMinion(t testing.TB, id, version string, masters []*Site, options map[string]any) *Minion {
	t.Helper()
	m := PrepareSiteMinion(t, id, version, masters, options)
	m.Launch(t)
	return m
}

// PrepareSiteMinion makes a minion's folders and configuration and starts
// nothing.
func PrepareSiteMinion(t testing.TB, id, version string, masters []*Site, options map[string]any) *Minion {
	t.Helper()
	m := &Minion{ID: id, Version: version, Dir: Dir(t), bin: Venv(t, version)}
	var addrs []string
	for _, s := range masters {
		addrs = append(addrs, s.Addr)
	}

	conf := map[string]any{
		"master":             addrs,
		"master_port":        FrontRequest,
		"publish_port":       FrontPublish,
		"tcp_keepalive_idle": 10,
	}

	if len(addrs) == 1 {
		conf["master"] = addrs[0]
	}

	maps.Copy(conf, options)
	m.prepare(t, conf)
	return m
}
