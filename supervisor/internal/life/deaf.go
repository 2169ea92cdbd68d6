package life

import (
	"fmt"
	"time"

	"saltern/supervisor/api"
)

// VRRP proves that a node can send. One that can send and hears nothing keeps the virtual address,
// and everything behind it is away. So a holder that hears nobody gives the address up:
// no other node, and no client at the front, where each minion answers a PING every two seconds.
// The last node of a cluster hears its minions. Without any, it looks like one that is deaf; it
// tries again now and then, ever less often: each time a deaf node tries, it takes the address from
// one that hears.

const (
	// deafFor is how long the holder may hear nobody: three PINGs, and as many questions to
	// the other nodes and to the load balancer, with a margin.
	deafFor = 8 * time.Second
	// retryDeaf is when a node that has given the address up is fit again without having heard
	// anybody, twice as long each time, up to mostRetryDeaf.
	retryDeaf     = time.Minute
	mostRetryDeaf = 16 * time.Minute
)

// hearing judges whether a node that has the virtual address is reached by anybody. The zero
// value is ready; it is not safe for concurrent use.
type hearing struct {
	held  time.Time     // since when the node has the address; zero: it has it not
	given time.Time     // when it was given up; zero: it was not
	pause time.Duration // until it is tried again
}

// fit returns why the node may not have the address; nil: it may. holds is whether it has it, others the number
// of other nodes, heard when anybody was last heard.
func (h *hearing) fit(holds bool, others int, heard, now time.Time) error {
	switch {
	case !holds:
		h.held = time.Time{}
	case h.held.IsZero():
		h.held = now
	}
	if others == 0 || now.Sub(heard) < deafFor {
		h.given = time.Time{}
		h.pause = 0
		return nil
	}

	if !h.given.IsZero() {
		if wait := h.pause - now.Sub(h.given); wait > 0 {
			return fmt.Errorf("%w: nobody was heard for %s, no other node and no minion", api.ErrState, now.Sub(heard).Round(time.Second))
		}
		h.given = time.Time{}
		return nil
	}
	if h.held.IsZero() || now.Sub(h.held) < deafFor {
		return nil // it has had no time to be heard
	}
	h.given = now
	h.pause = min(max(2*h.pause, retryDeaf), mostRetryDeaf)
	return fmt.Errorf("%w: nobody is heard any more, no other node and no minion", api.ErrState)
}
