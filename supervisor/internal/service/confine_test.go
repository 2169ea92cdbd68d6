package service

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestKeepConfined(t *testing.T) {
	for name, c := range map[string]struct{ failures, lives, tries int }{
		"at once":            {0, 300, 1},
		"soon":               {1, 3, 2},
		"at the third try":   {2, 300, 3},
		"ends before it was": {100, 100, 7},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				end := keepConfined(t.Context(), func(_ context.Context, pid int) error {
					tries++
					if pid != 42 {
						t.Errorf("process %d", pid)
					}

					if tries <= c.failures {
						return errors.New("systemd is busy")
					}

					return nil
				}, 42)

				time.Sleep(time.Duration(c.lives) * time.Second)
				end()
				time.Sleep(time.Hour)
				if tries != c.tries {
					t.Errorf("tried %d times, want %d", tries, c.tries)
				}
			})
		})
	}
}

func TestKeepConfinedTooLate(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	keepConfined(ctx, func(context.Context, int) error {
		t.Error("a process is confined although its service is to end")
		return nil
	}, 42)()
}
