package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"saltern/master"
	"saltern/master/conf"
	"saltern/master/crypt"
	"saltern/test/address"
)

// running is a master of ours in this process.
type running struct {
	dir  string
	args []string // that lead the swarm to it
}

// startMaster runs a master that accepts every key.
func startMaster(t *testing.T) *running {
	t.Helper()
	dir, err := os.MkdirTemp("", "swarm") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { os.RemoveAll(dir) })
	requests := int(address.Free(t, "127.0.0.1").Port())
	publishes := int(address.Free(t, "127.0.0.1").Port())
	r := &running{
		dir: dir,
		args: []string{"-master", "127.0.0.1", "-ret-port", fmt.Sprint(requests), "-pub-port", fmt.Sprint(publishes),
			"-keys", filepath.Join(dir, "keys"), "-nkeys", "2", "-timeout", "30s", "-json"},
	}

	r.write(t, "master",
		fmt.Sprintf("id: m1\nroot_dir: %s\nuser: root\ninterface: 127.0.0.1\npublish_port: %d\nret_port: %d\nauto_accept: True\n"+
			"pki_dir: pki\ncachedir: cache\nsock_dir: sock\nlog_file: log\npidfile: pid\nfile_roots: {base: [%s/roots]}\npillar_roots: {base: [%s/pillar]}\n",
			dir, publishes, requests, dir, dir))

	r.write(t, "pillar/top.sls", "base:\n  '*':\n    - app\n")
	r.write(t, "pillar/app.sls", "app:\n  color: green\n")
	cfg, err := conf.Load(filepath.Join(dir, "master"))
	if err != nil {
		t.Fatal(err)
	}

	m, err := master.New(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
		_ = m.Close()
	})

	return r
}

func (r *running) write(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// swarm runs a mode and returns its report and exit status.
func (r *running) swarm(t *testing.T, args ...string) (report, int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), slices.Concat(args[:1], r.args, args[1:]), &stdout, &stderr)
	var rep report
	if err := json.Unmarshal(stdout.Bytes(), &rep); err != nil {
		t.Fatalf("%v: %v: %s%s", args, err, &stdout, &stderr)
	}
	return rep, code
}

// must runs a mode in which nothing may fail.
func (r *running) must(t *testing.T, requests int, args ...string) report {
	t.Helper()
	rep, code := r.swarm(t, args...)
	if code != exitOK || rep.Failed != 0 || rep.Requests != requests {
		t.Fatalf("%v: status %d, %d requests of %d, %d failed: %v", args, code, rep.Requests, requests,
			rep.Failed, rep.Errors)
	}
	return rep
}

func (r *running) rootKey() string { return filepath.Join(r.dir, "cache/.root_key") }
func (r *running) state() string   { return filepath.Join(r.dir, "state.json") }

func TestAuth(t *testing.T) {
	r := startMaster(t)
	for _, args := range [][]string{{"-token=false"}, {"-token"}, {"-fresh-ids", "-prefix", "new-"}} {
		rep := r.must(t, 10, append([]string{"auth", "-n", "5", "-c", "3", "-repeat", "2"}, args...)...)
		if rep.Latency.N != 10 || rep.Rate.N != 2 || rep.Rate.Median <= 0 {
			t.Errorf("%v: %+v, %+v", args, rep.Latency, rep.Rate)
		}
	}
	for _, id := range []string{"sw-probe", "sw-4", "new-r1-0", "new-r2-4"} {
		if _, err := os.Stat(filepath.Join(r.dir, "pki/minions", id)); err != nil {
			t.Error(err)
		}
	}
}

func TestReturns(t *testing.T) {
	r := startMaster(t)
	rep := r.must(t, 0, "signin", "-n", "4", "-state", r.state())
	if rep.Setup["sign_ins"] != 4.0 {
		t.Errorf("signed in: %v", rep.Setup)
	}
	for _, connections := range []string{"persist", "fresh", "pool=2"} {
		rep := r.must(t, 12, "returns", "-n", "4", "-k", "3", "-state", r.state(), "-root-key", r.rootKey(),
			"-req", connections, "-pid", fmt.Sprint(os.Getpid()))
		if rep.Setup["sign_ins"] != 0.0 || rep.Master == nil || rep.Master.After.PSS <= 0 {
			t.Errorf("%s: %v, %+v", connections, rep.Setup, rep.Master)
		}
	}
	r.must(t, 8, "returns", "-n", "4", "-k", "2", "-state", r.state()) // of no job
}

func TestEvents(t *testing.T) {
	r := startMaster(t)
	r.must(t, 12, "events", "-n", "4", "-k", "3")
}

func TestPillar(t *testing.T) {
	r := startMaster(t)
	r.must(t, 4, "pillar", "-n", "2", "-k", "2", "-expect", "app")
	rep, code := r.swarm(t, "pillar", "-n", "2", "-k", "1", "-expect", "nothing")
	if code != exitFailed || rep.Failed != 2 || rep.Errors["the pillar has no key nothing"] != 2 {
		t.Errorf("status %d, %v", code, rep.Errors)
	}
}

