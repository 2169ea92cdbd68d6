package fleet

import (
	"errors"
	"math/big"
	"slices"
	"strings"
	"testing"

	"saltern/master/runner"
	"saltern/master/value"
)

// call calls a runner with named arguments.
func (b *bench) call(minions accepted, name string, kv ...any) (*value.Map, error) {
	b.Helper()
	table := runner.New()
	AddRunners(table, NewFleet(b.recorder, minions, nil, b.clock))
	v, err := table.Call(b.Context(), &runner.Env{}, name, nil, value.NewMap(kv...))
	m, _ := v.(*value.Map)
	return m, err
}

func (b *bench) mustCall(minions accepted, name string, kv ...any) *value.Map {
	b.Helper()
	m, err := b.call(minions, name, kv...)
	if err != nil {
		b.Fatal(err)
	}
	return m
}

// busyBench has runs of three minions with planted failures and drift.
func busyBench(t *testing.T) (*bench, accepted) {
	b := newBench(t)
	b.highstate("web1", "r1", "a=ok", "b=ok")
	b.highstate("web2", "r1", "a=failed", "b=ok")
	b.highstate("web1", "r1", "a=changed", "b=ok")
	b.add(b.archived("web1", "test.ping", "", true))
	return b, accepted{"db1", "web1", "web2"}
}

func TestRunnerLast(t *testing.T) {
	b, minions := busyBench(t)
	all := b.mustCall(minions, "fleet.last")
	got := all.Map("minions")
	if keys := got.Keys(); strings.Join(keys, " ") != "db1 web1 web2" || all.Str("next") != "" {
		t.Errorf("minions %q, next %q", keys, all.Str("next"))
	}
	web1 := got.Map("web1")
	if web1.Str("result") != "changed" || web1.Str("function") != "state.apply" || web1.Str("answered_function") != "test.ping" {
		t.Errorf("web1: %s", value.Repr(web1))
	}
	state := web1.List("changed_states")[0].(*value.Map)
	if state.Str("cause") != "drift" || state.Str("changes") != "-old a\n+new a" {
		t.Errorf("state: %s", value.Repr(state))
	}
	if got.Map("db1").Str("result") != "never" {
		t.Errorf("db1: %s", value.Repr(got.Map("db1")))
	}

	first := b.mustCall(minions, "fleet.last", "limit", 2)
	rest := b.mustCall(minions, "fleet.last", "limit", 2, "after", first.Str("next"))
	if strings.Join(append(first.Map("minions").Keys(), rest.Map("minions").Keys()...), " ") != "db1 web1 web2" {
		t.Errorf("two pages: %s, %s", value.Repr(first), value.Repr(rest))
	}
	failed := b.mustCall(minions, "fleet.last", "minion", "web*", "result", "failed,error").Map("minions")
	if strings.Join(failed.Keys(), " ") != "web2" {
		t.Errorf("failed: %q", failed.Keys())
	}
}

// TestAnswersWhileRunsAreMissing: no answer looks whole while the history is still to take runs.
func TestAnswersWhileRunsAreMissing(t *testing.T) {
	b, minions := busyBench(t)
	for name, fn := range functions {
		for _, missing := range []int{1, -1} {
			b.recorder.AddMissing(missing)
			args := []any{}
			if strings.HasPrefix(fn.names, "text ") {
				args = []any{"text", "web"}
			}
			if got := b.mustCall(minions, name, args...).Bool("partial"); got != (missing > 0) {
				t.Errorf("%s says partial: %v", name, got)
			}
		}
	}
}

func TestRunnerRuns(t *testing.T) {
	b, minions := busyBench(t)
	page := b.mustCall(minions, "fleet.runs", "minion", "web1", "limit", 2)
	next := b.mustCall(minions, "fleet.runs", "minion", "web1", "limit", 2, "page", page.Str("next"))
	if len(page.List("runs")) != 2 || len(next.List("runs")) != 1 || next.Str("next") != "" {
		t.Fatalf("pages: %s, %s", value.Repr(page), value.Repr(next))
	}
	if run := next.List("runs")[0].(*value.Map); run.Str("user") != "alice" || run.Str("result") != "ok" || run.Value("ok") != int64(2) {
		t.Errorf("run: %s", value.Repr(run))
	}
	if failed := b.mustCall(minions, "fleet.runs", "result", "failed").List("runs"); len(failed) != 1 {
		t.Errorf("failed: %s", value.Repr(failed))
	}
}

