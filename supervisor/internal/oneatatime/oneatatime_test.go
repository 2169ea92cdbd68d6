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
		got, err := Do(ctx, l, "look", func() (int, error) {
			began <- struct{}{}
			<-hang
			return 1, nil
		})
		cancel()
		if got != 0 || err == nil || !strings.Contains(err.Error(), "look: ") || (len(began) == 1) != begins {
			t.Errorf("%v, began %d", err, len(began))
		}
	}

	close(hang)
	if got, err := Do(t.Context(), l, "look", func() (int, error) { return 2, nil }); got != 2 || err != nil {
		t.Error(got, err)
	}
}