func TestFile(t *testing.T) {
	r := startMaster(t)
	big := strings.Repeat("0123456789", 100_000) // several chunks
	r.write(t, "roots/big", big)
	r.write(t, "roots/f0", "zero")
	r.write(t, "roots/f1", "")
	if rep := r.must(t, 2, "file", "-n", "2", "-k", "1", "-path", "big"); rep.Extra["bytes_per_round"] != 2.0*float64(len(big)) || rep.Speed.Median <= 0 {
		t.Errorf("%v, %v", rep.Extra, rep.Speed)
	}
	r.must(t, 4, "file", "-n", "2", "-k", "2", "-path", "f%d")
	if rep, code := r.swarm(t, "file", "-n", "2", "-k", "1", "-path", "none"); code != exitFailed || rep.Failed != 2 {
		t.Errorf("a file that is not there: status %d, %+v", code, rep)
	}
}

func TestPublish(t *testing.T) {
	r := startMaster(t)
	if rep, code := r.swarm(t, "publish", "-k", "1", "-root-key", r.rootKey()); code != exitFailed || rep.Failed != 1 {
		t.Errorf("for nobody: status %d, %+v", code, rep)
	}
	r.must(t, 0, "signin", "-n", "3")
	if rep := r.must(t, 5, "publish", "-k", "5", "-c", "2", "-root-key", r.rootKey()); rep.Extra["matched"] != 3.0 {
		t.Errorf("%v", rep.Extra)
	}
	r.write(t, "wrong", "no key\n")
	if rep, code := r.swarm(t, "publish", "-k", "1", "-root-key", filepath.Join(r.dir, "wrong")); code != exitFailed || rep.Failed != 1 {
		t.Errorf("with a wrong key: status %d, %+v", code, rep)
	}
}

func TestHold(t *testing.T) {
	r := startMaster(t)
	ready := filepath.Join(r.dir, "ready")
	rep := r.must(t, 15, "hold", "-n", "5", "-drive", "3", "-root-key", r.rootKey(), "-ready-file", ready)
	if len(rep.Jobs) != 3 {
		t.Fatalf("%d jobs", len(rep.Jobs))
	}

	for _, j := range rep.Jobs {
		if j.Matched != 5 || j.Returned != 5 || j.Failed != 0 || j.Fun != "test.ping" || j.Total < j.Whole ||
			j.Whole <= 0 || j.Latency.N != 5 {
			t.Errorf("%+v", j)
		}
	}

	if b, err := os.ReadFile(ready); err != nil || string(b) != "5\n" {
		t.Errorf("the file that says ready: %q, %v", b, err)
	}

	if rep, code := r.swarm(t, "hold", "-n", "2", "-jobs", "1", "-for", "10ms"); code != exitFailed || rep.Failed != 1 {
		t.Errorf("no job came: status %d, %+v", code, rep)
	}
}

// Minions that are to apply states ask for their pillar and read files before they return.
func TestHoldAppliesStates(t *testing.T) {
	r := startMaster(t)
	r.write(t, "roots/f0", "a")
	r.write(t, "roots/f1", "b")
	apply := func(function, key, path string) (report, int) {
		return r.swarm(t, "hold", "-n", "2", "-drive", "1", "-root-key", r.rootKey(), "-state", r.state(),
			"-highstate", "-fun", function, "-expect", key, "-path", path, "-k", "2")
	}
	for _, c := range []struct {
		function, key, path, fault string
	}{
		{function: "state.apply", key: "app", path: "f%d"},
		{function: "test.ping", key: "nothing", path: "none"},
		{function: "state.apply", key: "nothing", path: "f%d", fault: "the pillar has no key nothing"},
		{function: "state.apply", key: "app", path: "none", fault: "_file_hash of none: answered "},
	} {
		rep, code := apply(c.function, c.key, c.path)
		if c.fault == "" && (code != exitOK || rep.Requests != 2) || c.fault != "" && (code != exitFailed || rep.Errors[c.fault] != 2) {
			t.Errorf("%+v: status %d, %+v", c, code, rep)
		}
	}
}

// The keys for publishes have changed since the state was kept.
func TestHoldSignsInAgain(t *testing.T) {
	r := startMaster(t)
	r.must(t, 0, "signin", "-n", "2", "-state", r.state())
	r.forget(t, "sw-0", "sw-1")
	if rep := r.must(t, 2, "hold", "-n", "2", "-drive", "1", "-root-key", r.rootKey(), "-state",
		r.state()); rep.Again == 0 {
		t.Error("nobody signed in again")
	}
}

func TestTree(t *testing.T) {
	r := startMaster(t)
	if rep := r.must(t, 0, "tree", "-pid", fmt.Sprint(os.Getpid()), "-for", "10ms"); rep.Master.After.Procs != 1 || rep.Master.After.PSS <= 0 {
		t.Errorf("%+v", rep.Master)
	}
	if rep, code := r.swarm(t, "tree", "-pid", fmt.Sprint(1<<30)); code != exitFailed || rep.Failed == 0 {
		t.Errorf("of nobody: status %d, %+v", code, rep)
	}
}

