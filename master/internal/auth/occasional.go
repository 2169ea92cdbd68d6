package auth

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// burst is how many lines are logged in each window. Further lines are only counted.
const (
	burst  = 20
	window = 10 * time.Second
)

// limitedLog logs, at a bounded rate, a message that an unauthenticated sender can provoke. Without
// the bound such a sender could fill the disk.
type limitedLog struct {
	now func() time.Time

	mu      sync.Mutex
	since   time.Time
	logged  int
	skipped int
}

func (o *limitedLog) logLimited(l *slog.Logger, level slog.Level, msg string, args ...any) {
	now := o.now()
	o.mu.Lock()
	skipped := 0
	if d := now.Sub(o.since); d >= window || d < 0 {
		skipped = o.skipped
		o.since = now
		o.logged = 0
		o.skipped = 0
	}

	o.logged++
	drop := o.logged > burst
	if drop {
		o.skipped++
	}
	o.mu.Unlock()

	if skipped > 0 {
		l.Log(context.Background(), level, msg+" (more of the kind were not logged)", "count", skipped)
	}

	if !drop {
		l.Log(context.Background(), level, msg, args...)
	}
}
