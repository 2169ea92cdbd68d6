package storage

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A step that is under way when the table of nodes changes has some time to end.
func TestOutlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		out, end := withGrace(ctx, time.Hour, 30*time.Second)
		defer end()

		cancel()
		time.Sleep(29 * time.Second)
		synctest.Wait()
		if out.Err() != nil {
			t.Error("cut short")
		}

		time.Sleep(2 * time.Second)
		synctest.Wait()
		if out.Err() == nil {
			t.Error("it goes on for ever")
		}

		ctx, cancel = context.WithCancel(t.Context())
		defer cancel()
		out, end = withGrace(ctx, time.Hour, time.Hour)
		end()

		if out.Err() == nil {
			t.Error("not ended by its owner")
		}
	})
}
