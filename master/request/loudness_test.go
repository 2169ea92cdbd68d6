package request

import (
	"log/slog"
	"testing"
	"time"
)

func TestAttack25RefusalsCannotFloodTheLog(t *testing.T) {
	var l loudness
	now := time.Unix(1000, 0)
	loud := func(n int) (got int) {
		for range n {
			if l.level(slog.LevelError, now) == slog.LevelError {
				got++
			}
		}
		return got
	}
	if got := loud(1000); got != loudLines {
		t.Errorf("%d loud lines in one window, want %d", got, loudLines)
	}
	now = now.Add(loudWindow)
	if got := loud(3); got != 3 {
		t.Errorf("%d of 3 lines are loud in the next window", got)
	}
	if got := l.level(slog.LevelInfo, now); got != slog.LevelInfo {
		t.Errorf("level %v, want the one that was asked for", got)
	}
}
