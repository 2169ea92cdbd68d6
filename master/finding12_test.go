package master

import (
	"fmt"
	"testing"
	"time"

	"saltern/master/value"
)

// TestFinding12Mine: many long queries of one minion cost little, are refused
// after a while, and do not hold up another.
func TestFinding12Mine(t *testing.T) {
	t.Parallel()
	began := time.Now() // and no debt is paid back
	r := startMasterAt(t, func() time.Time { return began }, "peer:\n  .*: [test.ping]\npeer_run:\n  .*: [manage.up]\n")
	evil, web := r.accepted("evil", "min8"), r.accepted("web1", "min7")
	web.ask("_mine", "data", value.NewMap("ip", "10.0.0.1"))
	get := func(n *scriptedMinion) string {
		m, _ := n.ask("_mine_get", "tgt", "web1", "fun", "ip").(*value.Map)
		return m.Str("web1")
	}
	names := make([]any, 100_000)
	for i := range names {
		names[i] = fmt.Sprintf("x%d", i)
	}
	names[0] = "web1"
	for i := 0; r.m.minions.Stats().Overdrawn == 0; i++ {
		if i > 60 {
			t.Fatal("never refused")
		}
		evil.ask("_mine_get", "tgt", names, "tgt_type", "list", "fun", "ip")
	}
	if v := get(evil); v != "" {
		t.Errorf("answered with %q in spite of the debt", v)
	}
	for cmd, fields := range map[string][]any{"minion_pub": {"fun", "test.ping", "arg", []any{}, "tgt", "*", "ret", ""}, "minion_runner": {"fun", "manage.up", "arg", []any{}}} {
		if m, _ := evil.ask(cmd, fields...).(*value.Map); m.Len() > 0 {
			t.Errorf("%s: %v", cmd, m)
		}
	}
	if v := get(web); v != "10.0.0.1" {
		t.Errorf("another minion gets %q", v)
	}
	funs := []any{}
	for i := range 101 {
		funs = append(funs, fmt.Sprint("f", i))
	}
	if m, _ := web.ask("_mine_get", "tgt", "*", "fun", append(funs, "ip")).(*value.Map); m.Len() > 0 {
		t.Errorf("102 functions at once: %v", m)
	}
}
