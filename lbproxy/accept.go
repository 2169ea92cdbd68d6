package lbproxy

import (
	"net/netip"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// acceptTurn bounds how many connections the loop accepts from a listener before it serves sessions
// again. Listeners are level-triggered, so the loop accepts the remaining connections in its next
// turn.
const acceptTurn = 64

// reservedFDs is the number of descriptors that sessions may not use: they are reserved for
// listeners, logs, the admin socket, checks and pipes.
const reservedFDs = 64 + 2*pipesMax

// listener is a listening socket, watched by the first loop.
type listener struct {
	frontend *frontend
	fd       int
	addr     netip.AddrPort
}

// budget counts the descriptors that sessions may still open. It is safe for concurrent use.
type budget struct{ left, size atomic.Int64 }

func (b *budget) setSize(n int64) { b.left.Store(n); b.size.Store(n) }

func (b *budget) reserve(n int64) bool {
	if b.left.Add(-n) < 0 {
		b.left.Add(n)
		return false
	}
	return true
}

func (b *budget) giveBack(n int64) { b.left.Add(n) }

// listen starts to accept from a listener. Only the loop's goroutine calls it.
func (l *loop) listen(ln *listener) error {
	at := int32(specialList + len(l.listeners))
	if err := l.watchSocket(ln.fd, at, tagSpecial, 0, unix.EPOLLIN); err != nil {
		return err
	}
	l.listeners = append(l.listeners, ln)
	return nil
}

// unlisten stops accepting and closes the sockets.
func (l *loop) unlisten() {
	for i, ln := range l.listeners {
		if ln != nil {
			unix.Close(ln.fd)
			l.listeners[i] = nil
		}
	}
}

func (l *loop) acceptFrom(ln *listener) {
	for range acceptTurn {
		fd, from, e := l.kernel.accept(ln.fd)
		switch e {
		case 0:
			l.admitConnection(ln.frontend, fd, from)
		case unix.EINTR, unix.ECONNABORTED, unix.EPROTO, unix.EPERM, unix.ENETDOWN, unix.ENOPROTOOPT, unix.EHOSTDOWN,
			unix.ENONET, unix.EHOSTUNREACH, unix.EOPNOTSUPP, unix.ENETUNREACH:
			// accept(2): these are errors of a connection, not of the listener
		case unix.EAGAIN:
			return
		case unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM:
			// The budget should have prevented this. Refuse the connection with the spare
			// descriptor: otherwise the waiting connection would wake the loop again and again.
			l.proxy.logFault("accept", e)
			if !l.proxy.refuseOne(ln.fd) {
				return
			}
			ln.frontend.refused[refusedDescriptors].Add(1)
		default:
			l.proxy.logFault("accept", e)
			return
		}
	}
}

// admitConnection applies the limits and starts a session.
func (l *loop) admitConnection(fe *frontend, fd int, from netip.AddrPort) {
	fe.accepted.Add(1)
	why := refusals
	switch a := from.Addr(); {
	case !fe.admits(a):
		why = refusedACL
	case fe.cfg.MaxSessions > 0 && fe.sessions.Load() >= int64(fe.cfg.MaxSessions):
		why = refusedMax
	case !l.proxy.budget.reserve(2):
		why = refusedDescriptors
	case fe.behindProxy(a): // readHeader applies the limits later, when it knows the client's address
	default:
		if why = l.proxy.applySourceLimits(fe, fd, a, l.now); why != refusals {
			l.proxy.budget.giveBack(2)
		}
	}

	if why != refusals {
		fe.refused[why].Add(1)
		l.proxy.sessionLog.connectionRefused(fe, from, why)
		closeSocket(fd)
		return
	}

	fe.sessions.Add(1)
	s := &session{
		frontend:   fe,
		client:     packEndpoint(from),
		source:     packEndpoint(from),
		acceptedAt: l.now,
		fd:         [2]int32{int32(fd), -1},
		altFD:      -1,
		counted:    !fe.behindProxy(from.Addr()),
	}

	s.localClient = from.Addr().IsLoopback() || from.Addr() == localAddr(fd).Addr()
	l.noteClient(s)
	at := l.proxy.leastLoaded(l)
	if at == l {
		l.beginSession(s)
		return
	}

	// The budget of descriptors bounds the inbox of the loop at.
	if !at.runLater(func() { s.acceptedAt = max(s.acceptedAt, at.now); at.beginSession(s) }) {
		l.beginSession(s)
	}
}

// noteClient records that the session's client has sent something, unless it is on this machine.
func (l *loop) noteClient(s *session) {
	if !s.localClient {
		l.lastHeard.Store(l.now)
	}
}

// applySourceLimits applies the limits of sources to a connection for which descriptors are already
// reserved. It returns the reason to refuse the connection, or refusals (the number of reasons) if
// the connection may stay. A fourth of all descriptors is reserved for known sources and this
// machine. Of the rest, the first unknown source gets at most half of the free descriptors, the
// next source half of what then remains, and so on. So a source with few connections is always
// admitted.
func (p *Proxy) applySourceLimits(fe *frontend, fd int, a netip.Addr, now int64) refusal {
	if fe.sources == nil {
		return refusals
	}

	st := standing{local: a.IsLoopback()}
	if !st.local {
		st.known = p.known.contains(a, now)
		size, left := p.budget.size.Load(), p.budget.left.Load()
		switch room := (left - size/4) / 2; {
		case st.known && left >= size/64:
		case !st.known && room > 0:
			st.roomShare = max(room, leastShare)
		case localAddr(fd).Addr() == a.Unmap():
			st.local = true // this machine, from one of its other addresses
		default:
			return refusedReserve
		}
	}

	if !fe.sources.admitSession(a, now, st) {
		return refusedSource
	}

	return refusals
}
