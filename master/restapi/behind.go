package restapi

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"saltern/internal/durable"
	"saltern/internal/localsock"
	"saltern/internal/proxyproto"
	"saltern/master/value"
)

// Behind the load balancers of a cluster, each connection begins with a PROXY header that names the
// client's address. Limits, api_acl and the audit record use that address. Only a load balancer may
// connect to this port, with a header or without.

const (
	headerTime   = 3 * time.Second // time in which a load balancer must send the PROXY header
	maxBalancers = 16 << 10        // largest size in bytes of the file that names the load balancers
)

// behindBalancers returns the address on which salt-api listens for the load balancers. It returns
// "" when salt-api listens for clients itself, because a section of the configuration names another
// host or port.
func behindBalancers(section, given *value.Map) string {
	at := given.Str("behind")
	if host, said := section.Get("host"); said && host != given.Value("host") {
		s, _ := host.(string)
		if ip, err := netip.ParseAddr(strings.Trim(s, "[]")); err != nil || !ip.IsUnspecified() {
			return ""
		}
	}
	if port, said := section.Get("port"); said && !value.Equal(port, given.Value("port")) {
		return ""
	}
	return at
}

// balancers holds the addresses of the load balancers. It reads them from a file, and rereads the
// file when the cluster's masters, and so the file, have changed. Its methods may be called
// concurrently.
type balancers struct {
	path string

	mu   sync.Mutex
	seen fs.FileInfo
	list []netip.Prefix
}

// sentBy reports whether a connection comes from a load balancer.
func (b *balancers) sentBy(c net.Conn) bool {
	ap, err := netip.ParseAddrPort(c.RemoteAddr().String())
	return err == nil && b.contains(ap.Addr())
}

// contains reports whether an address belongs to a load balancer. If the file does not exist, it
// returns false.
func (b *balancers) contains(a netip.Addr) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	info, err := os.Stat(b.path)
	if err != nil {
		return false
	}
	if b.seen == nil || !os.SameFile(b.seen, info) || !b.seen.ModTime().Equal(info.ModTime()) ||
		b.seen.Size() != info.Size() {
		b.list, b.seen = readBalancers(b.path), info
	}
	a = a.Unmap().WithZone("")
	return slices.ContainsFunc(b.list, func(p netip.Prefix) bool { return p.Contains(a) })
}

func readBalancers(path string) (list []netip.Prefix) {
	text, err := durable.Read(path, maxBalancers)
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		if p, err := netip.ParsePrefix(strings.TrimSpace(line)); err == nil {
			list = append(list, p)
		}
	}
	return list
}

// listenBehind opens the port for the load balancers.
func (s *Server) listenBehind() (net.Listener, error) {
	ln, err := net.Listen("tcp", s.opts.Behind)
	if err != nil {
		return nil, fmt.Errorf("listen for the load balancers: %w", err)
	}

	return listenProxied(localsock.Limit(ln, maxSockets, func(c net.Conn) bool {
		if s.balancers.sentBy(c) {
			return true
		}
		s.count.refused.Add(1)
		s.quiet.Warn("a connection for load balancers comes from none; clients use the front", "peer", c.RemoteAddr())
		return false
	}), func(c net.Conn, err error) {
		s.count.refused.Add(1)
		s.quiet.Warn("a load balancer says not whose connection it is", "peer", c.RemoteAddr(), "error", err)
	}), nil
}

// proxiedListener is a listener that reads the PROXY header of each connection, in which the load
// balancer names the client, before Accept returns the connection.
type proxiedListener struct {
	net.Listener
	bad   func(c net.Conn, err error)
	ready chan net.Conn
	ended chan struct{}
	end   func()
	wg    sync.WaitGroup
	err   error // error that Accept returns; set before ended is closed
}

func listenProxied(ln net.Listener, bad func(net.Conn, error)) *proxiedListener {
	t := &proxiedListener{Listener: ln, bad: bad, ready: make(chan net.Conn), ended: make(chan struct{})}
	t.end = sync.OnceFunc(func() { close(t.ended) })
	t.wg.Go(t.acceptLoop)
	return t
}

// acceptLoop accepts until the listener is closed.
func (t *proxiedListener) acceptLoop() {
	for {
		c, err := t.Listener.Accept()
		var passing net.Error
		switch {
		case err == nil:
			t.wg.Go(func() { t.readHeader(c) })
		case errors.As(err, &passing) && passing.Timeout():
		default:
			t.err = err
			t.end()
			return
		}
	}
}

// readHeader reads the PROXY header of a connection and passes the connection to Accept.
func (t *proxiedListener) readHeader(c net.Conn) {
	_ = c.SetReadDeadline(time.Now().Add(headerTime))
	client, err := proxyproto.Read(c)
	if err != nil {
		t.bad(c, err)
		_ = c.Close()
		return
	}

	_ = c.SetReadDeadline(time.Time{})
	if client.IsValid() {
		c = &proxiedConn{c, net.TCPAddrFromAddrPort(client)}
	}

	select {
	case t.ready <- c:
	case <-t.ended:
		_ = c.Close()
	}
}

func (t *proxiedListener) Accept() (net.Conn, error) {
	select {
	case c := <-t.ready:
		return c, nil
	case <-t.ended:
		if t.err == nil {
			return nil, net.ErrClosed
		}
		return nil, t.err
	}
}

// Close closes the listener. It waits until the headers that are being read have arrived or have
// exceeded their deadline.
func (t *proxiedListener) Close() error {
	err := t.Listener.Close()
	t.wg.Wait()
	return err
}

// proxiedConn is the connection of a client that came through a load balancer.
type proxiedConn struct {
	net.Conn
	client net.Addr
}

func (c *proxiedConn) RemoteAddr() net.Addr { return c.client }

// CloseWrite exists for package http; see [localsock.Limit].
func (c *proxiedConn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return c.Conn.Close()
}
