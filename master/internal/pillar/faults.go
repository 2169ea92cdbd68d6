package pillar

import (
	"sync"
	"time"

	"saltern/internal/control"
)

const (
	maxFaults    = 256              // largest number of minions with a stored failure
	faultFor     = 10 * time.Minute // how long a failure is stored
	maxFaultText = 1000             // bytes of an error's text
)

// faults stores the last pillar failure of each minion. The failure is dropped when the minion's
// pillar compiles again, or faultFor after it was recorded. Overflow policy: the oldest failure is
// dropped. faults is safe for concurrent use.
type faults struct {
	mu       sync.Mutex
	byMinion map[string]control.PillarError
}

func newFaults() *faults { return &faults{byMinion: map[string]control.PillarError{}} }

// noteFault records that a minion's pillar failed.
func (p *faults) noteFault(minion, text string, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.byMinion[minion]; !known && len(p.byMinion) >= maxFaults {
		var oldest control.PillarError
		for _, e := range p.byMinion {
			if oldest.Minion == "" || e.At.Before(oldest.At) {
				oldest = e
			}
		}
		delete(p.byMinion, oldest.Minion)
	}
	p.byMinion[minion] = control.PillarError{Minion: minion, Text: text[:min(len(text), maxFaultText)], At: at}
}

// of returns the failure of a minion that has not expired, or nil.
func (p *faults) of(minion string, now time.Time) *control.PillarError {
	p.mu.Lock()
	defer p.mu.Unlock()
	e, known := p.byMinion[minion]
	if !known || now.Sub(e.At) > faultFor {
		return nil
	}
	return &e
}

// forget deletes the failure of a minion, and reports whether there was one.
func (p *faults) forget(minion string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, known := p.byMinion[minion]
	delete(p.byMinion, minion)
	return known
}

// lastFault returns the latest failure that has not expired, or nil, and the number of minions
// whose failure has not expired.
func (p *faults) lastFault(now time.Time) (*control.PillarError, int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var last *control.PillarError
	for id, e := range p.byMinion {
		if now.Sub(e.At) > faultFor {
			delete(p.byMinion, id)
			continue
		}
		if last == nil || e.At.After(last.At) || e.At.Equal(last.At) && e.Minion < last.Minion {
			last = &e
		}
	}
	return last, len(p.byMinion)
}
