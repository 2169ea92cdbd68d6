package functions

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/master/internal/mastertest"
	"saltern/master/runner"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

const odd = `
import datetime, os, sys
def types(*args, **kwargs):
    print("this is no result")
    os.write(1, b"neither is this")
    return {"args": list(args), "kwargs": {k: v for k, v in kwargs.items() if not k.startswith("__")}, "argv": sys.argv, "cwd": os.getcwd(),
            "isolated": sys.flags.isolated, "environ": sorted(os.environ.values()), "cmdline": open("/proc/self/cmdline").read()}
def values():
    return {1: (1, 2), "set": {7}, "none": None, "bytes": b"\xff\x00", "float": 1.0, "big": 2**63, "text": "ä"}
def fail():
    raise ValueError("as asked")
def quit():
    raise SystemExit(4)
def say(what):
    return {"said": what}
`

// startOdd runs a master with a runner module of the administrator.
func startOdd(t testing.TB, options string) *mastertest.Master {
	return startOddBy(t, mastertest.SaltPython(t), options)
}

// startOddBy is startOdd with a Python of its own.
func startOddBy(t testing.TB, python, options string) *mastertest.Master {
	dir := t.TempDir()
	check.Must(t, os.WriteFile(filepath.Join(dir, "odd.py"), []byte(odd), 0o644))
	old := time.Now().Add(-time.Minute)
	// a list of files that changed just now is not relied on
	check.Must(t, os.Chtimes(filepath.Join(dir, "odd.py"), old, old))
	return mastertest.Start(t, "saltern_renderer_python: "+python+"\nrunner_dirs: ["+dir+"]\n"+options)
}

// TestRunnersAreDescribed: the functions that a master adds to its table when it starts are those which
// salt-run describes, and sends to the master without a look at Python.
func TestRunnersAreDescribed(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]*mastertest.Master{
		"alone":      mastertest.Start(t, ""),
		"in cluster": mastertest.StartCluster(t, 1)[0],
	} {
		docs := runner.Docs("")
		for _, fun := range m.Parts.Runs.Table.Names() {
			if _, ok := docs[fun]; !ok {
				t.Errorf("%s: master/runner/added.go does not describe %s", name, fun)
			}
			if own := runner.New().Has(fun); !own && !runner.OfMaster(fun) && (name == "alone" || !runner.OfCluster(fun)) {
				t.Errorf("%s: master/runner/added.go does not say that %s needs a running master", name, fun)
			}
		}
		for fun := range docs {
			if name == "alone" && runner.OfCluster(fun) {
				continue
			}
			if !m.Parts.Runs.Table.Has(fun) {
				t.Errorf("%s: %s is described, and the master does not have it", name, fun)
			}
		}
	}
}

// What only Python has gets its arguments as data: their types stay, and no
// option of a program is among them.
func TestFinding04RunnerArguments(t *testing.T) {
	r := startOdd(t, "peer_run:\n  evil: [odd.say, manage.up]\nexternal_auth:\n  auto:\n    bob: ['@odd']\n")
	out := filepath.Join(t.TempDir(), "written")
	t.Run("an eauth user", func(t *testing.T) {
		reply := r.AskInClear("runner", "fun", "odd.types", "eauth", "auto", "username", "bob", "password", "x",
			"arg", []any{"--out-file=" + out, "-d", "--config-dir=/", "a=b", "1"})
		jid := reply.(*value.Map).Str("jid")
		if jid == "" {
			t.Fatalf("answer %v", reply)
		}

		var data *value.Map
		await.That(t, "the runner ends", func() bool {
			rets, err := r.Parts.Jobs.Returns(t.Context(), jid)
			check.Must(t, err)
			data = rets.Map("m1").Map("return")
			return data != nil
		})

		if _, err := os.Stat(out); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("an argument made a file: %v", err)
		}

		ret := data.Map("return")
		if ret == nil {
			t.Fatalf("the runner returned %v", data.Value("return"))
		}

		if got := fmt.Sprint(ret.List("args")...); got != fmt.Sprint("--out-file="+out, "-d",
			"--config-dir=/", "a=b", "1") {
			t.Errorf("the function got %s", got)
		}

		for _, k := range []string{"cmdline", "environ", "argv"} {
			if text := fmt.Sprint(ret.Value(k)); strings.Contains(text, out) || strings.Contains(text, "odd.types") {
				t.Errorf("what the caller wrote is in %s: %.200s", k, text)
			}
		}

		if ret.Str("cwd") != "/" || !ret.Bool("isolated") && ret.Value("isolated") != int64(1) {
			t.Errorf("it ran in %s, isolated %v", ret.Str("cwd"), ret.Value("isolated"))
		}
	})

	evil := r.AcceptedMinion("evil", "min8")
	ask := func(fun string, arg ...any) any {
		t.Helper()
		return evil.Ask("minion_runner", "fun", fun, "arg", arg)
	}

	t.Run("a minion", func(t *testing.T) {
		m, _ := ask("odd.say", "--out-file="+out).(*value.Map)
		if m.Str("said") != "--out-file="+out {
			t.Errorf("answer %v", m)
		}

		for _, fun := range []string{"odd.sayx", "odd.types", "manage.upx", "manage.upgrade"} {
			if m, ok := ask(fun, "--config-dir", r.Dir).(*value.Map); !ok || m.Len() != 0 {
				t.Errorf("%s is permitted: %v", fun, m)
			}
		}
	})
}

