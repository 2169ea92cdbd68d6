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

	weight   atomic.Int32
	drain    atomic.Bool
	maint    atomic.Bool
	removing atomic.Bool
	members  []*member // fixed once the backend is in the list
}

// closedTo says that an administrator wants no new sessions here.
func (b *backend) closedTo() bool { return b.drain.Load() || b.maint.Load() || b.removing.Load() }

// unwell reports whether the master says that it can keep no jobs.
func (b *backend) unwell() bool {
	return slices.ContainsFunc(b.members, func(m *member) bool { return m.State() == Unwell })
}

// member is one backend in one frontend. All fields are atomic or fixed.
type member struct {
	fe   *frontend
	be   *backend
	addr netip.AddrPort
	idx  uint // in the frontend's set of tried members

	header bool   // its connections begin with a PROXY header
	seed   uint64 // of its name, for Balance source

	state atomic.Int32
	upAt  atomic.Int64 // clock when it last came up
	last  atomic.Int64 // clock when it was last seen up
	rx    atomic.Int64 // clock of the last bytes from any session of it
	lost  atomic.Int32 // races lost in a row
	conns atomic.Int64
	kick  chan passive // evidence for the checker; full means it is on its way

	total, up, down, refusals, resets, cuts atomic.Uint64

	deal int64 // smooth round robin, under frontend.mu
}

// passive is evidence from the data path.
type passive struct {
	err   error
	plain bool // refused, reset, no route: certain, not merely late
}

func (m *member) State() State { return State(m.state.Load()) }

// effective is the weight in thousandths, ramped after coming up.
func (m *member) effective(now int64) int64 {
	w := int64(m.be.weight.Load()) * 1000
	ramp := int64(m.fe.p.cfg.Health.SlowStart)
	if since := now - m.upAt.Load(); ramp > 0 && m.upAt.Load() > 0 && since < ramp {
		w = max(w/10, w*max(since, 0)/ramp)
	}
	return max(w, 1)
}

// left takes a session off, or a dial that came to nothing.
func (m *member) left(up, down uint64) {
	m.conns.Add(-1)
	m.up.Add(up)
	m.down.Add(down)
}

// heard notes bytes from the backend, ten times a second at most.
func (m *member) heard(now int64) {
	if last := m.rx.Load(); last == 0 || now-last > int64(100*time.Millisecond) {
		m.rx.Store(max(now, 1))
	}
}

// talks reports whether a session got bytes from the backend within d.
func (m *member) talks(now int64, d time.Duration) bool {
	return m.conns.Load() > 0 && m.rx.Load() > 0 && now-m.rx.Load() < int64(d)
}

func (m *member) won() {
	m.total.Add(1)
	m.lost.Store(0)
}

// lostRace counts a dial that stayed silent; two in a row ask for a check.
func (m *member) lostRace() {
	if m.lost.Add(1) >= 2 {
		m.lost.Store(0)
		m.tell(passive{err: errSilent})
	}
}

// refused counts a dial that failed. A reset may come from a master that is at
// its bound, and proves nothing while its sessions get bytes.
func (m *member) refused(e unix.Errno) {
	m.refusals.Add(1)
	p := m.fe.p
	full := e == unix.ECONNRESET && m.talks(p.clock(), p.cfg.Health.Silence)
	m.tell(passive{err: connectError{e}, plain: e != unix.ETIMEDOUT && !full})
}

// reset counts a session that the backend broke off.
func (m *member) reset() {
	m.resets.Add(1)
	m.tell(passive{err: unix.ECONNRESET})
}

func (m *member) tell(p passive) {
	select {
	case m.kick <- p:
	default:
	}
}
