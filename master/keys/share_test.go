package keys

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Many callers share few runs, and each run begins after all calls that wait for it. If the disk
// hangs, no caller waits longer than its limit.
func TestSharing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var y sharing
		var begun, done atomic.Int32
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				before := begun.Load()
				err := y.do(0, func() error {
					begun.Add(1)
					time.Sleep(10 * time.Millisecond)
					done.Add(1)
					return nil
				})
				if err != nil || done.Load() <= before {
					t.Errorf("%v: %d done, %d had begun before", err, done.Load(), before)
				}
			})
		}

		wg.Wait()
		if n := begun.Load(); n > 12 {
			t.Errorf("%d calls for 100 callers within 100 ms", n)
		}

		hang := make(chan struct{})
		for range 5 {
			start := time.Now()
			if err := y.do(time.Second, func() error { <-hang; return nil }); !errors.Is(err, errSlow) ||
				time.Since(start) != time.Second {
				t.Errorf("while the disk hangs: %v after %v", err, time.Since(start))
			}
		}

		close(hang)
		fault := errors.New("full")
		if err := y.do(time.Second, func() error { return fault }); err != nil && !errors.Is(err, fault) {
			t.Error(err)
		}
	})
}
