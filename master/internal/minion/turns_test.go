package minion

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"saltern/master/internal/request"
)

// TestFinding12Turns: a minion has few costly requests at work, another one is not
// kept waiting by them, and nothing of it is left.
func TestFinding12Turns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ts turns
		var leave []func()
		for range minionTurns {
			l, ok := ts.enter(t.Context(), "evil")
			if !ok {
				t.Fatal("no turn")
			}
			leave = append(leave, l)
		}
		start := time.Now()
		if _, ok := ts.enter(t.Context(), "evil"); ok || time.Since(start) != turnWait {
			t.Errorf("one more: %v after %s", ok, time.Since(start))
		}
		gone, cancel := context.WithCancel(context.Background())
		cancel()
		if _, ok := ts.enter(request.Asked(gone), "evil"); ok {
			t.Error("a turn for who has left")
		}
		l, ok := ts.enter(t.Context(), "web1")
		if !ok {
			t.Error("another minion waits")
		}
		l()
		done := make(chan bool)
		go func() { l, ok := ts.enter(t.Context(), "evil"); l(); done <- ok }()
		synctest.Wait()
		for _, l := range leave {
			l()
		}
		if !<-done {
			t.Error("the next did not get the turn")
		}
		if len(ts.of) > 0 {
			t.Errorf("%d minions are left", len(ts.of))
		}
	})
}
