package presence

import (
	"net/netip"
	"slices"
	"sync"
	"time"
)

// bounds of Missed.
const (
	// returnWithin is how soon a minion that was cut off is back. It counts from the
	// cut, wherever that was seen, and nobody prolongs it by passing it on.
	returnWithin = time.Minute
	// arrivalFor is how long a new subscription is remembered: it may come
	// before it is known that its last one was cut.
	arrivalFor  = 20 * time.Second
	maxMarks    = 1 << 16 // Overflow policy: who comes from there misses what it misses
	maxArrivals = 1 << 16
	// markStep is how finely marks are told apart in time.
	markStep = 500 * time.Millisecond
	// minRounds is how often a minute what was missed is given at least to who comes
	// from an address, and roundsEach times as often as so many were cut there: all of
	// them come anew each time a node, its network or the virtual address changes.
	// Further ones get nothing: somebody who is no minion may subscribe again and again.
	minRounds  = 16
	roundsEach = 8
)

// Missed says what a new subscription may have missed. A mark is made when subscriptions from
// an address have ended, were lost, or answer no more: what was published since then may be
// missing to who comes from there within a minute.
//
// A subscription bears no minion's name, and minions may share an address. So a mark is for
// everybody from there, and the earliest counts: that somebody is given what it has had
// already does no harm, since a minion knows its last jobs, and who has been started anew is
// left out by its name, see [Resender]. Marks are the same in any order and however often
// they are told.
//
// A subscription that a load balancer has moved here says itself what it has missed. It takes
// no mark.
type Missed struct {
	mu            sync.Mutex
	base          time.Time // from which steps count
	marks         map[netip.Addr][]Mark
	arrivals      map[netip.Addr][]Arrival
	rounds        map[netip.Addr]roundCount
	markCount     int
	arrivalCount  int
	refusedRounds uint64
}

// Mark says what may be missing to who comes from an address.
type Mark struct {
	Since, Until time.Time // what was published from then on; who comes until then
	Crowd        int       // so many listened from there at about that time
}

// roundCount counts what was given to an address within a minute.
type roundCount struct {
	from  time.Time
	count int
}

// Arrival is a new subscription that may have missed something.
type Arrival struct {
	ID    uint64    // of the connection
	At    time.Time // what was published later it gets as everybody does
	Since time.Time // what was published from then on may be missing
}

// newMissed makes an empty Missed.
func newMissed() *Missed {
	return &Missed{
		marks:    map[netip.Addr][]Mark{},
		arrivals: map[netip.Addr][]Arrival{},
		rounds:   map[netip.Addr]roundCount{},
	}
}

// Arrive tells of a new subscription, and whether it may have missed something.
func (m *Missed) Arrive(from netip.Addr, id uint64, now time.Time) (Arrival, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pruneMarks(from, now)
	a := Arrival{ID: id, At: now, Since: now}
	if list := m.marks[from]; len(list) > 0 {
		a.Since = list[0].Since
	}
	if m.arrivalCount < maxArrivals { // an earlier mark may come
		m.arrivals[from] = append(m.arrivals[from], a)
		m.arrivalCount++
	}
	return a, a.Since.Before(now) && m.allowRound(from, now)
}

// Mark makes a mark, and returns who has come from there since and may lack more by it than
// was known.
func (m *Missed) Mark(from netip.Addr, mark Mark, now time.Time) (back []Arrival) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !now.Before(mark.Until) || !m.addMark(from, mark) {
		return nil
	}

	for i, a := range m.arrivals[from] {
		if now.Sub(a.At) > arrivalFor || a.At.Before(mark.Since) || !mark.Since.Before(a.Since) || !m.allowRound(from, now) {
			continue
		}
		again := a
		again.At, again.Since = minTime(a.At, a.Since), mark.Since
		back = append(back, again)
		m.arrivals[from][i].Since = mark.Since
	}

	return back
}

func minTime(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// addMark adds a mark, or makes one of the same moment last as long; m.mu is held.
func (m *Missed) addMark(from netip.Addr, mark Mark) bool {
	if m.base.IsZero() {
		m.base = mark.Since
	}

	step := mark.Since.Sub(m.base) / markStep
	if mark.Since.Before(m.base) {
		step-- // down, in both directions
	}

	mark.Since = m.base.Add(step * markStep)
	list := m.marks[from]
	i, same := slices.BinarySearchFunc(list, mark, func(a, b Mark) int { return a.Since.Compare(b.Since) })
	if same {
		list[i].Crowd = max(list[i].Crowd, mark.Crowd)
		if mark.Until.After(list[i].Until) {
			list[i].Until = mark.Until
		}
		return true
	}

	if m.markCount >= maxMarks {
		m.refusedRounds++
		return false
	}

	m.markCount++
	m.marks[from] = slices.Insert(list, i, mark)
	return true
}

// allowRound counts a round, and reports whether there may be one; m.mu is held.
func (m *Missed) allowRound(from netip.Addr, now time.Time) bool {
	crowd := 0
	for _, x := range m.marks[from] {
		crowd = max(crowd, x.Crowd)
	}

	r := m.rounds[from]
	if now.Sub(r.from) >= returnWithin {
		r = roundCount{from: now}
	}

	r.count++
	m.rounds[from] = r
	if r.count > minRounds+roundsEach*crowd {
		m.refusedRounds++
		return false
	}

	return true
}

// Pending returns the marks that are in force.
func (m *Missed) Pending(now time.Time) map[netip.Addr][]Mark {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pruneLocked(now)
	out := make(map[netip.Addr][]Mark, len(m.marks))
	for from, list := range m.marks {
		out[from] = slices.Clone(list)
	}
	return out
}

func (m *Missed) pruneMarks(from netip.Addr, now time.Time) {
	before := m.marks[from]
	list := slices.DeleteFunc(before, func(x Mark) bool { return !now.Before(x.Until) })
	m.markCount += len(list) - len(before)
	if len(list) == 0 {
		delete(m.marks, from)
		return
	}
	m.marks[from] = list
}

// Prune forgets what is over. Call it now and then.
func (m *Missed) Prune(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pruneLocked(now)
}

func (m *Missed) pruneLocked(now time.Time) {
	for from := range m.marks {
		m.pruneMarks(from, now)
	}

	for from, list := range m.arrivals {
		kept := slices.DeleteFunc(list, func(a Arrival) bool { return now.Sub(a.At) > arrivalFor })
		m.arrivalCount -= len(list) - len(kept)
		if len(kept) == 0 {
			delete(m.arrivals, from)
		} else {
			m.arrivals[from] = kept
		}
	}

	for from, r := range m.rounds {
		if now.Sub(r.from) >= returnWithin {
			delete(m.rounds, from)
		}
	}
}
