// Package presence determines which minions are connected to this master.
//
// A subscription on port 4505 carries no minion id (unless zmq_filtering is on). So presence
// combines two facts: the address from which a minion last sent an authenticated request, and the
// addresses that have subscriptions now. If several minions share an address (NAT), and the address
// has n subscriptions, the n minions that sent a request most recently count as connected.
//
// A minion that is idle sends no request when it subscribes again. So the addresses are kept over a
// restart of the master, other masters tell theirs ([View.Learn]), and the grains tell the addresses of
// a minion that nobody has heard. A minion whose requests come from another address than its
// subscription is known by its answers to jobs: it listens somewhere. See attribute.go.
//
// Salt instead reads the kernel's table of connections to its own port (salt/utils/minions.py
// connected_ids), which shows only the proxy if the master is behind one.
package presence

import (
	"crypto/sha1"
	"encoding/hex"
	"iter"
	"net/netip"
	"sync"
	"time"
)

// Subscription is one connection on the publish port.
type Subscription struct {
	From   netip.Addr
	Topics []string
}

// Tracker records from which address each minion sent requests. It is safe for concurrent use.
type Tracker struct {
	mu       sync.Mutex
	requests map[string]sighting
	reported map[string]sighting     // requests before this start, or to other masters of the cluster
	grains   map[string][]netip.Addr // addresses of minions of which no request is known
	listened map[string]time.Time    // when minions last answered a job that was published
	signIns  map[signer]sighting     // sign-ins with any key: accepted, pending, rejected or denied
	earlier  record                  // records from before this start of the master
}

// signer is an id under which a minion signed in. denied means that the minion offered a key that
// differs from the key on file.
type signer struct {
	id     string
	denied bool
}

type sighting struct {
	from netip.Addr
	at   time.Time
}

// New returns an empty Tracker.
func New() *Tracker {
	return &Tracker{
		requests: map[string]sighting{},
		reported: map[string]sighting{},
		grains:   map[string][]netip.Addr{},
		listened: map[string]time.Time{},
		signIns:  map[signer]sighting{},
	}
}

// SawRequest records an authenticated request of a minion, its sender's address and its time. There
// is at most one entry for each accepted key, because Forget drops the entries of removed keys.
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
	delete(t.reported, id)
	delete(t.grains, id)
	delete(t.listened, id)
	delete(t.earlier.From, id)
	for _, denied := range []bool{false, true} {
		delete(t.signIns, signer{id, denied})
	}
	for _, m := range []map[string]int64{t.earlier.Heard, t.earlier.Asked, t.earlier.Denied} {
		delete(m, id)
	}
}

// SawSignIn records a sign-in under an id that has a key in any state. denied means that the
// sign-in offered a key that differs from the key on file. A sign-in does not authenticate its
// sender: the record only shows administrators from which address a key was offered. The number of
// keys bounds the entries.
func (t *Tracker) SawSignIn(id string, denied bool, from netip.Addr, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.signIns[signer{id, denied}] = sighting{from.Unmap(), at}
}

// LastSignIn returns the address and the time of the last sign-in under an id. ok is false if there
// was no sign-in since the master's start.
func (t *Tracker) LastSignIn(id string, denied bool) (from netip.Addr, at time.Time, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, ok := t.signIns[signer{id, denied}]
	return s.from, s.at, ok
}

// LastRequest returns the address and the time of a minion's last authenticated request. ok is
// false if there was no request since the master's start.
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

// subscriptionSet summarises subscriptions: it holds how many subscriptions each address has, and
// to which topics of single minions there are subscriptions.
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
