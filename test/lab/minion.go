package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// Minion is an unmodified salt-minion with a root folder of its own.
type Minion struct {
	*Proc
	ID, Version string
	Dir         string
	bin         string
	net         *Network // nil: it runs here
	host        string
	said        map[string]int // how often it had printed what [Minion.SaidAgain] was asked for
	faults      int            // of Salt's, for which it was restarted
	spoken      int            // how many lines of its own it had printed when it was last looked
	spokeAt     time.Time      // when there were more than before
}

// StartMinion starts a minion of a version that uses the node. options are
// further minion options.
func StartMinion(t testing.TB, n *Node, id, version string, options map[string]any) *Minion {
	t.Helper()
	return StartMinionOn(t, nil, "", n, id, version, options)
}

// StartMinionOn is like [StartMinion], on a host of a network.
func StartMinionOn(
	t testing.TB,
	net *Network,
	host string,
	n *Node,
	id, version string,
	options map[string]any,
) *Minion {
	t.Helper()
	m := &Minion{
		ID:      id,
		Version: version,
		Dir:     Dir(t),
		bin:     Venv(t, version),
		net:     net,
		host:    host,
	}

	conf := map[string]any{"master": n.Addr, "master_port": n.Settings.Front.RequestPort}
	if Peer() {
		conf["publish_port"] = n.Settings.Front.PublishPort
	}

	maps.Copy(conf, options)
	m.prepare(t, conf)
	m.Launch(t)
	n.minions.Store(id, m)

	return m
}

// tangled is what a minion of 3008 prints when two of its own sign-ins have ended at
// once (salt/crypt.py AsyncAuth._authenticate): its subscription stands, and it never
// acts upon what it gets. Only a restart helps.
const tangled = "exception=InvalidStateError('invalid state')"

// quit reports whether the minion has ended by itself, with code 0, as one of 3007 does
// when two notices of its lost master have come close together (salt/minion.py,
// Minion.handle_event; its service is to start it again).
func (m *Minion) quit(t testing.TB) bool {
	t.Helper()
	return !m.Running() && m.err == nil && m.SaidAgain(t, "Trying to tune in to next master")
}

// Untangle restarts a minion that Salt's own fault has made deaf or ended, so that tests
// do not fail for it, and reports whether it did. What the minion owed a job is lost with it.
func (m *Minion) Untangle(t testing.TB) bool {
	t.Helper()
	switch {
	case m.SaidAgain(t, tangled):
		t.Logf("NOTE: minion %s met a fault of Salt's sign-in and is restarted", m.ID)
	case m.quit(t):
		t.Logf("NOTE: minion %s (%s) has ended when it lost its master twice and is restarted", m.ID, m.Version)
	default:
		return false
	}
	m.faults++
	m.Restart(t)
	return true
}

// ofJob is a word of a job's process: it waits for the minion to send its return, and says so
// half a minute after the minion's loop hangs.
const ofJob = "The minion failed to return the job information"

// SilentSince is when the minion had last printed something by itself, at the times of the
// calls. One with master_alive_interval prints a line at each look, so that only one whose loop hangs is
// silent for longer.
func (m *Minion) SilentSince(t testing.TB) time.Time {
	t.Helper()
	text, err := os.ReadFile(m.Log)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Count(string(text), "\n") - strings.Count(string(text), ofJob)
	if lines != m.spoken {
		m.spoken = lines
		m.spokeAt = time.Now()
	}
	return m.spokeAt
}

// wedged is in the stack of a minion of Salt 3007 whose loop hangs by Salt's own fault. When it
// connects again it drops a request channel that it has not closed, and the loop waits for ever in
// zmq_ctx_term. The minions of 3006.28 and 3008.3 close the channel first, and a comment there says
// why (salt/minion.py, close_async in connect_master).
var wedged = regexp.MustCompile(`context\.py", line \d+ in term\n.*context\.py", line \d+ in destroy\n` +
	`.*context\.py", line \d+ in __del__\n`)

// Wedged ends a minion whose loop hangs, and reports whether it hangs by Salt's own fault. It also
// returns the stacks of the process.
func (m *Minion) Wedged(t testing.TB) (bySalt bool, stacks string) {
	t.Helper()
	before, err := os.ReadFile(m.Log)
	if err != nil {
		t.Fatal(err)
	}

	loops, err := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", m.PID()))
	if err != nil {
		t.Fatal(err)
	}

	for _, pid := range strings.Fields(string(loops)) {
		if n, err := strconv.Atoi(pid); err == nil {
			_ = syscall.Kill(n, syscall.SIGABRT) // it may have ended
		}
	}

	select {
	case <-m.done: // the first process goes with the other
	case <-time.After(10 * time.Second):
	}

	after, err := os.ReadFile(m.Log)
	if err != nil {
		t.Fatal(err)
	}
	stacks = string(after[len(before):])
	return wedged.MatchString(stacks), stacks
}

