package localsock

import (
	"net"
	"sync"

	"golang.org/x/sys/unix"
)

// Limit returns a listener that keeps at most maxConns connections of ln open at once. It closes
// further connections immediately, because a waiting connection would use a descriptor, too. It
// closes each connection for which admit returns false. admit may be nil: Limit then admits all.
func Limit(ln net.Listener, maxConns int, admit func(net.Conn) bool) net.Listener {
	return &limited{ln, admit, make(chan struct{}, maxConns)}
}

type limited struct {
	net.Listener
	admit func(net.Conn) bool
	room  chan struct{}
}

func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.admit != nil && !l.admit(c) {
			_ = c.Close()
			continue
		}

		select {
		case l.room <- struct{}{}:
			return &conn{c, sync.OnceFunc(func() { <-l.room })}, nil
		default: // too many connections: close the newest
			_ = c.Close()
		}
	}
}

// Queue returns a listener that keeps at most maxConns connections of ln open at once. Further
// connections wait in the kernel's queue, where they use no descriptor, and are accepted in their
// order. If a caller closes its connection while it waits, Queue drops the connection, so that no
// abandoned request is carried out. Queue closes each connection for which admit returns false.
// admit may be nil: Queue then admits all.
//
// Queue suits callers that use a connection for only one request: a connection that stays open
// delays all others.
func Queue(ln net.Listener, maxConns int, admit func(net.Conn) bool) net.Listener {
	return &queue{
		Listener: ln,
		admit:    admit,
		room:     make(chan struct{}, maxConns),
		closed:   make(chan struct{}),
	}
}

type queue struct {
	net.Listener
	admit  func(net.Conn) bool
	room   chan struct{}
	closed chan struct{}
	once   sync.Once // closes the channel closed only once
}

func (q *queue) Accept() (net.Conn, error) {
	select {
	case q.room <- struct{}{}:
	case <-q.closed:
		return nil, net.ErrClosed
	}

	for {
		c, err := q.Listener.Accept()
		if err != nil {
			<-q.room
			return nil, err
		}

		if gone(c) || q.admit != nil && !q.admit(c) {
			_ = c.Close()
			continue
		}
		return &conn{c, sync.OnceFunc(func() { <-q.room })}, nil
	}
}

// Close closes the listener, and ends an Accept that waits until a connection is closed.
func (q *queue) Close() error {
	q.once.Do(func() { close(q.closed) })
	return q.Listener.Close()
}

// gone reports whether the peer of a unix connection has closed it. A peer that has closed only its
// sending side still waits for an answer, and gone returns false for it.
func gone(c net.Conn) (yes bool) {
	u := Unix(c)
	if u == nil {
		return false
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return true // the connection is closed on this side
	}

	err = raw.Control(func(fd uintptr) {
		look := []unix.PollFd{{Fd: int32(fd)}} // POLLHUP and POLLERR are always reported
		n, err := unix.Poll(look, 0)
		yes = err == nil && n > 0 && look[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
	})
	return yes || err != nil
}

// conn frees its place when it is closed.
type conn struct {
	net.Conn
	free func()
}

func (c *conn) Close() error {
	c.free()
	return c.Conn.Close()
}

// CloseWrite ends the sending side only, so that package http can close a connection after the peer
// has read the answer.
func (c *conn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return c.Conn.Close()
}

// Unix returns the unix connection that c is, or that [Limit] has wrapped, otherwise nil.
func Unix(c net.Conn) *net.UnixConn {
	if l, ok := c.(*conn); ok {
		c = l.Conn
	}
	u, _ := c.(*net.UnixConn)
	return u
}
