package presence

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"saltern/master/cluster"
)

// bounds of Missed.
const (
	// returnWithin is how soon a minion that was cut off is back.
	returnWithin = time.Minute
	// arrivalFor is how long a new subscription is remembered: it may come
	// before it is known that its last one was cut.
	arrivalFor  = 20 * time.Second
	maxCuts     = 1 << 16
	maxArrivals = 1 << 16
)

// Missed matches subscriptions that were cut by us, by a load balancer or by
// the loss of a node, with new ones from the same address, so that these can
// be given what was published meanwhile. A subscription that its minion ended
// is no matter of it: such a minion was stopped or is starting its machine
// anew, and must not be given a job a second time.
//
// A subscription bears no minion's name, so minions behind one address are
// counted: as many new subscriptions match as were cut. One that a load balancer
// has moved here says so itself, and is counted only so that no other matches in its
// place. Overflow policy: what
// has no room is forgotten, and that minion misses what it misses.
type Missed struct {
	mu       sync.Mutex
	cuts     map[netip.Addr][]cutOff
	arrivals map[netip.Addr][]Arrival
	nCuts    int
	nArrive  int
}

type cutOff struct {
	since, until time.Time
	n            int
}

// Arrival is a new subscription that takes the place of one that was cut.
type Arrival struct {
	ID    uint64    // of the connection
	At    time.Time // when it came
	Since time.Time // what was published from then on may be missing
	Moved bool      // it said so itself
}

// newMissed makes an empty Missed.
func newMissed() *Missed {
	return &Missed{cuts: map[netip.Addr][]cutOff{}, arrivals: map[netip.Addr][]Arrival{}}
}

// Arrive tells of a new subscription, and whether it takes the place of one
// that was cut. since is the zero value but of one that was moved here.
func (m *Missed) Arrive(from netip.Addr, id uint64, since, now time.Time) (Arrival, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pruneCuts(from, now)
	a := Arrival{ID: id, At: now, Since: since, Moved: !since.IsZero()}
	if list := m.cuts[from]; len(list) > 0 {
		if !a.Moved || list[0].since.Before(since) {
			a.Since = list[0].since
		}
		if list[0].n--; list[0].n == 0 {
			m.setCuts(from, list[1:])
		}
		return a, true
	}
	if m.nArrive < maxArrivals {
		m.arrivals[from] = append(m.arrivals[from], a)
		m.nArrive++
	}
	return a, false
}

// Cut tells that n subscriptions from an address were cut, at a time or a
// little later; what was published in a margin before it may be missing, too.
// Those that have come again already are returned.
func (m *Missed) Cut(from netip.Addr, n int, at time.Time, margin time.Duration, now time.Time) (back []Arrival) {
	since := at.Add(-margin)
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.arrivals[from]
	for len(list) > 0 && n > 0 {
		a := list[0]
		list = list[1:]
		m.nArrive--
		if a.At.Before(at) || now.Sub(a.At) > arrivalFor {
			continue // it came before
		}
		a.Since = since
		back = append(back, a)
		n--
	}
	if len(list) == 0 {
		delete(m.arrivals, from)
	} else {
		m.arrivals[from] = list
	}
	m.pruneCuts(from, now)
	if n <= 0 || m.nCuts >= maxCuts {
		return back
	}
	cuts := append(slices.Clone(m.cuts[from]), cutOff{since, now.Add(returnWithin), n})
	slices.SortFunc(cuts, func(a, b cutOff) int { return a.since.Compare(b.since) })
	m.setCuts(from, cuts)
	return back
}

// Back tells that n of the subscriptions that were cut came again elsewhere.
func (m *Missed) Back(from netip.Addr, n int, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pruneCuts(from, now)
	list := slices.Clone(m.cuts[from])
	for len(list) > 0 && n > 0 {
		k := min(n, list[0].n)
		n -= k
		if list[0].n -= k; list[0].n == 0 {
			list = list[1:]
		}
	}
	m.setCuts(from, list)
}

// Pending returns how many of those that were cut are not back, and for how long the first of
// them has been away at most.
func (m *Missed) Pending(now time.Time) (n cluster.Subs, age time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n = cluster.Subs{}
	for from, list := range m.cuts {
		for _, c := range list {
			if now.Before(c.until) {
				n[from] += c.n
				age = max(age, now.Sub(c.since))
			}
		}
	}
	return n, age
}

func (m *Missed) setCuts(from netip.Addr, list []cutOff) {
	m.nCuts += len(list) - len(m.cuts[from])
	if len(list) == 0 {
		delete(m.cuts, from)
		return
	}
	m.cuts[from] = list
}

func (m *Missed) pruneCuts(from netip.Addr, now time.Time) {
	m.setCuts(from, slices.DeleteFunc(slices.Clone(m.cuts[from]), func(c cutOff) bool { return now.After(c.until) }))
}

// Prune forgets what is over. Call it now and then.
func (m *Missed) Prune(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pruneAll(now)
}

func (m *Missed) pruneAll(now time.Time) {
	for from := range m.cuts {
		m.pruneCuts(from, now)
	}
	for from, list := range m.arrivals {
		i := 0
		for i < len(list) && now.Sub(list[i].At) > arrivalFor {
			i++
		}
		m.nArrive -= i
		if i == len(list) {
			delete(m.arrivals, from)
		} else {
			m.arrivals[from] = list[i:]
		}
	}
}
