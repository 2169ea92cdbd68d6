package event

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"path/filepath"
)

// errSettled closes the connection of passed; it is no reader or writer.
var errSettled = errors.New("event: settled")

// Settle returns when everybody who had connected to the pub socket before is
// a reader. The kernel tells a client that it is connected when its
// connection waits to be accepted, so that what is fired at its request could
// be missed: who starts something that a client waits for calls Settle first.
// An error says that this is not certain.
func (s *Server) Settle(ctx context.Context) error {
	if err := s.passed(ctx, pubName); err != nil {
		return fmt.Errorf("event socket: waiting for its readers: %w", err)
	}
	return nil
}

// passed returns when a socket has accepted all connections of before, known by one of its
// own: it accepts them in the order in which they were made.
func (s *Server) passed(ctx context.Context, socket string) error {
	name := "@saltern-settle-" + rand.Text()
	accepted := make(chan struct{})
	s.mu.Lock()
	s.settling[name] = accepted
	s.mu.Unlock()

	defer func() {
		s.mu.Lock()
		delete(s.settling, name)
		s.mu.Unlock()
	}()

	d := net.Dialer{LocalAddr: &net.UnixAddr{Name: name, Net: "unix"}}
	c, err := d.DialContext(ctx, "unix", filepath.Join(s.cfg.Dir, socket))
	if err != nil {
		return err
	}
	defer c.Close()

	select {
	case <-accepted:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// settled reports whether a connection is one of passed; s.mu is held.
func (s *Server) settled(c *net.UnixConn) bool {
	done, ok := s.settling[c.RemoteAddr().String()]
	if ok {
		close(done)
		delete(s.settling, c.RemoteAddr().String())
	}
	return ok
}
