package functions

import (
	"errors"
	"strings"
	"testing"

	"saltern/master/internal/mastertest"
	"saltern/master/internal/reactor"
	"saltern/master/runner"
	"saltern/master/value"
	"saltern/test/await"
)

// answersOf fires a question to the reactor and returns what it answers.
func answersOf(r *mastertest.Master, what string, data *value.Map) []*value.Map {
	var out []*value.Map
	// The runner's own name space is in front, as with Salt's salt-run.
	r.Parts.Fire("salt/run/20260102030405678901/"+reactor.ManageSpace+"/"+what, data)
	await.That(r.T, "the reactor to take the question", func() bool {
		for _, e := range r.NewEvents() {
			if strings.HasPrefix(e.Tag, reactor.ManageSpace+"/") {
				out = append(out, e.Data)
			}
		}
		return len(out) > 0 || strings.Contains(r.Log.String(), "discarding")
	})
	return out
}

func TestReactorIsManaged(t *testing.T) {
	r := mastertest.Start(t, "reactor:\n  - 'a/*': /nowhere/a.sls\n")
	r.ListenToBus()
	ask := func(what string, more ...any) *value.Map {
		t.Helper()
		got := answersOf(r, what, value.NewMap(append([]any{"key", r.Key}, more...)...))
		if len(got) != 1 {
			t.Fatalf("%s: %d answers", what, len(got))
		}
		return got[0]
	}

	if got := ask("list"); len(got.List("reactors")) != 1 {
		t.Errorf("list: %v", got)
	}

	if got := ask("add", "event", "b/*", "reactors", []any{"/nowhere/b.sls"}); !got.Map("result").Bool("status") || len(got.List("reactors")) != 2 {
		t.Errorf("add: %v", got)
	}

	reacts := func(file string) func() bool {
		return func() bool { return strings.Contains(r.Log.String(), file) }
	}
	r.Parts.Fire("b/1", value.NewMap())
	await.That(t, "the new rule to react", reacts("/nowhere/b.sls"))

	if got := ask("delete", "event", "b/*"); !got.Map("result").Bool("status") || len(got.List("reactors")) != 1 {
		t.Errorf("delete: %v", got)
	}

	if got := ask("set_leader", "id", "another", "value", false); !got.Bool("result") {
		t.Error("another master's id stops this reactor")
	}

	if got := ask("set_leader", "id", "m1", "value", false); got.Bool("result") {
		t.Error("set_leader False has no effect")
	}

	r.Parts.Fire("a/1", value.NewMap())
	if got := ask("is_leader"); got.Bool("result") || reacts("/nowhere/a.sls")() {
		t.Error("a reactor that is not the leader reacts")
	}

	ask("set_leader", "id", "m1", "value", true)
	r.Parts.Fire("a/1", value.NewMap())
	await.That(t, "the reactor to react again", reacts("/nowhere/a.sls"))
}

// TestReactorRunners: the runners reactor.* answer as Salt's and fire no event with a key, nor
// any other about the reactor (second audit, 3).
func TestReactorRunners(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, "reactor:\n  - 'a/*': /nowhere/a.sls\n")
	r.ListenToBus()
	for _, c := range []struct {
		fun  string
		args []any
		want string
	}{
		{"reactor.list", nil, `[{"a/*": ["/nowhere/a.sls"]}]`},
		{"reactor.add", []any{"b/*", "/nowhere/b.sls"}, `{"status": true, "comment": "Reactor added."}`},
		{"reactor.add", []any{"b/*", []any{"/nowhere/c.sls"}},
			`{"status": false, "comment": "Reactor already exists."}`},
		{"reactor.delete", []any{"a/*"}, `{"status": true, "comment": "Reactor deleted."}`},
		{"reactor.delete", []any{"a/*"}, `{"status": false, "comment": "Reactor does not exists."}`},
		{"reactor.list", nil, `[{"b/*": ["/nowhere/b.sls"]}]`},
		{"reactor.is_leader", nil, `true`},
		{"reactor.set_leader", []any{false}, `false`},
		{"reactor.is_leader", nil, `false`},
		{"reactor.set_leader", nil, `true`},
	} {
		got, err := r.Parts.Runs.Call(await.Context(t), c.fun, c.args, nil)
		if text := runner.JSON(got, false); err != nil || text != c.want {
			t.Errorf("%s %v: %s, %v", c.fun, c.args, text, err)
		}
	}

	var usage *runner.ArgumentError
	if _, err := r.Parts.Runs.Call(await.Context(t), "reactor.add", []any{"x"}, nil); !errors.As(err, &usage) ||
		usage.Usage == "" {
		t.Errorf("without files: %v", err)
	}

	r.Parts.Fire("b/1", value.NewMap())
	await.That(t, "the new rule to react", func() bool { return strings.Contains(r.Log.String(), "/nowhere/b.sls") })
	for _, e := range r.NewEvents() {
		if strings.Contains(e.Tag, "reactor") {
			t.Errorf("event %s: %v", e.Tag, mastertest.PlainMap(e.Data))
		}
	}
}

// The reactor's rules lead to any command on any minion: who changes them
// must know the master's own key.
func TestAttack02ReactorIsManagedByTheKeyOnly(t *testing.T) {
	for name, key := range map[string]any{"none": nil, "empty": "", "wrong": "x", "not text": int64(1)} {
		r := mastertest.Start(t, "")
		r.ListenToBus()
		if got := answersOf(r, "add",
			value.NewMap("key", key, "event", "*", "reactors", []any{"/tmp/evil.sls"})); len(got) > 0 {
			t.Errorf("key %s: answer %v", name, got)
		}
		if n := len(r.Parts.Reactions.All()); n != 0 {
			t.Errorf("key %s: %d rules", name, n)
		}
		r.Stop()
	}
}
