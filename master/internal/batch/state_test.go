package batch

import (
	"slices"
	"testing"
	"time"
)

func at(s int) time.Time { return time.Unix(int64(s)/10, int64(s)%10*1e8) }

func TestState(t *testing.T) {
	ids := []string{"a", "b", "c", "d"}
	next := func(b *State, now int, want ...string) time.Time {
		t.Helper()
		got, wake := b.Next(at(now))
		if !slices.Equal(got, want) {
			t.Fatalf("at %d: got %v, want %v", now, got, want)
		}
		return wake
	}

	t.Run("slots", func(t *testing.T) {
		b := New(ids, 2)
		next(b, 0, "a", "b")
		next(b, 1)
		b.Returned("b", false, at(2))
		next(b, 2, "c")
		b.Returned("b", false, at(2)) // twice
		next(b, 2)
		b.TimedOut("a", at(3))
		b.Returned("c", true, at(3))
		next(b, 3, "d")

		if b.Over() {
			t.Fatal("over too early")
		}

		b.Returned("d", false, at(4))
		if !b.Over() || b.Failed["a"] != "timeout" || len(b.Done) != 3 {
			t.Errorf("end: %+v", b)
		}
	})

	t.Run("wait", func(t *testing.T) {
		b := New(ids, 2)
		b.Wait = time.Second
		next(b, 0, "a", "b")
		b.Returned("a", false, at(5))

		if wake := next(b, 5); wake != at(15) {
			t.Errorf("wake %v", wake)
		}

		next(b, 14)
		next(b, 15, "c")
	})

	t.Run("failhard", func(t *testing.T) {
		b := New(ids, 1)
		b.Failhard = true
		next(b, 0, "a")
		b.Returned("a", false, at(1))
		next(b, 1, "b")
		b.Returned("b", true, at(2))
		next(b, 2)

		if !b.Over() || b.Halted != "failhard" {
			t.Errorf("not halted: %+v", b)
		}
	})
}
