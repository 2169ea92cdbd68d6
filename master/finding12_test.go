package master

import (
	"context"
	"fmt"
	"testing"
	"time"

	"saltern/master/msgpack"
)

// TestFinding12Allowance: a minion that has much work done is refused until it
// has waited, and honest ones are not.
func TestFinding12Allowance(t *testing.T) {
	now := time.Date(2026, 11, 23, 1, 0, 0, 0, time.UTC)
	a := newAllowance()
	for i := range 5000 { // a highstate in which each asks for the mine of all, 50 times
		id := fmt.Sprint("web", i)
		for range 50 {
			if !a.has(id, now) {
				t.Fatal("an honest minion is refused")
			}
			a.charge(id, 10_000, now)
		}
	}
	a.charge("evil", 2*allowanceBurst, now)
	wait := allowanceBurst / allowanceRate * time.Second
	if a.has("evil", now.Add(wait-time.Second)) || !a.has("evil", now.Add(wait+time.Second)) || !a.has("web1", now) {
		t.Error("a debt is not held against the one that made it, or for ever")
	}
	a.charge("late", 1, now.Add(time.Hour))
	if len(a.of) > 1 {
		t.Errorf("%d minions without a debt are remembered", len(a.of))
	}
}

// TestFinding12Mine: many long queries of one minion cost little, are refused
// after a while, and do not hold up another.
func TestFinding12Mine(t *testing.T) {
	t.Parallel()
	r := startMaster(t, "peer:\n  .*: [test.ping]\npeer_run:\n  .*: [manage.up]\n")
	evil, web := r.accepted("evil", "min8"), r.accepted("web1", "min7")
	web.ask("_mine", "data", msgpack.NewMap("ip", "10.0.0.1"))
	get := func(n *minion) string {
		m, _ := n.ask("_mine_get", "tgt", "web1", "fun", "ip").(*msgpack.Map)
		return m.Str("web1")
	}
	names := make([]any, 100_000)
	for i := range names {
		names[i] = fmt.Sprintf("x%d", i)
	}
	names[0] = "web1"
	for i := 0; r.m.count.overdrawn.Load() == 0; i++ {
		if i > 60 {
			t.Fatal("never refused")
		}
		evil.ask("_mine_get", "tgt", names, "tgt_type", "list", "fun", "ip")
	}
	if v := get(evil); v != "" {
		t.Errorf("answered with %q in spite of the debt", v)
	}
	for cmd, fields := range map[string][]any{"minion_pub": {"fun", "test.ping", "arg", []any{}, "tgt", "*", "ret", ""}, "minion_runner": {"fun", "manage.up", "arg", []any{}}} {
		if m, _ := evil.ask(cmd, fields...).(*msgpack.Map); m.Len() > 0 {
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
	if m, _ := web.ask("_mine_get", "tgt", "*", "fun", append(funs, "ip")).(*msgpack.Map); m.Len() > 0 {
		t.Errorf("102 functions at once: %v", m)
	}
}

// TestFinding12Leaves: the work for a request ends when its connection does.
func TestFinding12Leaves(t *testing.T) {
	conn, hangUp := context.WithCancel(t.Context())
	ctx := asked(conn)
	work, stop := whileAsked(ctx)
	defer stop()
	hangUp()
	<-work.Done()
	if ctx.Err() != nil {
		t.Error("what was asked is not finished")
	}
}
