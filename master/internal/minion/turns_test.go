package minion

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"saltern/master/internal/request"
)

// TestFinding12Turns: a minion has few costly requests at work, another one is not
// kept waiting by them, further ones wait for their turn as long as they have to, and
// nothing of it is left.
func TestFinding12Turns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ts turns
		evil, web1 := &request.Call{ID: "evil"}, &request.Call{ID: "web1"}
		var leave []func()
		for range minionTurns {
			l, err := ts.waitTurn(t.Context(), evil)
			if err != nil {
				t.Fatal(err)
			}
			leave = append(leave, l)
		}

		gone, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := ts.waitTurn(request.Asked(gone), evil); !errors.Is(err, request.ErrLeft) {
			t.Errorf("who has left: %v", err)
		}

		l, err := ts.waitTurn(t.Context(), web1)
		if err != nil {
			t.Errorf("another minion waits: %v", err)
		}

		l()

		results := make(chan error, minionWaits)
		for range minionWaits {
			go func() {
				l, err := ts.waitTurn(t.Context(), evil)
				if err == nil {
					time.Sleep(time.Hour) // however long those before it take
					l()
				}
				results <- err
			}()
		}

		synctest.Wait()
		if _, err := ts.waitTurn(t.Context(), evil); !errors.Is(err, request.ErrSilence) ||
			errors.Is(err, request.ErrLeft) {
			t.Errorf("one more than may wait: %v", err)
		}

		for _, l := range leave {
			l()
		}

		for range minionWaits {
			if err := <-results; err != nil {
				t.Errorf("one that waits: %v", err)
			}
		}

		if len(ts.byMinion) > 0 {
			t.Errorf("%d minions are left", len(ts.byMinion))
		}
	})
}
