package auth

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1, 2, time.Second)
		leave, err := g.waitSlot(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		results := make(chan error, 2)
		wait := func(ctx context.Context) {
			leave, err := g.waitSlot(ctx)
			results <- err
			if err == nil {
				leave()
			}
		}

		ctx, cancel := context.WithCancel(t.Context())
		go wait(ctx)
		go wait(t.Context())
		synctest.Wait()

		if _, err := g.waitSlot(t.Context()); !errors.Is(err, errBusy) {
			t.Errorf("third in a queue of two: %v", err)
		}

		cancel()
		if err := <-results; !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}

		start := time.Now()
		if err := <-results; !errors.Is(err, errBusy) || time.Since(start) != time.Second {
			t.Errorf("waited %v: %v", time.Since(start), err)
		}

		go wait(t.Context())
		synctest.Wait()
		leave()
		if err := <-results; err != nil {
			t.Errorf("after the first has left: %v", err)
		}

		if n := g.waiting.Load(); n != 0 || g.turnedAway.Load() != 3 {
			t.Errorf("%d waiting, %d turned away", n, g.turnedAway.Load())
		}
	})
}
