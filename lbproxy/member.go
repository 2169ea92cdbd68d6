package lbproxy

import (
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// State is the state of a backend's port.
type State int32

// A port starts Unknown: it gets sessions only if no other port is up. Joining means that the
// master answers but is not ready yet. Unwell means that the master reports that it cannot store
// jobs: its sessions move to other masters, and it gets new sessions only if no other port is up.
const (
	Unknown State = iota
	Up
	Joining
	Down
	Unwell
)

var stateNames = [...]string{"unknown", "up", "joining", "down", "unwell"}

func (s State) String() string { return stateNames[s] }

// MarshalText returns the state's name, which JSON then contains.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText parses the name of a state. An unknown name becomes Unknown.
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

// backend is a master, with a member for each frontend.
type backend struct {
	name string
	cfg  Backend

	weight      atomic.Int32
	draining    atomic.Bool
	maintenance atomic.Bool
	removing    atomic.Bool
	members     []*member // fixed once the backend is in the list
}

// closedToNew reports whether an administrator allows no new sessions here.
func (b *backend) closedToNew() bool {
	return b.draining.Load() || b.maintenance.Load() || b.removing.Load()
}

// unwell reports whether the master says that it cannot store jobs.
func (b *backend) unwell() bool {
	return slices.ContainsFunc(b.members, func(m *member) bool { return m.State() == Unwell })
}

// member is a backend in a frontend. Its fields are atomic or never change, unless a comment says
// otherwise.
type member struct {
	frontend *frontend
	backend  *backend
	addr     netip.AddrPort
	index    uint // index in frontend.members, and the member's bit in session.tried

	sendsHeader bool   // whether connections to the member begin with a PROXY header
	seed        uint64 // hash of the backend's name, for balance "source"

	state     atomic.Int32
	upAt      atomic.Int64 // clock when the member last came up
	lastUp    atomic.Int64 // time of the loop's clock when the member was last up
	lastHeard atomic.Int64 // clock of the last bytes in any session
	racesLost atomic.Int32 // number of hedged dials in a row in which this member stayed silent
	sessions  atomic.Int64
	evidence  chan evidence // failures for the checker; if the channel is full, the checker is about to check anyway

	sessionsTotal, bytesUp, bytesDown, refusals, resets, cuts atomic.Uint64

	credit int64 // decides among equal members (smooth round robin); guarded by frontend.mu
}

// evidence is a failure that a session or a dial ran into.
type evidence struct {
	err     error
	certain bool // refused, reset or no route; false for a late answer
}

func (m *member) State() State { return State(m.state.Load()) }

// effectiveWeight returns the weight in thousandths. It rises slowly after the member came up.
func (m *member) effectiveWeight(now int64) int64 {
	w := int64(m.backend.weight.Load()) * 1000
	ramp := int64(m.frontend.proxy.cfg.Health.SlowStart)
	if since := now - m.upAt.Load(); ramp > 0 && m.upAt.Load() > 0 && since < ramp {
		w = max(w/10, w*max(since, 0)/ramp)
	}
	return max(w, 1)
}

// sessionLeft counts the end of a session, or of a dial that failed, and the bytes it moved.
func (m *member) sessionLeft(up, down uint64) {
	m.sessions.Add(-1)
	m.bytesUp.Add(up)
	m.bytesDown.Add(down)
}

// noteBytes records the time at which bytes came from the backend, at most ten times a second.
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

// lostRace counts a dial that stayed silent. After two in a row the checker runs a check at once.
func (m *member) lostRace() {
	if m.racesLost.Add(1) >= 2 {
		m.racesLost.Store(0)
		m.reportEvidence(evidence{err: errSilent})
	}
}

// dialRefused counts a dial that failed. A reset does not count while the sessions of the master
// get bytes: the master may only be at its limit of connections.
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
