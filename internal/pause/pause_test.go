package pause_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"saltern/internal/pause"
)

func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := pause.For(t.Context(), time.Minute); err != nil || time.Since(began) != time.Minute {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		if err := pause.For(ctx, time.Minute); !errors.Is(err, context.DeadlineExceeded) ||
			time.Since(began) != time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}

func TestAbout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now() // at a full second
		for _, late := range []time.Duration{0, 100 * time.Millisecond, 240 * time.Millisecond} {
			time.Sleep(late)
			from := time.Now()
			err := pause.About(t.Context(), time.Second)
			if took := time.Since(from); err != nil || took > time.Second || took <= 750*time.Millisecond ||
				time.Since(began)%(250*time.Millisecond) != 0 {
				t.Errorf("%v after %s, %s from the start", err, took, time.Since(began))
			}
		}

		time.Sleep(60 * time.Millisecond)
		from := time.Now()
		if err := pause.About(t.Context(), 90*time.Millisecond); err != nil || time.Since(from) != 90*time.Millisecond {
			t.Errorf("%v after %s: a short wait is another", err, time.Since(from))
		}
	})
}
