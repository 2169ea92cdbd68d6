package request

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestDeadline(t *testing.T) {
	begin := func(ctx context.Context) *deadline {
		return &deadline{Context: ctx, at: time.Now().Add(time.Minute)}
	}
	synctest.Test(t, func(t *testing.T) {
		d := begin(t.Context())
		child, cancel := context.WithCancel(d)
		defer cancel()

		start := time.Now()
		<-child.Done()
		if took := time.Since(start); took != time.Minute || !errors.Is(d.Err(), context.DeadlineExceeded) {
			t.Errorf("ended after %s with %v", took, d.Err())
		}

		d.stopTimer()
	})

	t.Run("asker gone", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		d := begin(ctx)
		if d.Err() != nil {
			t.Fatal(d.Err())
		}

		cancel()
		<-d.Done()
		d.stopTimer()
	})

	t.Run("over", func(t *testing.T) {
		waiting, idle := begin(t.Context()), begin(t.Context())
		done := waiting.Done()
		waiting.stopTimer()
		idle.stopTimer()
		<-done
		<-idle.Done()

		if !errors.Is(waiting.Err(), context.Canceled) || !errors.Is(idle.Err(), context.Canceled) {
			t.Errorf("%v, %v", waiting.Err(), idle.Err())
		}
	})

	t.Run("the earlier one counts", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		d := begin(ctx)
		if at, ok := d.Deadline(); !ok || time.Until(at) > time.Second {
			t.Errorf("deadline in %s", time.Until(at))
		}
		d.stopTimer()
	})
}
