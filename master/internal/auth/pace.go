package auth

import (
	"sync"
	"time"
)

// paceOwn and paceOther bound how many sign-ins of one accepted id skip the gate strangers of
// [Service] per minute: paceOwn those from the address of the id's last authenticated request,
// paceOther those from all other addresses together. paceOther is smaller, because anybody may have
// overheard a public key, so a sign-in with it authenticates nobody. Sign-ins beyond the bounds
// wait at that gate.
const (
	paceOwn   = 30
	paceOther = 4
)

// signInPace counts the sign-ins of accepted ids.
type signInPace struct {
	mu   sync.Mutex
	byID map[string]*paceCount
}

type paceCount struct {
	since      time.Time
	own, other int
}

func newSignInPace() *signInPace { return &signInPace{byID: map[string]*paceCount{}} }

// skipsQueue reports whether a sign-in of an accepted id may skip the gate strangers. familiar
// means that the sign-in comes from the address of the id's last authenticated request.
func (p *signInPace) skipsQueue(id string, familiar bool, now time.Time) bool {
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

	if familiar {
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