// A master that has forgotten a session refuses: the minion signs in again.
func TestSignsInAgain(t *testing.T) {
	r := startMaster(t)
	r.must(t, 0, "signin", "-n", "2", "-state", r.state())
	r.forget(t, "sw-1")
	if rep := r.must(t, 4, "events", "-n", "2", "-k", "2", "-state", r.state()); rep.Again != 1 {
		t.Errorf("%d signed in again", rep.Again)
	}
	if rep := r.must(t, 4, "events", "-n", "2", "-k", "2", "-state", r.state()); rep.Again != 0 {
		t.Errorf("the new session was not kept: %d signed in again", rep.Again)
	}
}

// forget makes the keys in the state wrong ones.
func (r *running) forget(t *testing.T, ids ...string) {
	t.Helper()
	var kept session
	b, err := os.ReadFile(r.state())
	if err == nil {
		err = json.Unmarshal(b, &kept)
	}

	if err != nil {
		t.Fatal(err)
	}

	key, err := crypt.NewKey(nil)
	if err != nil {
		t.Fatal(err)
	}

	for _, id := range ids {
		kept.Minions[id] = [2]string{key.String(), key.String()}
	}

	if b, err = json.Marshal(kept); err != nil {
		t.Fatal(err)
	}

	r.write(t, "state.json", string(b))
}

// Whoever has another master's key in its state must notice.
func TestWrongMaster(t *testing.T) {
	r, other := startMaster(t), startMaster(t)
	other.must(t, 0, "signin", "-n", "1", "-state", r.state())
	rep, code := r.swarm(t, "signin", "-n", "2", "-first", "1", "-state", r.state())
	if code != exitFailed || rep.Failed != 2 {
		t.Errorf("status %d, %d failed: %v", code, rep.Failed, rep.Errors)
	}
}

func TestNobodyAnswers(t *testing.T) {
	r := startMaster(t)
	rep, code := r.swarm(t, "auth", "-n", "1", "-ret-port", fmt.Sprint(address.Free(t, "127.0.0.1").Port()))
	if code != exitFailed || rep.Failed != 1 || rep.Requests != 0 {
		t.Errorf("status %d, %+v", code, rep)
	}

	ln, err := net.Listen("tcp4", "127.0.0.1:0") // accepts and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()

	rep, code = r.swarm(t, "signin", "-timeout", "100ms", "-ret-port", fmt.Sprint(ln.Addr().(*net.TCPAddr).Port))
	if code != exitFailed || rep.Failed == 0 {
		t.Errorf("status %d, %+v", code, rep)
	}

	for text := range rep.Errors {
		if !strings.Contains(text, errTimeout.Error()) {
			t.Errorf("failed for another reason: %s", text)
		}
	}
}

func TestUsage(t *testing.T) {
	for _, tt := range []struct {
		args []string
		code int
		says string
	}{
		{nil, exitUsage, "Usage: swarm MODE"},
		{[]string{"--help"}, exitOK, "returns"},
		{[]string{"auth", "--help"}, exitOK, "-fresh-ids"},
		{[]string{"dance"}, exitUsage, `no mode "dance"`},
		{[]string{"auth", "-n", "0"}, exitUsage, "-n 0"},
		{[]string{"auth", "-c", "0"}, exitUsage, "at least 1"},
		{[]string{"auth", "more"}, exitUsage, `"more"`},
		{[]string{"auth", "-req", "pool=x", "-keys", filepath.Join(t.TempDir(), "k")}, exitUsage, "pool=x"},
		{[]string{"publish"}, exitUsage, "-root-key"},
		{[]string{"hold", "-drive", "1"}, exitUsage, "-root-key"},
		{[]string{"file"}, exitUsage, "-path"},
		{[]string{"tree"}, exitUsage, "-pid"},
		{[]string{"returns", "-root-key", "/nowhere"}, exitUsage, "/nowhere"},
	} {
		var out bytes.Buffer
		if code := run(t.Context(), tt.args, &out, &out); code != tt.code || !strings.Contains(out.String(), tt.says) {
			t.Errorf("%v: status %d, want %d with %q: %s", tt.args, code, tt.code, tt.says, &out)
		}
	}
}

// The keys of a folder are made once, also by generators that start at the
// same time.
func TestPairsStay(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	var got [4][2][32]byte
	var group sync.WaitGroup
	for i := range got {
		group.Go(func() {
			pairs, err := loadPairs(dir, 2)
			if err != nil {
				t.Error(err)
				return
			}

			for k, p := range pairs {
				got[i][k] = sha256.Sum256(p.proof)
			}
		})
	}

	group.Wait()
	for _, g := range got {
		if g != got[0] || g[0] == g[1] {
			t.Error("the keys have changed, or are one key")
		}
	}

	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("the folder holds %v, %v", entries, err)
	}
}
