package presence

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// Attribution tells to which minions subscriptions belong, as far as that is known.
type Attribution struct {
	// Connected are the minions with a subscription, each with the address of the subscription. It is the zero
	// address if the subscription names its minion.
	Connected map[string]netip.Addr
	// Unknown are the subscriptions that cannot be attributed to a minion, by address. As many minions
	// may be connected although they are not in Connected.
	Unknown map[netip.Addr]int
	// Contended are the minions that got no subscription although there are some from their address: others
	// were heard later. Any of them may hold one of these.
	Contended map[string]bool
}

// Unattributed returns the number of subscriptions that cannot be attributed.
func (a Attribution) Unattributed() (n int) {
	for _, some := range a.Unknown {
		n += some
	}
	return n
}

// scope is whose subscriptions are attributed.
type scope int

const (
	// ofThisMaster: a minion that was heard here comes before one that another master heard from the same
	// address. A minion that has answered a job is taken for the holder of a subscription that belongs to
	// nobody else, whatever the address of that subscription.
	ofThisMaster scope = iota
	// ofAllMasters: only addresses count.
	ofAllMasters
)

// Learn records a request of a minion to another master, or before this start of the master.
func (t *Tracker) Learn(id string, from netip.Addr, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at.After(t.reported[id].at) {
		t.reported[id] = sighting{from.Unmap(), at}
	}
}

// LearnAddresses records which addresses a minion has by its grains. They count as long as no request of
// the minion is known.
func (t *Tracker) LearnAddresses(id string, all []netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.place(id); !known {
		t.grains[id] = all
	}
}

// SawAnswer records that a minion answered a job that was published, so it has a subscription, be it
// from another address than its requests.
func (t *Tracker) SawAnswer(id string, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.listened[id] = at
}

// ForgetAnswer revokes what SawAnswer recorded of a minion, because it has left later jobs unanswered.
func (t *Tracker) ForgetAnswer(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.listened, id)
}

// LastAnswer returns when a minion last answered a job that was published, since the master's start.
func (t *Tracker) LastAnswer(id string) (at time.Time, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at, ok = t.listened[id]
	return at, ok
}

// LastPlace returns the address and the time of a minion's last authenticated request to this master or
// another one, also before the master's start. It authenticates nothing, see LastRequest.
func (t *Tracker) LastPlace(id string) (from netip.Addr, at time.Time, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, ok := t.place(id)
	return s.from, s.at, ok
}

// place returns the last request of a minion. The caller holds t.mu.
func (t *Tracker) place(id string) (last sighting, ok bool) {
	own, here := t.requests[id]
	other, elsewhere := t.reported[id]
	if here && (!elsewhere || !other.at.After(own.at)) {
		return own, true
	}
	return other, elsewhere
}

// Prune forgets what other masters, earlier starts and grains told of minions without an accepted key.
func (t *Tracker) Prune(accepted func(id string) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.reported, func(id string, _ sighting) bool { return !accepted(id) })
	maps.DeleteFunc(t.grains, func(id string, _ []netip.Addr) bool { return !accepted(id) })
	maps.DeleteFunc(t.listened, func(id string, _ time.Time) bool { return !accepted(id) })
}

// candidate is a minion that may hold a subscription.
type candidate struct {
	id   string
	here bool // its last request came to this master, since its start
	at   time.Time
}

// attribute returns to which minions subscriptions belong.
func (t *Tracker) attribute(subs iter.Seq[Subscription], of scope) Attribution {
	held := collectSubscriptions(subs)
	addresses := maps.Clone(held.unnamed)
	out := Attribution{
		Connected: map[string]netip.Addr{},
		Unknown:   held.unnamed,
		Contended: map[string]bool{},
	}
	t.mu.Lock()
	defer t.mu.Unlock()

	for from, crowd := range t.crowds(held, out.Connected) {
		if of == ofAllMasters {
			for i := range crowd {
				crowd[i].here = true
			}
		}
		out.share(from, crowd)
	}

	if len(out.Unknown) > 0 || of == ofAllMasters {
		t.attributeByGrains(&out, addresses)
	}
	if len(out.Unknown) > 0 && of == ofThisMaster {
		t.attributeByAnswers(&out)
	}
	return out
}

