package client

import (
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/master/msgpack"
)

func TestBatchSize(t *testing.T) {
	for _, c := range []struct {
		spec string
		n    int
		want int
	}{
		{"1", 10, 1}, {"3", 10, 3}, {" 4 ", 10, 4}, {"0", 10, 1}, {"-5", 10, 1}, {"25%", 8, 2}, {"10%", 3, 1}, {"50%", 3, 1},
		{"%10", 30, 3}, {"100%", 7, 7}, {"0%", 7, 1}, {"33.4%", 9, 3}, {"1000%", 2, 20}, {"5%", 0, 1},
	} {
		got, err := BatchSize(c.spec, c.n)
		if err != nil || got != c.want {
			t.Errorf("%q of %d: got %d, %v, want %d", c.spec, c.n, got, err, c.want)
		}
	}
	for _, bad := range []string{"", "x", "10x", "x%", "1.5", "%", "nan%", "inf%"} {
		if n, err := BatchSize(bad, 5); err == nil {
			t.Errorf("%q: got %d, want an error", bad, n)
		} else if !strings.Contains(err.Error(), "must be an integer or percentage string") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestBatchState(t *testing.T) {
	ids := []string{"a", "b", "c", "d"}
	next := func(b *batchState, now int, want ...string) time.Time {
		t.Helper()
		got, wake := b.next(at(now))
		if !slices.Equal(got, want) {
			t.Fatalf("at %d: got %v, want %v", now, got, want)
		}
		return wake
	}
	t.Run("slots", func(t *testing.T) {
		b := newBatchState("1", ids, 2)
		next(b, 0, "a", "b")
		next(b, 1)
		b.returned("b", false, at(2))
		next(b, 2, "c")
		b.returned("b", false, at(2)) // twice
		next(b, 2)
		b.timedOut("a", at(3))
		b.returned("c", true, at(3))
		next(b, 3, "d")
		if b.over() {
			t.Fatal("over too early")
		}
		b.returned("d", false, at(4))
		if !b.over() || b.failed["a"] != "timeout" || len(b.done) != 3 {
			t.Errorf("end: %+v", b)
		}
	})
	t.Run("wait", func(t *testing.T) {
		b := newBatchState("1", ids, 2)
		b.wait = time.Second
		next(b, 0, "a", "b")
		b.returned("a", false, at(5))
		if wake := next(b, 5); wake != at(15) {
			t.Errorf("wake %v", wake)
		}
		next(b, 14)
		next(b, 15, "c")
	})
	t.Run("failhard", func(t *testing.T) {
		b := newBatchState("1", ids, 1)
		b.failhard = true
		next(b, 0, "a")
		b.returned("a", false, at(1))
		next(b, 1, "b")
		b.returned("b", true, at(2))
		next(b, 2)
		if !b.over() || b.halted != "failhard" {
			t.Errorf("not halted: %+v", b)
		}
	})
	t.Run("payload", func(t *testing.T) {
		b := newBatchState("1", ids, 1)
		next(b, 0, "a")
		p := b.payload(BatchRequest{Request: Request{Target: "*", TargetType: "glob", Fun: "test.ping", Arg: []any{}}}, "root", at(0), at(1))
		if _, err := msgpack.Marshal(p, msgpack.Modern); err != nil {
			t.Error(err)
		}
		if p.Map("state").Str("driver") != "cli" {
			t.Error("no driver")
		}
	})
}
