package virtualaddress

import (
	"fmt"
	"time"

	"saltern/supervisor/api"
	"saltern/supervisor/internal/vip"
)

// VRRP shows only that a node can send. If a node with the virtual address could send but received
// nothing, minions would reach nothing behind the address. So the node gives the address up if it
// receives nothing: neither from another node, nor from a client at the front, where each minion
// answers a PING every two seconds. The last node of a cluster receives packets only from its
// minions. If it has no minions, it looks like a node that can receive nothing. So a node without
// packets takes the address again now and then. It waits longer after each try, because a try takes
// the address from a node that does receive.

const (
	// hearEvery is how often a reachable node receives something: each minion answers a PING, and
	// each other node answers a request.
	hearEvery = 2 * time.Second
	// deafFor is how long the holder may receive nothing before it gives the address up.
	deafFor = 3 * hearEvery
	// deafFrom is the length of the silence from which checks fail, so that the last of the
	// vip.Fall checks fails at deafFor.
	deafFrom = deafFor - (vip.Fall-1)*vip.CheckEvery
	// mostBetween is the longest time between two checks that counts as silence. If more time has
	// passed, this machine was suspended or starved, and received nothing for that reason.
	mostBetween = vip.CheckEvery * 5 / 4
	// retryDeaf is the pause after which a node that gave up the address may take it again without
	// having received anything. The pause doubles with each try, up to mostRetryDeaf.
	retryDeaf     = time.Minute
	mostRetryDeaf = 16 * retryDeaf
)

// lastHeard holds the times at which a node last received a packet from another machine. Zero:
// never. The two times may come from different clocks.
type lastHeard struct {
	nodes time.Time // when another node last sent something
	front time.Time // when a client on another machine last sent something
}

// hearing decides whether a node that has the virtual address receives packets. The zero value is
// ready. It is not safe for concurrent use.
type hearing struct {
	checked time.Time     // when judge was last called; zero: never
	last    lastHeard     // the node's lastHeard at that check
	silence time.Duration // how long nothing was received while this machine ran

	held  time.Time     // since when the node has the address; zero: it does not have it
	given time.Time     // when the node gave the address up; zero: it has not given it up
	pause time.Duration // how long to wait before the next try to take the address
}

// judge returns nil if the node may have the address, else an error with the reason. holds reports
// whether the node has the address. others is the number of other nodes.
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
		return nil // the node has not had the address long enough to receive packets for it
	}

	h.given = now
	h.pause = min(max(2*h.pause, retryDeaf), mostRetryDeaf)
	return fmt.Errorf("%w: nobody is heard any more, no other node and no minion", api.ErrState)
}

// listen updates the silence to now.
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
