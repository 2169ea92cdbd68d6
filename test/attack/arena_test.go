//go:build attack

package attack

import (
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"saltern/master/crypt"
	"saltern/supervisor/status"
	"saltern/test/lab"
	"saltern/test/minion"
)

// secret is what users log in with in these tests.
const secret = "word of the users of these tests"

// arena is a node and those who use it and misuse it.
type arena struct {
	form
	net      *lab.Network
	node     *lab.Node
	mem      *memory
	ids      []string // of the real minions
	near     string   // host of the real minions, and of users of salt-api
	fresh    string   // another address of it, from which nobody has asked yet
	far      string   // host of the stranger
	sources  []string // fifty addresses of his
	own      string   // address of scripted minions
	master   *rsa.PublicKey
	keys     map[string]*rsa.PrivateKey // of accepted scripted minions
	keyFiles string
	self     string  // this program
	busy     float64 // how busy the machine is, see quiet
	waiting  int     // keys that wait, before a way of attack
}

// scripted minions: two that are measured, two that are not to be trusted.
var scripted = []string{"steady", "fresh", "evil", "twin"}

// slowNames are ids of accepted keys that make expressions with backtracking
// work; no minion has them.
const slowNames = 200

// build starts the node and its minions, and waits until all of them work.
func build(t *testing.T) *arena {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("root is needed: the stranger and the master get a namespace and a control group of their own")
	}

	a := &arena{
		form:     chosen(),
		net:      lab.NewNetwork(t, "atk", "10.77"),
		mem:      newMemory(t, "master", memoryLimit),
		keys:     map[string]*rsa.PrivateKey{},
		keyFiles: lab.Dir(t),
	}

	a.near, a.far, a.own = a.net.Host(t, 2), a.net.Host(t, 66), a.net.Also(t, "", 3)
	a.fresh = a.net.Also(t, a.near, 4)
	for i := range 50 {
		a.sources = append(a.sources, a.net.Also(t, a.far, 100+i))
	}

	var err error
	if a.self, err = os.Executable(); err != nil {
		t.Fatal(err)
	}

	wrapper := a.mem.wrapper(t, lab.Dir(t), lab.Bin(t, "salt-master"))
	a.node = lab.PrepareNode(t, lab.NodeConfig{
		Addr: a.net.Outside(),
		Options: map[string]any{
			"log_level_logfile":  "info", // a file of its own: that of the supervisor has bounds of its own
			"gather_job_timeout": 5, "file_recv": true,
			"external_auth": map[string]any{"sharedsecret": map[string]any{
				"alice": []any{map[string]any{"web*": []string{"test.ping", "cmd.run"}}}, "bob": []string{"@jobs"},
				"carol": []string{".*", "@runner", "@wheel", "@events", "@hook"}}},
			"sharedsecret":  secret,
			"publisher_acl": map[string]any{"nobody": []string{"test.ping"}},
			"peer":          map[string]any{"evil": []string{"test.ping"}},
			"peer_run":      map[string]any{"evil": []string{"manage.up"}},
		},
		States: map[string]string{"big.txt": strings.Repeat("0123456789abcdef", 50<<10/16)},
		Pillar: map[string]string{
			"top.sls":      "base:\n  '*':\n    - plain\n    - rendered\n",
			"plain.sls":    "plain:\n" + strings.Repeat("  - word\n", 200),
			"rendered.sls": "{% set who = grains['id'] %}\nrendered: for {{ who }}\n",
		},
		Extra: map[string]any{
			"programs": map[string]any{"master": wrapper},
			"webhook":  map[string]any{"listen": net.JoinHostPort(a.net.Outside(), hookPort)},
		},
	})

	a.prepareKeys(t)
	a.node.Launch(t)
	text, err := os.ReadFile(filepath.Join(a.node.Settings.PKIDir(), "master.pub"))
	if err == nil {
		a.master, err = crypt.ParsePublic(text)
	}

	if err != nil {
		t.Fatal(err)
	}

	for i, v := range lab.Versions() {
		id := []string{"web1", "db1", "app1"}[i]
		a.ids = append(a.ids, id)
		lab.StartMinionOn(t, a.net, a.near, a.node, id, v, nil)
	}

	for _, id := range a.ids {
		a.accept(t, id, 90*time.Second)
	}

	a.node.Ping(t, 90*time.Second, a.ids...)
	return a
}

