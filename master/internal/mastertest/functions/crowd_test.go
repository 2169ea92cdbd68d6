package functions

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"saltern/master/internal/mastertest"
	"saltern/master/value"
	"saltern/test/check"
)

// TestManyMinionsCallOneRunner: each of many minions that call a runner in Python at one moment gets its own
// answer.
func TestManyMinionsCallOneRunner(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, "saltern_renderer_python: "+mastertest.SaltPython(t)+"\nextension_modules: %DIR%/ext\n"+
		"peer_run: {'.*': ['who.*']}\n")
	check.Must(t, os.MkdirAll(r.Path("ext/runners"), 0o755))
	check.Must(t, os.WriteFile(r.Path("ext/runners/who.py"), []byte(who), 0o644))

	const many = 10 // by hand 200: they take longer than a test's minion waits
	minions := make([]*mastertest.Minion, many)
	for i := range minions {
		minions[i] = r.AcceptedMinion(fmt.Sprint("web", i), "min6")
	}

	var asking sync.WaitGroup
	answers := make([]any, many)
	for i, n := range minions {
		asking.Go(func() { answers[i] = n.Ask("minion_runner", "fun", "who.am_i", "arg", []any{i}, "tmo", 120) })
	}
	asking.Wait()

	for i, answer := range answers {
		got, _ := answer.(*value.Map)
		if fmt.Sprint(got.List("args")) != fmt.Sprint([]any{i}) || got.Str("id") != fmt.Sprint("web", i) {
			t.Errorf("minion %d got %v", i, value.Repr(answer))
		}
	}
	if s := r.Parts.Python.Stats(); s.Starts != 1 || s.Lost != 0 {
		t.Errorf("%+v", s)
	}
}
