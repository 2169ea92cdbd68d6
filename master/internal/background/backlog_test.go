package background

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Finding F2: 10,000 tasks at once are all done, so many at a time, in order.
func TestBacklogDoesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const tasks, workers = 10_000, 10
		b := NewBacklog(BacklogConfig{Workers: workers, Depth: tasks, Now: time.Now})
		var mu sync.Mutex
		var begun []int
		most, running := 0, 0
		for i := range tasks {
			err := b.Put(t.Context(), 100, func(context.Context) {
				mu.Lock()
				begun = append(begun, i)
				running++
				most = max(most, running)
				mu.Unlock()

				time.Sleep(time.Second)
				mu.Lock()
				running--
				mu.Unlock()
			})
			if err != nil {
				t.Fatal(err)
			}
		}

		if s := b.Stats(); s.Waiting+s.Running < tasks || s.Running != workers {
			t.Errorf("after all were put: %+v", s)
		}

		time.Sleep(tasks / workers * time.Second)
		synctest.Wait()
		if s := b.Stats(); s.Done != tasks || s.Waiting != 0 || s.Running != 0 || s.Waited < time.Hour {
			t.Errorf("in the end: %+v", s)
		}

		for i, n := range begun {
			if n < i-workers || n > i+workers {
				t.Fatalf("task %d was begun as number %d", n, i)
			}
		}

		if most != workers || len(begun) != tasks {
			t.Errorf("%d at once, %d begun", most, len(begun))
		}

		if left := b.Close(); left != 0 {
			t.Errorf("%d are left", left)
		}
	})
}

// One worker keeps the order strictly.
func TestBacklogOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBacklog(BacklogConfig{Workers: 1, Depth: 10, Now: time.Now})
		var begun []int
		for i := range 100 {
			if err := b.Put(t.Context(), 1,
				func(context.Context) { begun = append(begun, i); time.Sleep(time.Second) }); err != nil {
				t.Fatal(err)
			}
		}

		time.Sleep(time.Hour)
		synctest.Wait()
		if !slices.IsSorted(begun) || len(begun) != 100 {
			t.Errorf("%v", begun)
		}

		b.Close()
	})
}

// What finds no room waits for it, whether tasks or bytes are too many.
func TestBacklogWaitsForRoom(t *testing.T) {
	for name, tt := range map[string]struct{ depth, bytes, fit int }{
		"tasks":           {4, 1, 4},
		"bytes":           {1000, backlogBytes / 2, 2},
		"larger than all": {1000, backlogBytes * 2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := NewBacklog(BacklogConfig{Workers: 1, Depth: tt.depth, Now: time.Now})
				var put atomic.Int64
				go func() {
					for range 50 {
						if err := b.Put(t.Context(), tt.bytes,
							func(context.Context) { time.Sleep(time.Minute) }); err == nil {
							put.Add(1)
						}
					}
				}()

				synctest.Wait()
				if want := int64(tt.fit + 1); put.Load() != want { // one is at work
					t.Errorf("%d were put at once, want %d", put.Load(), want)
				}

				time.Sleep(time.Hour)
				synctest.Wait()
				if s := b.Stats(); put.Load() != 50 || s.Done != 50 {
					t.Errorf("%d put, %+v", put.Load(), s)
				}

				b.Close()
			})
		})
	}
}

func TestBacklogClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBacklog(BacklogConfig{Workers: 2, Depth: 100, Now: time.Now})
		var ended atomic.Int64
		for range 10 {
			_ = b.Put(t.Context(), 1, func(ctx context.Context) { <-ctx.Done(); ended.Add(1) })
		}

		synctest.Wait()
		if left := b.Close(); left != 8 || ended.Load() != 2 {
			t.Errorf("%d left, %d ended", left, ended.Load())
		}

		if err := b.Put(t.Context(), 1, func(context.Context) { t.Error("done after the end") }); !errors.Is(err, errClosed) {
			t.Error(err)
		}
	})
}
