package lbproxy

import (
	"net/netip"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// acceptTurn bounds how many connections a listener gives before sessions
// have their turn; listeners are level-triggered, so the rest comes next.
const acceptTurn = 64

// reservedFDs stay out of the budget: listeners, logs, admin, checks, pipes.
const reservedFDs = 64 + 2*pipesMax

// listener is a listening socket, watched by the first loop.
type listener struct {
	fe   *frontend
	fd   int
	addr netip.AddrPort
}

// budget counts descriptors of sessions. Safe for concurrent use.
type budget struct{ left, size atomic.Int64 }

func (b *budget) set(n int64) { b.left.Store(n); b.size.Store(n) }

func (b *budget) take(n int64) bool {
	if b.left.Add(-n) < 0 {
		b.left.Add(n)
		return false
	}
	return true
}

func (b *budget) give(n int64) { b.left.Add(n) }

// listen watches a listener; the loop's goroutine only.
func (l *loop) listen(ln *listener) error {
	at := int32(specialList + len(l.lns))
	if err := l.watch(ln.fd, at, sideSpecial, 0, unix.EPOLLIN); err != nil {
		return err
	}
	l.lns = append(l.lns, ln)
	return nil
}

// unlisten stops accepting and closes the sockets.
func (l *loop) unlisten() {
	for i, ln := range l.lns {
		if ln != nil {
			unix.Close(ln.fd)
			l.lns[i] = nil
		}
	}
}

func (l *loop) acceptFrom(ln *listener) {
	for range acceptTurn {
		fd, from, e := l.k.accept(ln.fd)
		switch e {
		case 0:
			l.admit(ln.fe, fd, from)
		case unix.EINTR, unix.ECONNABORTED, unix.EPROTO, unix.EPERM, unix.ENETDOWN, unix.ENOPROTOOPT, unix.EHOSTDOWN,
			unix.ENONET, unix.EHOSTUNREACH, unix.EOPNOTSUPP, unix.ENETUNREACH:
			// accept(2): errors of the one connection, not of the listener
		case unix.EAGAIN:
			return
		case unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM:
			// The budget should have prevented this. Make room to refuse one,
			// or the waiting connection would wake the loop for ever.
			l.p.fault("accept", e)
			if !l.p.refuseOne(ln.fd) {
				return
			}
			ln.fe.refused[refusedDescriptors].Add(1)
		default:
			l.p.fault("accept", e)
			return
		}
	}
}

// admit applies the limits and starts a session.
func (l *loop) admit(fe *frontend, fd int, from netip.AddrPort) {
	fe.accepted.Add(1)
	why := refusals
	switch a := from.Addr(); {
	case !fe.admits(a):
		why = refusedACL
	case fe.cfg.MaxSessions > 0 && fe.sessions.Load() >= int64(fe.cfg.MaxSessions):
		why = refusedMax
	case !l.p.budget.take(2):
		why = refusedDescriptors
	case fe.behind(a): // its client is judged when the header tells of it
	default:
		if why = l.p.judge(fe, fd, a, l.now); why != refusals {
			l.p.budget.give(2)
		}
	}

	if why != refusals {
		fe.refused[why].Add(1)
		l.p.sessionLog.refused(fe, from, why)
		closeSocket(fd)
		return
	}

	fe.sessions.Add(1)
	s := &session{
		fe:     fe,
		client: pack(from),
		peer:   pack(from),
		start:  l.now,
		fd:     [2]int32{int32(fd), -1},
		altFD:  -1,
		counts: !fe.behind(from.Addr()),
	}

	s.local = from.Addr().IsLoopback() || from.Addr() == localAddr(fd).Addr()
	l.heard(s)
	at := l.p.emptiest(l)
	if at == l {
		l.begin(s)
		return
	}

	// Bounded by the descriptor budget, which this session has taken from.
	if !at.post(func() { s.start = max(s.start, at.now); at.begin(s) }) {
		l.begin(s)
	}
}

// heard notes that a client's machine has sent something.
func (l *loop) heard(s *session) {
	if !s.local {
		l.lastHeard.Store(l.now)
	}
}

// judge applies the limits of sources to a connection that has its descriptors;
// refusals means that it is let in. A fourth of all descriptors stays for known
// sources and this machine. Of the rest an unknown source may take what is left
// for the others, so one gets a half at most, the next one a half of the other
// half, and there is always room for one that comes with a few.
func (p *Proxy) judge(fe *frontend, fd int, a netip.Addr, now int64) refusal {
	if fe.sources == nil {
		return refusals
	}

	st := standing{local: a.IsLoopback()}
	if !st.local {
		st.known = p.known.has(a, now)
		size, left := p.budget.size.Load(), p.budget.left.Load()
		switch room := (left - size/4) / 2; {
		case st.known && left >= size/64:
		case !st.known && room > 0:
			st.share = max(room, leastShare)
		case localAddr(fd).Addr() == a.Unmap():
			st.local = true // this machine, by another of its addresses
		default:
			return refusedReserve
		}
	}

	if !fe.sources.open(a, now, st) {
		return refusedSource
	}

	return refusals
}
