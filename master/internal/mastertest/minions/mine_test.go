package minions

import (
	"fmt"
	"testing"
	"time"

	"saltern/master/internal/mastertest"
	"saltern/master/value"
)

// TestFinding12Mine: many long queries of one minion cost little, are left unanswered
// after a while, so that nobody takes an empty mine for the truth, and do not hold up
// another.
func TestFinding12Mine(t *testing.T) {
	t.Parallel()
	began := time.Now() // and no debt is paid back
	r := mastertest.StartWithClock(t, func() time.Time { return began }, "peer:\n  .*: [test.ping]\npeer_run:\n  .*: [manage.up]\n")
	evil, web := r.AcceptedMinion("evil", "min8"), r.AcceptedMinion("web1", "min7")
	web.Ask("_mine", "data", value.NewMap("ip", "10.0.0.1"))
	get := func(n *mastertest.Minion) string {
		m, _ := n.Ask("_mine_get", "tgt", "web1", "fun", "ip").(*value.Map)
		return m.Str("web1")
	}

	names := make([]any, 100_000)
	for i := range names {
		names[i] = fmt.Sprintf("x%d", i)
	}

	names[0] = "web1"
	for i := 0; r.Parts.Minions.Stats().Overdrawn == 0; i++ {
		if i > 60 {
			t.Fatal("never refused")
		}
		_, _ = evil.Send(evil.Payload(evil.Load("_mine_get", "tgt", names, "tgt_type", "list", "fun", "ip")))
	}

	for cmd, fields := range map[string][]any{
		"_mine_get":     {"tgt", "web1", "fun", "ip"},
		"minion_pub":    {"fun", "test.ping", "arg", []any{}, "tgt", "*", "ret", ""},
		"minion_runner": {"fun", "manage.up", "arg", []any{}},
	} {
		if !evil.Unanswered(cmd, fields...) {
			t.Errorf("%s is answered in spite of the debt", cmd)
		}
	}

	if v := get(web); v != "10.0.0.1" {
		t.Errorf("another minion gets %q", v)
	}

	funs := []any{}
	for i := range 101 {
		funs = append(funs, fmt.Sprint("f", i))
	}

	if !web.Unanswered("_mine_get", "tgt", "*", "fun", append(funs, "ip")) {
		t.Error("102 functions at once are answered")
	}
}