// SaidAgain reports whether the minion has printed a text since it was last asked for it.
func (m *Minion) SaidAgain(t testing.TB, text string) bool {
	t.Helper()
	b, err := os.ReadFile(m.Log)
	if err != nil {
		t.Error(err)
	}
	before := m.said[text]
	if m.said == nil {
		m.said = map[string]int{}
	}
	m.said[text] = strings.Count(string(b), text)
	return m.said[text] > before
}

// Restart kills the minion and starts it again. For Salt a minion of before runs as
// long as nobody has waited for its dead process.
func (m *Minion) Restart(t testing.TB) {
	t.Helper()
	m.Kill()
	m.spokeAt = time.Now() // the next one has its time to begin
	if err := os.Remove(filepath.Join(m.Dir, "process_responsibility_minion.pid")); err != nil &&
		!errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	m.Launch(t)
}

// untangle does so for a minion of the node.
func (n *Node) untangle(t testing.TB, id string) {
	t.Helper()
	if m, ok := n.minions.Load(id); ok {
		m.(*Minion).Untangle(t)
	}
}

// prepare makes the folders and the configuration; options say where the
// master is, and whatever else differs from what all minions of tests have.
func (m *Minion) prepare(t testing.TB, options map[string]any) {
	t.Helper()
	conf := map[string]any{
		"id": m.ID, "root_dir": m.Dir, "pki_dir": m.Dir +
			"/pki", "cachedir": m.Dir + "/cache", "sock_dir": m.Dir + "/sock",
		"log_file": m.Dir + "/minion.log", "pidfile": m.Dir + "/minion.pid", "conf_file": m.Dir + "/etc/minion",
		"log_level": "info", "log_level_logfile": "quiet",
		"acceptance_wait_time": 1, "acceptance_wait_time_max": 1, "random_startup_delay": 0,
		"recon_default": 200, "recon_max": 1000, "recon_randomize": true,
		"enable_fqdns_grains": false, "enable_gpu_grains": false, "mine_enabled": false, "grains_cache": false,
	}

	maps.Copy(conf, options)
	text, err := yaml.Marshal(conf)
	if err != nil {
		t.Fatal(err)
	}

	WriteTree(t, m.Dir, map[string]string{"etc/minion": string(text)})
	for _, d := range []string{"pki", "cache", "sock"} {
		if err := os.MkdirAll(filepath.Join(m.Dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

// Launch starts the minion again after it was stopped or killed. SIGABRT makes it print its stacks.
func (m *Minion) Launch(t testing.TB) {
	t.Helper()
	if os.Getenv("SALTERN_FORK") == "0" {
		m.launchProgram(t)
		return
	}

	m.Proc = startFork(t, filepath.Join(m.bin, "python3"), m.name(), forkRequest{
		Args: m.command(),
		Env:  map[string]string{faultHandler: "1"},
		Out:  m.output(),
		Net:  m.net.namespace(m.host),
	})
}

// launchProgram is like Launch, without a [forkServer].
func (m *Minion) launchProgram(t testing.TB) {
	t.Helper()
	args := append([]string{faultHandler + "=1"}, m.command()...)
	m.Proc = m.net.Start(t, m.host, m.name(), m.output(), "env", args...)
}

// faultHandler is an environment variable that makes Python print its stacks for some signals.
const faultHandler = "PYTHONFAULTHANDLER"

func (m *Minion) name() string { return "minion " + m.ID + " (" + m.Version + ")" }

func (m *Minion) output() string { return filepath.Join(m.Dir, "out") }

func (m *Minion) command() []string {
	return []string{filepath.Join(m.bin, "salt-minion"), "-c", filepath.Join(m.Dir, "etc")}
}

// Call runs salt-call on the minion and gives its return.
func (m *Minion) Call(t testing.TB, args ...string) any {
	t.Helper()
	path, args := m.net.wrap(m.host, filepath.Join(m.bin, "salt-call"),
		append([]string{"-c", filepath.Join(m.Dir, "etc"), "--out", "json"}, args...))
	r := Run(t, 120*time.Second, path, args...)
	var v struct{ Local any }
	if err := json.Unmarshal([]byte(r.Out), &v); err != nil {
		t.Fatalf("salt-call on %s: %v\n%s%s", m.ID, err, r.Out, r.Err)
	}
	return v.Local
}