func TestFinding04UnknownFunctions(t *testing.T) {
	starts := filepath.Join(t.TempDir(), "starts")
	wrapped := filepath.Join(t.TempDir(), "python3")
	check.Must(t, os.WriteFile(wrapped, []byte("#!/bin/sh\necho x >> "+starts+"\nexec "+mastertest.SaltPython(t)+" \"$@\"\n"), 0o755))
	r := startOddBy(t, wrapped, "peer_run:\n  evil: ['odd.*', 'manage.*']\n")
	evil := r.AcceptedMinion("evil", "min8")
	for _, fun := range []string{"odd.no", "odd.nono", "manage.upx", "manage.upx"} {
		if v := evil.Ask("minion_runner", "fun", fun, "arg", []any{}); v != "'"+fun+"' is not available." {
			t.Errorf("%s: %v", fun, v)
		}
	}

	b, _ := os.ReadFile(starts)
	if n := strings.Count(string(b), "x"); n != 1 {
		t.Errorf("%d Pythons for functions that do not exist", n)
	}

	// A function that is added is found.
	dir := r.Parts.Options.Raw.List("runner_dirs")[0].(string)
	check.Must(t, os.WriteFile(filepath.Join(dir, "later.py"), []byte("def now():\n    return 5\n"), 0o644))
	if v, err := r.Parts.Runs.Call(t.Context(), "later.now", nil, nil); err != nil || v != int64(5) {
		t.Errorf("a function that was added: %v %v", v, err)
	}
}

// Results have the types that Salt's own master gives; what fails is told.
func TestPythonRunners(t *testing.T) {
	r := startOdd(t, "")
	call := func(fun string, args ...any) (any, error) {
		return r.Parts.Runs.Call(t.Context(), fun, args, nil)
	}
	v, err := call("odd.values")
	check.Must(t, err)
	want := value.NewMap(int64(1), []any{int64(1), int64(2)}, "set", []any{int64(7)}, "none", nil, "bytes",
		[]byte{0xff, 0}, "float", 1.0, "big", uint64(1<<63), "text", "ä")
	if fmt.Sprintf("%#v", mastertest.PlainMap(v.(*value.Map))) != fmt.Sprintf("%#v", mastertest.PlainMap(want)) {
		t.Errorf("%#v", mastertest.PlainMap(v.(*value.Map)))
	}

	given := []any{nil, true, int64(-5), "5", 1.5, []byte{0xfe}, []any{"x"}, value.NewMap(int64(3), "y")}
	v, err = call("odd.types", given...)
	check.Must(t, err)
	got := v.(*value.Map).List("args")
	if len(got) != len(given) || fmt.Sprintf("%#v", got[:7]) != fmt.Sprintf("%#v", given[:7]) ||
		fmt.Sprint(mastertest.PlainMap(got[7].(*value.Map))) != "map[3:y]" {
		t.Errorf("arguments arrived as %#v", got)
	}

	for fun, part := range map[string]string{
		"odd.fail": "ValueError: as asked",
		"odd.quit": "SystemExit: 4",
		"odd.say":  "Passed invalid arguments: say() missing",
	} {
		v, err := call(fun)
		result, success := runner.Outcome("runner", fun, v, err)
		if !strings.Contains(fmt.Sprint(result), part) || success != (fun == "odd.say") {
			t.Errorf("%s: %v, success %v", fun, result, success)
		}
	}

	var unknown *runner.UnknownError
	if _, err := call("odd.nosuch"); !errors.As(err, &unknown) {
		t.Errorf("odd.nosuch: %v", err)
	}
}

// A built-in runner that lacks a part of the master is left to Python, as one
// that is not built in; so is an orchestration. What it tells of its steps has its job
// id, and the runner that it calls the name of who called it.
func TestRunnersLeftToPython(t *testing.T) {
	script := filepath.Join(t.TempDir(), "salt-run")
	check.Must(t, os.WriteFile(script, []byte("#!"+mastertest.SaltPython(t)+"\n"), 0o755))
	r := mastertest.Start(t, "saltern_salt_run: "+script+"\n")
	check.Must(t, os.MkdirAll(r.Path("roots"), 0o755))
	check.Must(t,
		os.WriteFile(r.Path("roots", "orch.sls"),
			[]byte("say:\n  test.succeed_without_changes: []\nask:\n  salt.runner: [{name: test.arg}]\n"),
			0o644))

	v, err := r.Parts.Runs.Call(t.Context(), "pillar.show_top", nil, value.NewMap("minion", "web1"))
	if m, ok := v.(*value.Map); err != nil || !ok || m.Len() != 0 {
		t.Errorf("pillar.show_top: %v %v", v, err)
	}

	r.ListenToBus()
	run := r.Parts.Runs.Announce("state.orchestrate", runner.Caller{User: "bob"}, []any{"orch"}, nil)
	data := run.Do(t.Context(), func(err error) { t.Error(err) })
	seen := r.NewEvents()
	if jobs := jobsOf(seen, "runner.state.orchestrate"); len(jobs) != 1 ||
		fmt.Sprint(jobs[0].ends) != "[new args ret]" || jobs[0].tag != run.Tag {
		t.Errorf("jobs of the orchestration: %+v", jobs)
	}

	if jobs := jobsOf(seen, "runner.test.arg"); len(jobs) != 1 || jobs[0].data["ret"].Str("user") != "bob" {
		t.Errorf("jobs of the runner that it calls: %+v", jobs)
	}

	ret := data.Map("return")
	states := ret.Map("data").Map(ret.Map("data").Keys()[0])
	if ret.Str("outputter") != "highstate" || ret.Value("retcode") != int64(0) || states.Len() != 2 ||
		!states.Map(states.Keys()[0]).Bool("result") {
		t.Errorf("state.orchestrate: %v", mastertest.PlainMap(ret))
	}
}
