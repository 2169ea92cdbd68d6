package lbproxy

import (
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// State is what a backend's port is to the balancer.
type State int32

// A port starts Unknown, which counts as up for choosing only when nothing
// else is up. Joining is a master that answers but is not ready yet. Unwell is one
// that answers and says that it can keep no jobs: its sessions are moved to others, and
// new ones come to it only while no other is up.
const (
	Unknown State = iota
	Up
	Joining
	Down
	Unwell
)

var stateNames = [...]string{"unknown", "up", "joining", "down", "unwell"}

func (s State) String() string { return stateNames[s] }

// MarshalText makes states words in JSON.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads such a word.
func (s *State) UnmarshalText(b []byte) error {
	for i, n := range stateNames {
		if n == string(b) {
			*s = State(i)
			return nil
		}
	}
	*s = Unknown
	return nil
}

// backend is one master with its member in each frontend.
type backend struct {
	name string
	cfg  Backend

	weight      atomic.Int32
	draining    atomic.Bool
	maintenance atomic.Bool
	removing    atomic.Bool
	members     []*member // fixed once the backend is in the list
}

// closedToNew says that an administrator wants no new sessions here.
func (b *backend) closedToNew() bool {
	return b.draining.Load() || b.maintenance.Load() || b.removing.Load()
}

// unwell reports whether the master says that it can keep no jobs.
func (b *backend) unwell() bool {
	return slices.ContainsFunc(b.members, func(m *member) bool { return m.State() == Unwell })
}

// member is one backend in one frontend. All fields are atomic or fixed.
type member struct {
	frontend *frontend
	backend  *backend
	addr     netip.AddrPort
	index    uint // in the frontend's set of tried members

	sendsHeader bool   // its connections begin with a PROXY header
	seed        uint64 // of its name, for Balance source

	state     atomic.Int32
	upAt      atomic.Int64 // clock when it last came up
	lastUp    atomic.Int64 // clock when it was last seen up
	lastHeard atomic.Int64 // clock of the last bytes from any session of it
	racesLost atomic.Int32 // races lost in a row
	sessions  atomic.Int64
	evidence  chan evidence // evidence for the checker; full means it is on its way

	sessionsTotal, bytesUp, bytesDown, refusals, resets, cuts atomic.Uint64

	credit int64 // smooth round robin, under frontend.mu
}

// evidence is evidence from the data path.
type evidence struct {
	err     error
	certain bool // refused, reset, no route: certain, not merely late
}

func (m *member) State() State { return State(m.state.Load()) }

// effectiveWeight is the weight in thousandths, ramped after coming up.
func (m *member) effectiveWeight(now int64) int64 {
	w := int64(m.backend.weight.Load()) * 1000
	ramp := int64(m.frontend.proxy.cfg.Health.SlowStart)
	if since := now - m.upAt.Load(); ramp > 0 && m.upAt.Load() > 0 && since < ramp {
		w = max(w/10, w*max(since, 0)/ramp)
	}
	return max(w, 1)
}

// sessionLeft takes a session off, or a dial that came to nothing.
func (m *member) sessionLeft(up, down uint64) {
	m.sessions.Add(-1)
	m.bytesUp.Add(up)
	m.bytesDown.Add(down)
}

// noteBytes notes bytes from the backend, ten times a second at most.
func (m *member) noteBytes(now int64) {
	if last := m.lastHeard.Load(); last == 0 || now-last > int64(100*time.Millisecond) {
		m.lastHeard.Store(max(now, 1))
	}
}

// heardWithin reports whether a session got bytes from the backend within d.
func (m *member) heardWithin(now int64, d time.Duration) bool {
	return m.sessions.Load() > 0 && m.lastHeard.Load() > 0 && now-m.lastHeard.Load() < int64(d)
}

func (m *member) dialWon() {
	m.sessionsTotal.Add(1)
	m.racesLost.Store(0)
}

// lostRace counts a dial that stayed silent; two in a row ask for a check.
func (m *member) lostRace() {
	if m.racesLost.Add(1) >= 2 {
		m.racesLost.Store(0)
		m.reportEvidence(evidence{err: errSilent})
	}
}

// dialRefused counts a dial that failed. A reset may come from a master that is at
// its bound, and proves nothing while its sessions get bytes.
func (m *member) dialRefused(e unix.Errno) {
	m.refusals.Add(1)
	p := m.frontend.proxy
	full := e == unix.ECONNRESET && m.heardWithin(p.clock(), p.cfg.Health.Silence)
	m.reportEvidence(evidence{err: connectError{e}, certain: e != unix.ETIMEDOUT && !full})
}

// sessionReset counts a session that the backend broke off.
func (m *member) sessionReset() {
	m.resets.Add(1)
	m.reportEvidence(evidence{err: unix.ECONNRESET})
}

func (m *member) reportEvidence(p evidence) {
	select {
	case m.evidence <- p:
	default:
	}
}
