package auth

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// burst is how many lines are logged in each window. Further ones are only counted.
const (
	burst  = 20
	window = 10 * time.Second
)

// limitedLog logs a message that a stranger can provoke, at a bounded rate, so that he cannot fill
// the disk.
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
