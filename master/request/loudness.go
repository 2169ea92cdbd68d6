package request

import (
	"log/slog"
	"sync"
	"time"
)

// loudness bounds how many lines above Info strangers can cause: those beyond
// loudLines in one loudWindow are logged at Info. The zero value is ready.
type loudness struct {
	mu    sync.Mutex
	since time.Time
	lines int
}

const (
	loudLines  = 50
	loudWindow = 10 * time.Second
)

func (l *loudness) level(want slog.Level, now time.Time) slog.Level {
	if want <= slog.LevelInfo {
		return want
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.since) >= loudWindow || now.Before(l.since) {
		l.since, l.lines = now, 0
	}
	l.lines++
	if l.lines > loudLines {
		return slog.LevelInfo
	}
	return want
}