func TestRunnerDriftAndSearch(t *testing.T) {
	b, minions := busyBench(t)
	drift := b.mustCall(minions, "fleet.drift").List("drift")
	if len(drift) != 1 {
		t.Fatalf("drift: %s", value.Repr(drift))
	}
	d := drift[0].(*value.Map)
	if d.Str("minion") != "web1" || d.Str("id") != "a" || d.Str("changes") != "-old a\n+new a" || d.Value("corrected") != true {
		t.Errorf("drift: %s", value.Repr(d))
	}
	if got := b.mustCall(minions, "fleet.drift", "state", "b").List("drift"); len(got) != 0 {
		t.Errorf("drift of another state: %s", value.Repr(got))
	}

	for text, want := range map[string]int{"NEW A": 1, "comment of a": 2, "web1": 3, "nothing of it": 0} {
		if got := b.mustCall(minions, "fleet.search", "text", text).List("runs"); len(got) != want {
			t.Errorf("search %q: %d runs, want %d", text, len(got), want)
		}
	}
}

func TestRunnerSummary(t *testing.T) {
	b, minions := busyBench(t)
	s := b.mustCall(minions, "fleet.summary", "since", "2h")
	want := "{'minions': 3, 'last_run': {'ok': 0, 'changed': 1, 'would_change': 0, 'failed': 1, 'error': 0, 'never': 1}, " +
		"'silent': 1, 'failed': ['web2'], 'drifted': ['web1'], 'since': '2026-11-29T10:04:00Z', 'runs': 4, " +
		"'states': {'ok': 4, 'changed': 1, 'would_change': 0, 'failed': 1}, 'worst_states': [{'state': 'file.managed a', " +
		"'failures': 1, 'minions': 1, 'comment': 'comment of a'}], 'partial': False}"
	if got := value.Repr(s); got != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
}

func TestRunnersRefuseWrongArguments(t *testing.T) {
	b := newBench(t)
	for _, tt := range []struct {
		name string
		kv   []any
	}{
		{"fleet.summary", []any{"since", "yesterday-ish"}},
		{"fleet.summary", []any{"limit", 1}},
		{"fleet.last", []any{"limit", 0}},
		{"fleet.last", []any{"result", "green"}},
		{"fleet.runs", []any{"limit", 1_000_000}},
		{"fleet.runs", []any{"page", "!"}},
		{"fleet.runs", []any{"minion", strings.Repeat("x", 1000)}},
		{"fleet.drift", []any{"until", "x"}},
		{"fleet.search", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := b.call(nil, tt.name, tt.kv...)
			if _, ok := errors.AsType[*runner.ArgumentError](err); !ok {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestNumbersAreNoNames: a name of which YAML has made a number is not another one's name. A job id may be a
// whole number.
func TestNumbersAreNoNames(t *testing.T) {
	b, minions := busyBench(t)
	for name, fn := range functions {
		for _, field := range []string{"minion", "function", "user", "state", "after", "jid", "text"} {
			for _, v := range []any{1.1, true, int64(123), []any{"web1"}} {
				if !slices.Contains(strings.Fields(fn.names), field) || slices.Contains([]string{"jid", "text"}, field) && v != 1.1 {
					continue
				}
				if _, err := b.call(minions, name, field, v); err == nil || !strings.Contains(err.Error(), "quotes") {
					t.Errorf("%s %s=%v: %v", name, field, v, err)
				}
			}
		}
	}
	jid, _ := new(big.Int).SetString("20261125000000000001", 10)
	if _, err := b.call(minions, "fleet.runs", "jid", jid, "limit", int64(5)); err != nil {
		t.Error(err)
	}
}

func TestRunnersWithoutHistory(t *testing.T) {
	table := runner.New()
	AddRunners(table, nil)
	for name := range functions {
		if _, err := table.Call(t.Context(), &runner.Env{}, name, nil, nil); !errors.Is(err, errNoHistory) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
