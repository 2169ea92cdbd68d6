package auth

import (
	"sync"
	"time"
)

// How many sign-ins with an accepted key go straight to the RSA work, of one
// id in a window. A public key proves nothing, whoever shows it may have heard
// it; so the id's own address, from which it last proved itself, has more than
// all others together. What is beyond waits with the strangers.
const (
	paceWindow = time.Minute
	paceOwn    = 30
	paceOther  = 4
)

// signInPace counts sign-ins by accepted ids.
type signInPace struct {
	mu   sync.Mutex
	byID map[string]*paceCount
}

type paceCount struct {
	since      time.Time
	own, other int
}

func newSignInPace() *signInPace { return &signInPace{byID: map[string]*paceCount{}} }

// skipsQueue reports whether a sign-in of an accepted id need not wait with the
// strangers; own says that it comes from the id's own address.
func (p *signInPace) skipsQueue(id string, own bool, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.byID[id]
	if c == nil {
		c = &paceCount{since: now}
		p.byID[id] = c
	}

	if d := now.Sub(c.since); d >= paceWindow || d < 0 {
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
