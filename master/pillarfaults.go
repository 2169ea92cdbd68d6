package master

import (
	"sync"
	"time"
)

// PillarError is a pillar that could not be compiled whole: the latest try of
// one minion.
type PillarError struct {
	Minion string    `json:"minion"`
	Text   string    `json:"text"` // the first error
	At     time.Time `json:"at"`
}

const (
	maxPillarFaults = 256              // minions remembered
	pillarFaultFor  = 10 * time.Minute // after the last failure
	maxPillarText   = 1000             // bytes of an error that are kept
)

// pillarFaults remembers whose pillar fails. A minion is forgotten when its
// pillar compiles again, or when it has not asked for pillarFaultFor. Overflow
// policy: the oldest failure makes room for a new one. It is safe for
// concurrent use.
type pillarFaults struct {
	mu sync.Mutex
	m  map[string]PillarError
}

func newPillarFaults() *pillarFaults { return &pillarFaults{m: map[string]PillarError{}} }

// note remembers a failure.
func (p *pillarFaults) note(minion, text string, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.m[minion]; !known && len(p.m) >= maxPillarFaults {
		var oldest PillarError
		for _, e := range p.m {
			if oldest.Minion == "" || e.At.Before(oldest.At) {
				oldest = e
			}
		}
		delete(p.m, oldest.Minion)
	}
	p.m[minion] = PillarError{Minion: minion, Text: text[:min(len(text), maxPillarText)], At: at}
}

// forget ends a minion's failure and tells whether there was one.
func (p *pillarFaults) forget(minion string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, known := p.m[minion]
	delete(p.m, minion)
	return known
}

// last gives the latest failure that stands, or nil, and the number of
// minions with one.
func (p *pillarFaults) last(now time.Time) (*PillarError, int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var last *PillarError
	for id, e := range p.m {
		if now.Sub(e.At) > pillarFaultFor {
			delete(p.m, id)
			continue
		}
		if last == nil || e.At.After(last.At) || e.At.Equal(last.At) && e.Minion < last.Minion {
			last = &e
		}
	}
	return last, len(p.m)
}
