package presence

import (
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Bounds of Missed.
const (
	// returnWithin is how long a mark is valid, counted from the loss of the subscription,
	// whichever master saw the loss. Sending the mark to another master does not prolong it.
	returnWithin = time.Minute
	// arrivalFor is how long a new subscription is stored. A minion's new subscription may arrive
	// before the master notices the end of the old one.
	arrivalFor = 20 * time.Second
	// overflow policy: no further mark is added, and the minions at that address lose the publications that
	// they missed
	maxMarks    = 1 << 16
	maxArrivals = 1 << 16
	// markStep is the interval to which the times of marks are rounded, so that marks with almost
	// equal times become one.
	markStep = 500 * time.Millisecond
	// minRounds is how many resends an address may get per minute. roundsEach is added for each
	// lost subscription from the address, because all subscriptions return whenever a node, its
	// network or the virtual address changes. Overflow policy: no resend. Without this bound a
	// client that is not a minion could cause resends by subscribing again and again.
	minRounds  = 16
	roundsEach = 8
)

// Missed determines which publications a new subscription may have missed. It keeps a mark for each
// address whose subscriptions have ended, were lost, or have stopped answering. A subscription that
// comes from such an address within a minute may have missed the publications in between.
//
// A subscription does not carry the minion's id, and minions may share an address. So a mark
// applies to every subscription from the address, and of several marks the earliest applies.
// Sending a job twice is harmless: a minion ignores jobs that it has run lately, and a minion that
// was restarted is excluded by its id, see [Resender]. Marks may be added in any order and
// repeatedly.
//
// A subscription that a load balancer moved to this master needs no mark, because the load balancer
// states what the subscription has missed. The exception is a subscription that began only
// recently: the master that it left may not have resent to it yet.
type Missed struct {
	mu            sync.Mutex
	base          time.Time // start of the first markStep
	marks         map[netip.Addr][]Mark
	arrivals      map[netip.Addr][]Arrival
	rounds        map[netip.Addr]roundCount
	markCount     int
	arrivalCount  int
	refusedRounds uint64
}

// Mark records that a subscription from an address may have missed publications.
type Mark struct {
	// Since is the time of the first publication that may be missing. A new subscription may use
	// the mark until Until.
	Since, Until time.Time
	Crowd        int // number of subscriptions from the address at about that time
}

// roundCount counts the resends to an address within a minute.
type roundCount struct {
	from  time.Time
	count int
}

// Arrival is a new subscription that may have missed publications.
type Arrival struct {
	ID    uint64    // id of the subscription's connection
	At    time.Time // time of the subscription, which receives all later publications
	Since time.Time // time of the first publication that may be missing
}

// newMissed returns an empty Missed.
func newMissed() *Missed {
	return &Missed{
		marks:    map[netip.Addr][]Mark{},
		arrivals: map[netip.Addr][]Arrival{},
		rounds:   map[netip.Addr]roundCount{},
	}
}

// Arrive records a new subscription from an address, and reports whether the subscription may have
// missed publications. began is the time when the minion first connected. began is before now if
// the load balancer moved the subscription to this master.
func (m *Missed) Arrive(from netip.Addr, id uint64, began, now time.Time) (Arrival, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pruneMarks(from, now)
	a := Arrival{ID: id, At: now, Since: now}
	first := slices.IndexFunc(m.marks[from], func(x Mark) bool { return began.Before(x.Until) })
	if first >= 0 {
		a.Since = m.marks[from][first].Since
	}

	if m.arrivalCount < maxArrivals { // a mark with an earlier time may be added later
		m.arrivals[from] = append(m.arrivals[from], a)
		m.arrivalCount++
	}

	// began is before now only if the cluster's load balancer moved the subscription to this
	// master. A client cannot cause that, so resends to moved subscriptions are not bounded.
	moved := began.Before(now)
	return a, a.Since.Before(now) && (moved || m.allowRound(from, now))
}

// Mark adds a mark to an address. It returns the recent arrivals from that address that may,
// according to this mark, have missed earlier publications than Arrive reported.
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

// addMark adds a mark, or extends a mark with the same time. It returns false if there are too many
// marks. The caller holds m.mu.
func (m *Missed) addMark(from netip.Addr, mark Mark) bool {
	if m.base.IsZero() {
		m.base = mark.Since
	}

	step := mark.Since.Sub(m.base) / markStep
	if mark.Since.Before(m.base) {
		step-- // round down, also if the number is negative
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

// allowRound counts a resend to an address, and reports whether the resend is allowed. The caller
// holds m.mu.
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

// Pending returns the valid marks, and the expired marks that still apply to recent arrivals. The
// key is the address.
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
	list := slices.DeleteFunc(before, func(x Mark) bool { return !now.Before(x.Until.Add(givenWithin)) })
	m.markCount += len(list) - len(before)
	if len(list) == 0 {
		delete(m.marks, from)
		return
	}
	m.marks[from] = list
}

// Prune drops expired marks and arrivals. Call it regularly.
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
