package runner

import (
	"math/big"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"saltern/master/internal/pyframe"
	"saltern/master/value"
	"saltern/test/await"
)

// pausesOf returns what Salt's library would read about the pauses of a job.
func pausesOf(t *testing.T, dir, jid string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "state_pause", jid))
	ok(t, err)
	steps, err := pyframe.Map(b)
	ok(t, err)
	return JSON(steps, false)
}

// TestPauses checks the files against what salt/modules/state.py pause, resume and soft_kill write. Of
// two calls for one job, Salt ignores the second pause and fails at the second kill; here both count.
func TestPauses(t *testing.T) {
	const jid = "20261129055906639594"
	dir := t.TempDir()
	env := &Env{
		Options: m("cachedir", dir),
		Running: func() []*value.Map { return []*value.Map{m("jid", jid, "fun", "runner.state.orchestrate")} },
		Pauses:  NewPauses(dir),
	}

	number, _ := new(big.Int).SetString(jid, 10) // what a command line makes of the id
	for _, c := range []struct {
		fun  string
		args []any
		want string
	}{
		{"state.pause", []any{jid}, `{"__all__": {}}`},
		{"state.set_pause", []any{number, "one", int64(20)}, `{"__all__": {}, "one": {"duration": 20}}`},
		{"state.soft_kill", []any{jid, "two"}, `{"__all__": {}, "one": {"duration": 20}, "two": {"kill": true}}`},
		{"state.rm_pause", []any{jid, "one"}, `{"__all__": {}, "two": {"kill": true}}`},
		{"state.resume", []any{jid}, `{}`},
		{"state.resume", []any{jid}, `{}`},
		{"state.soft_kill", []any{jid}, `{"__all__": {"kill": true}}`},
	} {
		ret, err := New().Call(t.Context(), env, c.fun, c.args, nil)
		if got := pausesOf(t, dir, jid); err != nil || ret != nil || got != c.want {
			t.Errorf("%s %v: %v %v, %s, want %s", c.fun, c.args, ret, err, got, c.want)
		}
	}

	for _, bad := range []string{"20261129055906639595", "../../etc/passwd", "", "x", jid + "_1"} {
		_, err := New().Call(t.Context(), env, "state.pause", []any{bad}, nil)
		if err == nil || !strings.Contains(err.Error(), "job id") {
			t.Errorf("%q: %v", bad, err)
		}
	}

	long := strings.Repeat("x", maxStepID+1)
	if _, err := New().Call(t.Context(), env, "state.pause", []any{jid, long}, nil); err == nil ||
		!strings.Contains(err.Error(), "state_id has 4097 bytes") {
		t.Errorf("a long state_id: %v", err)
	}
	if found, _ := env.ChangeOwnPauses(PauseChange{JID: jid, Action: Pause, Step: long}); found {
		t.Error("another master's long state_id counts")
	}

	if entries, _ := os.ReadDir(filepath.Join(dir, "state_pause")); len(entries) != 1 {
		t.Errorf("files %v", entries)
	}

	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			if _, err := New().Call(t.Context(), env, "state.pause", []any{jid, "step" + strconv.Itoa(i)}, nil); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := strings.Count(pausesOf(t, dir, jid), "step"); got != 50 {
		t.Errorf("%d of 50 pauses at once are kept", got)
	}
}

// TestRunnersOfPythonAreListed: jobs.master lists what Salt's library notes as being in progress,
// without secrets, and nothing whose process is gone.
func TestRunnersOfPythonAreListed(t *testing.T) {
	const jid, nested, over = "20261129000000000002", "20261129000000000001", "20261129000000000003"
	dir := t.TempDir()
	ok(t, os.MkdirAll(filepath.Join(dir, "proc"), 0o755))
	note := func(name string, data *value.Map) {
		packed, err := pyframe.Pack(data)
		ok(t, err)
		ok(t, os.WriteFile(filepath.Join(dir, "proc", name), packed, 0o600))
	}

	salt := exec.Command("sh", "-c", "sleep 600; : salt-run")
	ok(t, salt.Start())
	t.Cleanup(func() { _ = salt.Process.Kill(); _ = salt.Wait() })
	await.That(t, "a process that looks like Salt's", func() bool { return runsSalt(int64(salt.Process.Pid)) })

	run := func(jid string, pid int) *value.Map {
		return m("jid", jid, "fun", "runner.state.orchestrate", "user", "root", "pid", pid,
			"fun_args", []any{"x", m("pillar", m("password", "hush hush"))})
	}
	note(jid, run(jid, salt.Process.Pid))
	note(nested, run(nested, salt.Process.Pid))
	note(over, run(over, 1<<30))
	note("20261129000000000004", run("20261129000000000004", 1)) // another program has this process id
	note("20261129000000000005", m("pid", "no number"))
	note("..x", run(jid, salt.Process.Pid))
	r := rand.New(rand.NewPCG(rand.Uint64(), 1))
	for i := range 50 {
		junk := make([]byte, r.IntN(200))
		for i := range junk {
			junk[i] = byte(r.Uint32())
		}
		ok(t, os.WriteFile(filepath.Join(dir, "proc", "202611290000000001"+strconv.Itoa(10+i)), junk, 0o600))
	}

	env := &Env{
		Options: m("cachedir", dir),
		Running: func() []*value.Map { return []*value.Map{m("jid", jid, "fun", "runner.state.orchestrate")} },
		Pauses:  NewPauses(dir),
	}
	got, err := New().Call(t.Context(), env, "jobs.master", nil, nil)
	ok(t, err)
	list := got.([]any)
	if len(list) != 2 || list[0].(*value.Map).Str("jid") != nested || list[1].(*value.Map).Str("jid") != jid {
		t.Fatalf("%s", JSON(got, false))
	}
	if text := JSON(got, false); strings.Contains(text, "hush") {
		t.Errorf("secrets: %s", text)
	}

	_, err = New().Call(t.Context(), env, "state.soft_kill", []any{nested}, nil)
	ok(t, err)
	if _, err = New().Call(t.Context(), env, "state.soft_kill", []any{over}, nil); err == nil {
		t.Error("a job that is over was to be ended")
	}
}
