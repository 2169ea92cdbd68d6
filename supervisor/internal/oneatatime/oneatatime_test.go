package oneatatime

import (
	"context"
	"strings"
	"testing"
	"time"
)

// TestOneAtATime: what hangs is left behind in time, and nothing else begins until it ends.
func TestOneAtATime(t *testing.T) {
	l, hang := New(), make(chan struct{})
	for _, begins := range []bool{true, false} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		began := make(chan struct{}, 1)
		err := l.Do(ctx, "look", func() { began <- struct{}{}; <-hang })
		cancel()
		if err == nil || !strings.Contains(err.Error(), "look: ") || (len(began) == 1) != begins {
			t.Errorf("%v, began %d", err, len(began))
		}
	}

	close(hang)
	if err := l.Do(t.Context(), "look", func() {}); err != nil {
		t.Error(err)
	}
}
