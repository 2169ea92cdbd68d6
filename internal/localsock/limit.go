package localsock

import (
	"net"
	"sync"
)

// Limit returns a listener that holds at most maxConns connections of ln open at once. It closes
// further ones immediately, because a waiting connection would hold a descriptor as well. It also
// closes each connection for which admit returns false. admit may be nil: all are admitted.
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
