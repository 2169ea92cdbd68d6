// Package presence knows which minions are connected to this master.
//
// A subscription on port 4505 carries no minion id (unless zmq_filtering is
// on), so presence is put together from two facts: the address from which a
// minion's last proven request came, and the addresses that hold
// subscriptions now. Several minions behind one address (NAT) count as
// present as long as there are as many subscriptions; when there are fewer,
// the ones that asked most recently are taken.
//
// Salt reads the kernel's table of connections to its own port instead
// (salt/utils/minions.py connected_ids), which behind a proxy shows the proxy
// only.
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

// Tracker remembers who asked from where. It is safe for concurrent use.
type Tracker struct {
	mu       sync.Mutex
	requests map[string]sighting
	signIns  map[signer]sighting // sign-ins, of keys in any state
	earlier  record              // earlier is the record of earlier lives of this master.
}

// signer is an id that signs in: with the key on file, or with another one, which is denied.
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

// SawRequest notes a proven request of a minion. The number of minions that are remembered is
// bounded by the number of accepted keys, see Forget.
func (t *Tracker) SawRequest(id string, from netip.Addr, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests[id] = sighting{from.Unmap(), at}
}

// Forget drops a minion whose key is gone.
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

// SawSignIn notes a sign-in under an id that has a key, accepted or not. denied: it showed another
// key. Nothing is proven by it: it tells an administrator where a key came from. It is bounded by
// the number of keys.
func (t *Tracker) SawSignIn(id string, denied bool, from netip.Addr, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.signIns[signer{id, denied}] = sighting{from.Unmap(), at}
}

// LastSignIn returns when and from where somebody last signed in under an id.
func (t *Tracker) LastSignIn(id string, denied bool) (from netip.Addr, at time.Time, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, ok := t.signIns[signer{id, denied}]
	return s.from, s.at, ok
}

// LastRequest returns when and from where a minion was last heard.
func (t *Tracker) LastRequest(id string) (from netip.Addr, at time.Time, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, ok := t.requests[id]
	return s.from, s.at, ok
}

// topicOf returns the topic to which a minion with zmq_filtering subscribes: the SHA-1 of its id in
// hexadecimal (salt/transport/zeromq.py).
func topicOf(id string) string {
	sum := sha1.Sum([]byte(id))
	return hex.EncodeToString(sum[:])
}

// subscriptionSet summarises the subscriptions: how many there are from each address, and which
// topics of minions are among them.
type subscriptionSet struct {
	unnamed map[netip.Addr]int
	topics  map[string]bool
	total   int
}

func collectSubscriptions(subs iter.Seq[Subscription]) subscriptionSet {
	h := subscriptionSet{unnamed: map[netip.Addr]int{}, topics: map[string]bool{}}
	for s := range subs {
		if len(s.Topics) == 0 {
			continue // no topic: the check of a load balancer, or a connection that was just made
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

// byAddress counts the minions that are known by their topic, and for each address those that are
// known by their address alone. The caller holds t.mu.
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

// Count returns the number of subscriptions, and how many ids Connected would
// return for them, without making a list.
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

// Subscribed returns how many subscriptions without a minion's topic each address has, and which
// minions subscribed to their own topic. In a cluster a minion's requests and its subscription may
// be at different masters: only together they know who is connected.
func Subscribed(subs iter.Seq[Subscription]) (from map[netip.Addr]int, named func(id string) bool) {
	h := collectSubscriptions(subs)
	return h.unnamed, h.holdsTopicOf
}

// Connected returns the ids of the minions that hold a subscription, sorted.
func (t *Tracker) Connected(subs iter.Seq[Subscription]) []string {
	type candidate struct {
		id string
		at time.Time
	}

	h := collectSubscriptions(subs)
	var out []string
	crowds := map[netip.Addr][]candidate{} // more minions than subscriptions
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
