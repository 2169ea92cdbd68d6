package auth

import (
	"sync"
	"time"
)

// How many sign-ins of one accepted id skip the strangers' queue per minute: paceOwn from the address
// where the id last proved itself, paceOther from all other addresses together. A public key proves
// nothing, because anybody may have overheard it; so other addresses get less. Further sign-ins wait
// with the strangers.
const (
	paceOwn   = 30
	paceOther = 4
)

// signInPace counts sign-ins of accepted ids.
type signInPace struct {
	mu   sync.Mutex
	byID map[string]*paceCount
}

type paceCount struct {
	since      time.Time
	own, other int
}

func newSignInPace() *signInPace { return &signInPace{byID: map[string]*paceCount{}} }

// skipsQueue reports whether a sign-in of an accepted id need not wait with the strangers. own means
// that it comes from the id's own address.
func (p *signInPace) skipsQueue(id string, own bool, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.byID[id]
	if c == nil {
		c = &paceCount{since: now}
		p.byID[id] = c
	}

	if d := now.Sub(c.since); d >= time.Minute || d < 0 {
		*c = paceCount{since: now}
	}

	if own {
		c.own++
		return c.own <= paceOwn
	}

	c.other++
	return c.other <= paceOther
}

func (p *signInPace) forget(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.byID, id)
}
