package pause_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"saltern/pause"
)

func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := pause.For(t.Context(), time.Minute); err != nil || time.Since(began) != time.Minute {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		for _, late := range []time.Duration{0, 100 * time.Millisecond, 240 * time.Millisecond} { // two that began apart end together
			time.Sleep(late)
			if err := pause.For(t.Context(), time.Second); err != nil || time.Since(began)%(250*time.Millisecond) != 0 {
				t.Errorf("%v after %s", err, time.Since(began))
			}
		}
		began = time.Now()
		if err := pause.For(t.Context(), 90*time.Millisecond); err != nil || time.Since(began) != 90*time.Millisecond {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		time.Sleep(160 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		if err := pause.For(ctx, time.Minute); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}
