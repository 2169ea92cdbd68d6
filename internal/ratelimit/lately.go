package ratelimit

import (
	"sync"
	"time"
)

// Lately records for a day which keys have acted, for example which sources have authenticated. The
// zero value is ready. Its methods are safe for concurrent use.
//
// Overflow policy: beyond MaxLately entries Note samples a few and removes the oldest of the
// sample. A removed key counts as unknown until Note records it again.
type Lately[K comparable] struct {
	mu sync.Mutex
	at map[K]time.Time
}

// Bounds of a [Lately].
const (
	MaxLately   = 65536
	latelyLasts = 24 * time.Hour
	latelyLook  = 8 // entries to sample; Go iterates maps in random order
)

// Note records that k has acted at the time now.
func (l *Lately[K]) Note(k K, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at == nil {
		l.at = map[K]time.Time{}
	}
	if _, ok := l.at[k]; !ok && len(l.at) >= MaxLately {
		l.forgetOne()
	}
	l.at[k] = now
}

// forgetOne forgets the oldest of a few random entries. The caller holds mu.
func (l *Lately[K]) forgetOne() {
	var oldest K
	var since time.Time
	n := 0
	for k, at := range l.at {
		if n == 0 || at.Before(since) {
			oldest, since = k, at
		}
		n++
		if n == latelyLook {
			break
		}
	}
	delete(l.at, oldest)
}

// Has reports whether Note has recorded k within the day before now.
func (l *Lately[K]) Has(k K, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, ok := l.at[k]
	return ok && now.Sub(at) < latelyLasts
}
