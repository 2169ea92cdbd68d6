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
	mu     sync.Mutex
	seen   map[string]sighting
	asked  map[asker]sighting // sign-ins, of keys in any state
	before record             // of earlier lives
}

// asker is who signs in under a name: with the key that is known by it, or another one,
// which is denied.
type asker struct {
	id     string
	denied bool
}

type sighting struct {
	from netip.Addr
	at   time.Time
}

// New makes an empty Tracker.
func New() *Tracker { return &Tracker{seen: map[string]sighting{}, asked: map[asker]sighting{}} }

// Saw notes a proven request of a minion. The number of minions that are
// remembered is bounded by the number of accepted keys, see Forget.
func (t *Tracker) Saw(id string, from netip.Addr, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seen[id] = sighting{from.Unmap(), at}
}

// Forget drops a minion, when its key is gone.
func (t *Tracker) Forget(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.seen, id)
	for _, denied := range []bool{false, true} {
		delete(t.asked, asker{id, denied})
	}
	for _, m := range []map[string]int64{t.before.Heard, t.before.Asked, t.before.Denied} {
		delete(m, id)
	}
}

// Asked notes a sign-in under a name whose key is known, whether it is
// accepted or not; denied: with another key than that. Nothing is proven by it: it tells an administrator from
// where a key came. Bounded as Saw is, by the number of keys.
func (t *Tracker) Asked(id string, denied bool, from netip.Addr, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked[asker{id, denied}] = sighting{from.Unmap(), at}
}

// LastAsked tells when and from where somebody signed in last under a name.
func (t *Tracker) LastAsked(id string, denied bool) (from netip.Addr, at time.Time, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, ok := t.asked[asker{id, denied}]
	return s.from, s.at, ok
}

// Last tells when and from where a minion was last heard.
func (t *Tracker) Last(id string) (from netip.Addr, at time.Time, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, ok := t.seen[id]
	return s.from, s.at, ok
}

// topic is the topic to which a minion with zmq_filtering subscribes: the
// SHA-1 of its id in hexadecimal (salt/transport/zeromq.py).
func topic(id string) string {
	sum := sha1.Sum([]byte(id))
	return hex.EncodeToString(sum[:])
}

// held is what subscriptions prove: how many there are from an address, and
// which topics of minions are among them.
type held struct {
	slots  map[netip.Addr]int
	topics map[string]bool
	all    int
}

func holding(subs iter.Seq[Subscription]) held {
	h := held{slots: map[netip.Addr]int{}, topics: map[string]bool{}}
	for s := range subs {
		if len(s.Topics) == 0 {
			continue // it gets nothing: the check of a load balancer, or one that came just now
		}

		h.all++
		named := false
		for _, topic := range s.Topics {
			if len(topic) == 2*sha1.Size {
				h.topics[topic], named = true, true
			}
		}

		if !named {
			h.slots[s.From.Unmap()]++
		}
	}

	return h
}

// named reports whether a minion subscribed under its own name.
func (h held) named(id string) bool { return len(h.topics) > 0 && h.topics[topic(id)] }

// waiting counts the minions that only an address speaks for; t.mu is held.
func (t *Tracker) waiting(h held) (named int, from map[netip.Addr]int) {
	from = map[netip.Addr]int{}
	for id, s := range t.seen {
		if h.named(id) {
			named++
		} else if h.slots[s.from] > 0 {
			from[s.from]++
		}
	}
	return named, from
}

// Count returns the number of subscriptions, and how many ids Connected would
// return for them, without making a list.
func (t *Tracker) Count(subs iter.Seq[Subscription]) (all, connected int) {
	h := holding(subs)
	t.mu.Lock()
	defer t.mu.Unlock()
	connected, from := t.waiting(h)
	for a, n := range from {
		connected += min(n, h.slots[a])
	}
	return h.all, connected
}

// Subscribed tells how many subscriptions there are from each address that say
// no minion's name, and which minions subscribed under theirs. In a cluster a
// minion's requests and its subscription may be at different masters: only
// together they know who is there.
func Subscribed(subs iter.Seq[Subscription]) (from map[netip.Addr]int, named func(id string) bool) {
	h := holding(subs)
	return h.slots, h.named
}

// Connected returns the ids of the minions that hold a subscription, sorted.
func (t *Tracker) Connected(subs iter.Seq[Subscription]) []string {
	type candidate struct {
		id string
		at time.Time
	}

	h := holding(subs)
	var out []string
	crowds := map[netip.Addr][]candidate{} // more minions than subscriptions
	t.mu.Lock()
	_, from := t.waiting(h)
	for id, s := range t.seen {
		switch n := h.slots[s.from]; {
		case h.named(id):
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
		for _, c := range cs[:h.slots[from]] {
			out = append(out, c.id)
		}
	}

	slices.Sort(out)
	return out
}