// crowds returns the minions whose last request came from an address with subscriptions, by address. It
// adds to connected the minions that subscribed to their own topics. The caller holds t.mu.
func (t *Tracker) crowds(held subscriptionSet, connected map[string]netip.Addr) map[netip.Addr][]candidate {
	crowds := map[netip.Addr][]candidate{}
	see := func(id string) {
		last, _ := t.place(id)
		switch {
		case held.holdsTopicOf(id):
			connected[id] = netip.Addr{}
		case held.unnamed[last.from] > 0:
			here := t.requests[id] == last
			crowds[last.from] = append(crowds[last.from], candidate{id, here, last.at})
		}
	}

	for id := range t.requests {
		see(id)
	}
	for id := range t.reported {
		if _, seen := t.requests[id]; !seen {
			see(id)
		}
	}
	for id := range t.grains {
		if _, heard := t.place(id); !heard && held.holdsTopicOf(id) {
			connected[id] = netip.Addr{}
		}
	}
	return crowds
}

// share gives the subscriptions from an address to those of a crowd that come first. The others are
// contended.
func (a *Attribution) share(from netip.Addr, crowd []candidate) {
	slots := min(len(crowd), a.Unknown[from])
	if len(crowd) > slots {
		slices.SortFunc(crowd, func(a, b candidate) int {
			if a.here != b.here && a.here {
				return -1
			}
			if a.here != b.here {
				return 1
			}
			return cmp.Or(b.at.Compare(a.at), cmp.Compare(a.id, b.id))
		})
	}

	for _, one := range crowd[:slots] {
		a.assign(one.id, from)
	}
	for _, one := range crowd[slots:] {
		a.Contended[one.id] = true
	}
}

// assign gives a subscription from an address to a minion.
func (a *Attribution) assign(id string, from netip.Addr) {
	a.Connected[id] = from
	delete(a.Contended, id)
	a.Unknown[from]--
	if a.Unknown[from] == 0 {
		delete(a.Unknown, from)
	}
}

// attributeByGrains gives what is left to minions that have such an address by their grains, as Salt does
// (salt/utils/minions.py connected_ids). A minion is contended if others got all subscriptions from its
// addresses. addresses has all that there are subscriptions from. The caller holds t.mu.
func (t *Tracker) attributeByGrains(a *Attribution, addresses map[netip.Addr]int) {
	for _, id := range slices.Sorted(maps.Keys(t.grains)) {
		_, heard := t.place(id)
		_, named := a.Connected[id]
		if heard || named {
			continue
		}

		for _, from := range t.grains[id] {
			if a.Unknown[from] > 0 {
				a.assign(id, from)
				break
			}
			if addresses[from] > 0 {
				a.Contended[id] = true
			}
		}
	}
}

// attributeByAnswers gives what is left to the minions that answered a job last. The caller holds t.mu.
func (t *Tracker) attributeByAnswers(a *Attribution) {
	var listening []candidate
	for id, at := range t.listened {
		if _, known := a.Connected[id]; !known {
			listening = append(listening, candidate{id: id, at: at})
		}
	}

	slices.SortFunc(listening, func(a, b candidate) int {
		return cmp.Or(b.at.Compare(a.at), cmp.Compare(a.id, b.id))
	})
	left := slices.SortedFunc(maps.Keys(a.Unknown), netip.Addr.Compare)
	for _, one := range listening {
		if len(left) == 0 {
			return
		}
		a.assign(one.id, left[0])
		if a.Unknown[left[0]] == 0 {
			left = left[1:]
		}
	}
}

// Count returns the number of subscriptions as all, and the number of minions that are connected.
func (t *Tracker) Count(subs iter.Seq[Subscription]) (all, connected int) {
	list := slices.Collect(subs)
	for _, one := range list {
		if len(one.Topics) > 0 {
			all++
		}
	}
	return all, len(t.attribute(slices.Values(list), ofThisMaster).Connected)
}

// Connected returns the sorted ids of the minions that have a subscription.
func (t *Tracker) Connected(subs iter.Seq[Subscription]) []string {
	return slices.Sorted(maps.Keys(t.attribute(subs, ofThisMaster).Connected))
}

// Everywhere attributes the subscriptions at all masters of the cluster.
func (t *Tracker) Everywhere(subs iter.Seq[Subscription]) Attribution {
	return t.attribute(subs, ofAllMasters)
}
