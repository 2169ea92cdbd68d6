// Package presence knows which minions are connected to this master.
//
// A subscription on port 4505 carries no minion id (unless zmq_filtering is on), so presence combines
// two facts: the address from which a minion's last proven request came, and the addresses that have
// subscriptions now. Several minions behind one address (NAT) count as present while there are as
// many subscriptions. If there are fewer, the minions that sent requests most recently count.
//
// Salt instead reads the kernel's table of connections to its own port (salt/utils/minions.py
// connected_ids), which behind a proxy shows only the proxy.
package presence

import (
	"crypto/sha1"
	"encoding/hex"
	"iter"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Subscription is one connection on the publish port.
type Subscription struct {
	From   netip.Addr
	Topics []string
}

// Tracker remembers from which address each minion sent requests. It is safe for concurrent use.
type Tracker struct {
	mu       sync.Mutex
	requests map[string]sighting
	signIns  map[signer]sighting // sign-ins with keys in any state
	earlier  record              // record of earlier starts of this master
}

// signer is an id that signs in. denied means that it showed another key than the one on file.
type signer struct {
	id     string
	denied bool
}

type sighting struct {
	from netip.Addr
	at   time.Time
}

// New returns an empty Tracker.
func New() *Tracker { return &Tracker{requests: map[string]sighting{}, signIns: map[signer]sighting{}} }

// SawRequest records a proven request of a minion. The number of accepted keys bounds the entries,
// see Forget.
func (t *Tracker) SawRequest(id string, from netip.Addr, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests[id] = sighting{from.Unmap(), at}
}

// Forget drops the entries of a minion whose key was removed.
func (t *Tracker) Forget(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.requests, id)
	for _, denied := range []bool{false, true} {
		delete(t.signIns, signer{id, denied})
	}
	for _, m := range []map[string]int64{t.earlier.Heard, t.earlier.Asked, t.earlier.Denied} {
		delete(m, id)
	}
}

// SawSignIn records a sign-in under an id that has a key, accepted or not. denied means that it
// showed another key. A sign-in proves nothing: the record only tells administrators where a key came
// from. The number of keys bounds the entries.
func (t *Tracker) SawSignIn(id string, denied bool, from netip.Addr, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.signIns[signer{id, denied}] = sighting{from.Unmap(), at}
}

// LastSignIn returns from where and when somebody last signed in under an id.
func (t *Tracker) LastSignIn(id string, denied bool) (from netip.Addr, at time.Time, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, ok := t.signIns[signer{id, denied}]
	return s.from, s.at, ok
}

// LastRequest returns from where and when a minion last sent a proven request.
func (t *Tracker) LastRequest(id string) (from netip.Addr, at time.Time, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, ok := t.requests[id]
	return s.from, s.at, ok
}

// topicOf returns the topic to which a minion with zmq_filtering subscribes: the hexadecimal SHA-1 of
// its id (salt/transport/zeromq.py).
func topicOf(id string) string {
	sum := sha1.Sum([]byte(id))
	return hex.EncodeToString(sum[:])
}

// subscriptionSet summarises subscriptions: how many each address has, and the minions' own topics
// among them.
type subscriptionSet struct {
	unnamed map[netip.Addr]int
	topics  map[string]bool
	total   int
}

func collectSubscriptions(subs iter.Seq[Subscription]) subscriptionSet {
	h := subscriptionSet{unnamed: map[netip.Addr]int{}, topics: map[string]bool{}}
	for s := range subs {
		if len(s.Topics) == 0 {
			continue // no topic: a load balancer's check, or a connection that was just opened
		}

		h.total++
		named := false
		for _, topic := range s.Topics {
			if len(topic) == 2*sha1.Size {
				h.topics[topic], named = true, true
			}
		}

		if !named {
			h.unnamed[s.From.Unmap()]++
		}
	}

	return h
}

// holdsTopicOf reports whether a minion subscribed to its own topic.
func (h subscriptionSet) holdsTopicOf(id string) bool {
	return len(h.topics) > 0 && h.topics[topicOf(id)]
}

// byAddress counts the minions that are recognised by their topic, and for each address those that
// are recognised by their address only. The caller holds t.mu.
func (t *Tracker) byAddress(h subscriptionSet) (named int, from map[netip.Addr]int) {
	from = map[netip.Addr]int{}
	for id, s := range t.requests {
		if h.holdsTopicOf(id) {
			named++
		} else if h.unnamed[s.from] > 0 {
			from[s.from]++
		}
	}
	return named, from
}

// Count returns the number of subscriptions, and the number of ids that Connected would return for
// them. It builds no list.
func (t *Tracker) Count(subs iter.Seq[Subscription]) (all, connected int) {
	h := collectSubscriptions(subs)
	t.mu.Lock()
	defer t.mu.Unlock()
	connected, from := t.byAddress(h)
	for a, n := range from {
		connected += min(n, h.unnamed[a])
	}
	return h.total, connected
}

// Subscribed returns how many subscriptions without a minion's topic each address has, and a function
// that reports whether a minion subscribed to its own topic. In a cluster a minion's requests and its
// subscription may be at different masters, so only all masters together know which minions are
// connected.
func Subscribed(subs iter.Seq[Subscription]) (from map[netip.Addr]int, named func(id string) bool) {
	h := collectSubscriptions(subs)
	return h.unnamed, h.holdsTopicOf
}

// Connected returns the sorted ids of the minions that have a subscription.
func (t *Tracker) Connected(subs iter.Seq[Subscription]) []string {
	type candidate struct {
		id string
		at time.Time
	}

	h := collectSubscriptions(subs)
	var out []string
	crowds := map[netip.Addr][]candidate{} // addresses with more minions than subscriptions
	t.mu.Lock()
	_, from := t.byAddress(h)
	for id, s := range t.requests {
		switch n := h.unnamed[s.from]; {
		case h.holdsTopicOf(id):
			out = append(out, id)
		case n > 0 && from[s.from] <= n:
			out = append(out, id)
		case n > 0:
			crowds[s.from] = append(crowds[s.from], candidate{id, s.at})
		}
	}
	t.mu.Unlock()

	for from, cs := range crowds {
		slices.SortFunc(cs, func(a, b candidate) int { return b.at.Compare(a.at) })
		for _, c := range cs[:h.unnamed[from]] {
			out = append(out, c.id)
		}
	}

	slices.Sort(out)
	return out
}
