package virtualaddress

import (
	"fmt"
	"time"

	"saltern/supervisor/api"
	"saltern/supervisor/internal/vip"
)

// VRRP proves that a node can send. One that can send and hears nothing keeps the virtual address,
// and everything behind it is away. So a holder that hears nobody gives the address up:
// no other node, and no client at the front, where each minion answers a PING every two seconds.
// The last node of a cluster hears its minions. Without any, it looks like one that is deaf; it
// tries again now and then, ever less often: each time a deaf node tries, it takes the address from
// one that hears.

const (
	// hearEvery is how often a node that is reached hears somebody: each minion answers a PING,
	// and each other node a question.
	hearEvery = 2 * time.Second
	// deafFor is how long the holder may hear nobody until it has given the address up.
	deafFor = 3 * hearEvery
	// deafFrom is when checks begin to fail, so that the last one that it takes fails after deafFor.
	deafFrom = deafFor - (vip.Fall-1)*vip.CheckEvery
	// mostBetween is how much silence counts between two checks. More time than that passed without this
	// machine, which was stopped or starved, and heard nobody for that reason.
	mostBetween = vip.CheckEvery * 5 / 4
	// retryDeaf is when a node that has given the address up is fit again without having heard
	// anybody, twice as long each time, up to mostRetryDeaf.
	retryDeaf     = time.Minute
	mostRetryDeaf = 16 * retryDeaf
)

// lastHeard is when a node last heard others; zero: never. The two come from clocks that may differ.
type lastHeard struct {
	nodes time.Time // another node
	front time.Time // a client of another machine
}

// hearing judges whether a node that has the virtual address is reached by anybody. The zero
// value is ready; it is not safe for concurrent use.
type hearing struct {
	checked time.Time     // when it was last judged; zero: never
	last    lastHeard     // as of that
	silence time.Duration // since then, without the time in which this machine did not run

	held  time.Time     // since when the node has the address; zero: it has it not
	given time.Time     // when it was given up; zero: it was not
	pause time.Duration // until it is tried again
}

// judge returns why the node may not have the address; nil: it may. holds is whether it has it, others the number
// of other nodes.
func (h *hearing) judge(holds bool, others int, heard lastHeard, now time.Time) error {
	h.listen(heard, now)
	switch {
	case !holds:
		h.held = time.Time{}
	case h.held.IsZero():
		h.held = now
	}

	if others == 0 || h.silence < deafFrom {
		h.given = time.Time{}
		h.pause = 0
		return nil
	}

	if !h.given.IsZero() {
		if wait := h.pause - now.Sub(h.given); wait > 0 {
			return fmt.Errorf("%w: nobody was heard for %s, no other node and no minion", api.ErrState,
				h.silence.Round(time.Second))
		}
		h.given = time.Time{}
		return nil
	}

	if h.held.IsZero() || now.Sub(h.held) < deafFrom {
		return nil // the node has not held the address long enough to be heard
	}

	h.given = now
	h.pause = min(max(2*h.pause, retryDeaf), mostRetryDeaf)
	return fmt.Errorf("%w: nobody is heard any more, no other node and no minion", api.ErrState)
}

// listen brings the silence up to now.
func (h *hearing) listen(heard lastHeard, now time.Time) {
	passed := mostBetween
	if !h.checked.IsZero() {
		passed = min(now.Sub(h.checked), mostBetween)
	}

	switch {
	case !heard.nodes.Equal(h.last.nodes):
		h.silence = min(passed, max(now.Sub(heard.nodes), 0))
	case !heard.front.Equal(h.last.front):
		h.silence = min(passed, max(now.Sub(heard.front), 0))
	default:
		h.silence += passed
	}

	h.checked = now
	h.last = heard
}