// prepareKeys accepts the keys of scripted minions before the start.
func (a *arena) prepareKeys(t *testing.T) {
	t.Helper()
	dir := filepath.Join(a.node.Settings.PKIDir(), "minions")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}

	var pub string
	for _, id := range scripted {
		k, err := crypt.GeneratePrivate(2048)
		if err == nil {
			a.keys[id] = k
			err = crypt.SavePrivate(a.keyFile(id), k, "")
		}
		if err == nil {
			pub, err = crypt.PublicPEM(&k.PublicKey)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, id), []byte(pub), 0o600)
		}

		if err != nil {
			t.Fatal(err)
		}
	}

	for i := range slowNames {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s%d", strings.Repeat("a", 40), i)),
			[]byte(pub), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func (a *arena) keyFile(id string) string { return filepath.Join(a.keyFiles, id+".pem") }

// accept accepts a key as soon as it is there.
func (a *arena) accept(t *testing.T, id string, limit time.Duration) {
	t.Helper()
	lab.Eventually(t, limit, "key of "+id, func() error {
		if _, err := os.Stat(filepath.Join(a.node.Settings.PKIDir(), "minions_pre", id)); err != nil {
			return err
		}
		if r := a.node.Key(t, "-y", "-a", id); r.Code != 0 {
			return fmt.Errorf("salt-key -a: %+v", r)
		}
		return nil
	})
}

// minion gives a scripted minion that is not signed in.
func (a *arena) minion(t testing.TB, id string) *minion.Minion {
	t.Helper()
	m, err := minion.New(minion.Config{ID: id, Key: a.keys[id], Master: a.master,
		Request: net.JoinHostPort(a.node.Addr, "4506"), Publish: net.JoinHostPort(a.node.Addr, "4505"),
		Dialer: net.Dialer{Timeout: 10 * time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP(a.own)}}})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// service gives what the supervisor says of a child.
func (a *arena) service(t *testing.T, name string) (status.Service, error) {
	t.Helper()
	d, err := a.node.Status(t)
	if err != nil {
		return status.Service{}, err
	}
	for _, s := range d.Services {
		if s.Name == name {
			return s, nil
		}
	}
	return status.Service{}, fmt.Errorf("no service %s", name)
}

// working waits until the node serves and all minions answer.
func (a *arena) working(t *testing.T, limit time.Duration) {
	t.Helper()
	a.node.Ping(t, limit, a.ids...)
}

// anew kills the master after an attack that it did not stand, so that the
// next one meets a fresh one.
func (a *arena) anew(t *testing.T) {
	t.Helper()
	s, err := a.service(t, "master")
	if err == nil && s.PID > 0 {
		_ = syscall.Kill(s.PID, syscall.SIGKILL)
	}
	lab.Eventually(t, 90*time.Second, "master is back", func() error {
		now, err := a.service(t, "master")
		if err == nil && (now.PID == 0 || now.PID == s.PID || now.State != "running") {
			err = fmt.Errorf("%+v", now)
		}
		return err
	})
	a.working(t, 120*time.Second)
}

// run is the stranger at work.
type run struct {
	*lab.Proc
}

// stranger starts him and waits until he has his messages ready.
func (a *arena) stranger(t *testing.T, o orders) *run {
	t.Helper()
	o.Host, o.Key, o.Master = a.node.Addr, a.keyFile("evil"), filepath.Join(a.node.Settings.PKIDir(), "master.pub")
	o.ID = "evil"
	if mib, err := strconv.Atoi(os.Getenv("SALTERN_ATTACK_LINE")); err == nil {
		o.Line = mib << 20
	}

	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}

	r := &run{Proc: a.net.Start(t, a.far, "stranger", filepath.Join(lab.Dir(t), "stranger"), "nice", "-n",
		"29", "env", strangerEnv+"="+string(text), a.self)}
	lab.Eventually(t, 60*time.Second, "the stranger is ready", func() error {
		b, _ := os.ReadFile(r.Log)
		if !strings.HasPrefix(string(b), "ready\n") {
			return fmt.Errorf("%q", b)
		}
		return nil
	})

	return r
}

// end stops him and reads what he did.
func (r *run) end(t *testing.T) *effort {
	t.Helper()
	if r.Running() {
		if err := r.Stop(10 * time.Second); err != nil {
			t.Log(err)
		}
	}
	return r.read()
}

// read gives what he has done so far.
func (r *run) read() *effort {
	b, _ := os.ReadFile(r.Log)
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		e := &effort{}
		if json.Unmarshal([]byte(lines[i]), e) == nil {
			return e
		}
	}
	return &effort{}
}

// journal follows log files by their growth, over rotations.
type journal struct {
	mu    sync.Mutex
	size  map[string]int64
	grown map[string]int64
}

func (a *arena) logs() []string {
	s := a.node.Settings
	return []string{filepath.Join(s.LogDir(), "master.log"), filepath.Join(s.LogDir(), "lb.log"),
		filepath.Join(s.CacheDir(), "salt-master.log"), a.node.Log}
}

// look adds what the logs have grown by since the last look.
func (j *journal) look(paths []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.size == nil {
		j.size, j.grown = map[string]int64{}, map[string]int64{}
		for _, p := range paths {
			if fi, err := os.Stat(p); err == nil {
				j.size[p] = fi.Size()
			}
		}
		return
	}

	for _, p := range paths {
		fi, err := os.Stat(p)
		if err != nil {
			continue
		}

		d := fi.Size() - j.size[p]
		if d < 0 { // a new one; the rest of the older one is lost to us
			d = fi.Size()
		}

		j.size[p] = fi.Size()
		j.grown[p] += d
	}
}

// most is the growth of the log that grew most.
func (j *journal) most() (n int64, name string) {
	for p, g := range maps.All(j.grown) {
		if g > n {
			n, name = g, filepath.Base(p)
		}
	}
	return n, name
}

var errWrong = errors.New("wrong answer")
