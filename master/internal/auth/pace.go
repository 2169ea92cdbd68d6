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

// pace counts sign-ins by accepted ids.
type pace struct {
	mu sync.Mutex
	of map[string]*paced
}

type paced struct {
	since      time.Time
	own, other int
}

func newPace() *pace { return &pace{of: map[string]*paced{}} }

// quick reports whether a sign-in of an accepted id need not wait with the
// strangers; own says that it comes from the id's own address.
func (p *pace) quick(id string, own bool, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.of[id]
	if c == nil {
		c = &paced{since: now}
		p.of[id] = c
	}

	if d := now.Sub(c.since); d >= paceWindow || d < 0 {
		*c = paced{since: now}
	}

	if own {
		c.own++
		return c.own <= paceOwn
	}

	c.other++
	return c.other <= paceOther
}

func (p *pace) forget(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.of, id)
}
