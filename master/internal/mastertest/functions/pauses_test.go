package functions

import (
	"os"
	"strings"
	"testing"
	"time"

	"saltern/master/internal/local"
	"saltern/master/internal/mastertest"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// long is an orchestration whose first step waits for a file.
const long = `
one:
  cmd.run:
    - name: touch DIR/begun-NAME; while [ ! -e DIR/go-NAME ]; do sleep 0.1; done
two:
  cmd.run:
    - name: touch DIR/two-NAME
three:
  test.nop: []
`

// TestOrchestrationsArePausedAndEnded: an orchestration, in Salt's own code, obeys what
// state.pause, state.resume and state.soft_kill have accepted. They refuse a job that has ended.
func TestOrchestrationsArePausedAndEnded(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, "saltern_renderer_python: "+mastertest.SaltPython(t)+"\n"+
		"file_roots: {base: [%DIR%/orchestrations]}\n")
	check.Must(t, os.Mkdir(r.Path("orchestrations"), 0o755))
	r.ListenToBus()

	start := func(fun string, args ...any) *value.Map {
		t.Helper()
		answer, ok := r.AskInClear("runner", "fun", fun, "kwarg",
			value.NewMap("arg", args, "kwarg", value.NewMap()), "key", r.Key, "user", local.CurrentUser()).(*value.Map)
		if !ok || answer.Str("jid") == "" {
			t.Fatalf("answer of %s: %v", fun, answer)
		}
		return answer
	}
	run := func(fun string, args ...any) *value.Map {
		t.Helper()
		return runnerResult(r, start(fun, args...))
	}
	exists := func(name string) bool {
		_, err := os.Stat(r.Path(name))
		return err == nil
	}

	// begin starts an orchestration, and returns when its first step is at work.
	begin := func(name string) (answer *value.Map) {
		t.Helper()
		text := strings.NewReplacer("DIR", r.Path(), "NAME", name).Replace(long)
		check.Must(t, os.WriteFile(r.Path("orchestrations", name+".sls"), []byte(text), 0o644))
		answer = start("state.orchestrate", name)
		await.That(t, "the first step of "+name, func() bool { return exists("begun-" + name) })
		return answer
	}
	release := func(name string) { check.Must(t, os.WriteFile(r.Path("go-"+name), nil, 0o644)) }

	paused := begin("paused")
	jid := paused.Str("jid")
	if ret := run("state.pause", jid, "two"); ret.Value("return") != nil || !ret.Bool("success") {
		t.Errorf("state.pause: %s", mastertest.PlainText(ret))
	}
	release("paused")
	await.Holds(t, 3*time.Second, "a paused step does not run", func() bool { return !exists("two-paused") })
	run("state.resume", jid, "two")
	if ret := runnerResult(r, paused); !ret.Bool("success") || !exists("two-paused") {
		t.Errorf("after the pause: %s", mastertest.PlainText(ret))
	}

	for _, fun := range []string{"state.pause", "state.resume", "state.soft_kill"} {
		ret := run(fun, jid)
		if text := ret.Str("return"); ret.Bool("success") || !strings.Contains(text, "no orchestration with the job id "+jid) {
			t.Errorf("%s of a job that is over: %s", fun, mastertest.PlainText(ret))
		}
	}

	ended := begin("ended")
	run("state.pause", ended.Str("jid"), "one")
	if ret := run("state.soft_kill", ended.Str("jid"), "two"); !ret.Bool("success") {
		t.Errorf("state.soft_kill: %s", mastertest.PlainText(ret))
	}
	release("ended")
	ret := runnerResult(r, ended)
	// As in Salt, the steps until then are the result (salt/state.py call_chunks).
	steps := ret.Map("return").Map("data").Map("m1")
	if steps.Len() != 1 || !ret.Bool("success") || exists("two-ended") {
		t.Errorf("after the end: %s", mastertest.PlainText(ret))
	}
	if entries, _ := os.ReadDir(r.Path("cache", "state_pause")); len(entries) != 0 {
		t.Errorf("files are left: %v", entries)
	}
}
