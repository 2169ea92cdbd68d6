package writable

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestWatchHangs: a try that hangs is told of in time, no second one is begun beside it, and
// the program can end meanwhile.
func TestWatchHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &Watch{Every: 3 * time.Second, Takes: 4 * time.Second}
		hangs, under, tries := make(chan struct{}), atomic.Int32{}, atomic.Int32{}
		w.Try = func() error {
			if under.Add(1) > 1 {
				t.Error("two at once")
			}
			defer under.Add(-1)
			if tries.Add(1) == 2 {
				<-hangs
			}
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			w.Run(ctx)
		}()

		time.Sleep(w.Every + w.Takes - time.Second)
		if err := w.Err(); err != nil {
			t.Errorf("too early: %v", err)
		}
		time.Sleep(2 * time.Second)
		if err := w.Err(); !errors.Is(err, ErrHangs) {
			t.Errorf("too late: %v", err)
		}
		time.Sleep(time.Minute)
		if err := w.Err(); !strings.Contains(err.Error(), "a file of 4 KiB was not written in 6") {
			t.Error(err)
		}

		hangs <- struct{}{}
		synctest.Wait()
		if err := w.Err(); err != nil {
			t.Errorf("it answers again: %v", err)
		}
		tries.Store(1) // the next one hangs
		time.Sleep(2 * w.Every)
		cancel()
		<-ended
		close(hangs)
	})
}
