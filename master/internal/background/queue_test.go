package background

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestQueue: as many as may be at work are at work, those beyond the bound are refused at once, and who leaves the
// queue frees his place and is not worked for.
func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const atOnce, waiting = 3, 5
		q := NewQueue(atOnce, waiting)
		leaving, leave := context.WithCancel(t.Context())
		var working, peak, done, left atomic.Int32
		for i := range atOnce + waiting {
			ctx := t.Context()
			if i == atOnce+1 {
				ctx = leaving
			}
			go func() {
				err := q.Do(ctx, func() {
					peak.Store(max(peak.Load(), working.Add(1)))
					time.Sleep(time.Second)
					working.Add(-1)
				})
				switch {
				case err == nil:
					done.Add(1)
				case errors.Is(err, context.Canceled):
					left.Add(1)
				default:
					t.Error(err)
				}
			}()
			synctest.Wait()
		}

		if err := q.Do(t.Context(), func() { t.Error("one too many is worked for") }); !errors.Is(err, ErrFull) {
			t.Errorf("one too many: %v", err)
		}
		leave()
		synctest.Wait()
		if left.Load() != 1 {
			t.Error("who leaves still waits")
		}
		if err := q.Do(t.Context(), func() { done.Add(1) }); err != nil {
			t.Errorf("on the free place: %v", err)
		}
		time.Sleep(time.Minute)
		if peak.Load() != atOnce || done.Load() != atOnce+waiting || working.Load() != 0 {
			t.Errorf("%d at once, %d done", peak.Load(), done.Load())
		}
	})
}
