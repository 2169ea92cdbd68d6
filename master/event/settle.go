package event

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"path/filepath"
)

// errSettled closes the connection of Settle or Drain; it is no reader or writer.
var errSettled = errors.New("event: settled")

// Settle returns when everybody who had connected to the pub socket before is
// a reader. The kernel tells a client that it is connected when its
// connection waits to be accepted, so that what is fired at its request could
// be missed: who starts something that a client waits for calls Settle first.
// An error says that this is not certain.
//
// It connects to the socket itself, which accepts in the order of arrival.
func (s *Server) Settle(ctx context.Context) error {
	name := "@saltern-settle-" + rand.Text()
	done := make(chan struct{})
	s.mu.Lock()
	s.settling[name] = done
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.settling, name)
		s.mu.Unlock()
	}()
	d := net.Dialer{LocalAddr: &net.UnixAddr{Name: name, Net: "unix"}}
	c, err := d.DialContext(ctx, "unix", filepath.Join(s.cfg.Dir, pubName))
	if err != nil {
		return fmt.Errorf("event socket: waiting for its readers: %w", err)
	}
	defer c.Close()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("event socket: waiting for its readers: %w", ctx.Err())
	}
}

// settled reports whether a connection is one of Settle or Drain; s.mu is held.
func (s *Server) settled(c *net.UnixConn) bool {
	done, ok := s.settling[c.RemoteAddr().String()]
	if ok {
		close(done)
		delete(s.settling, c.RemoteAddr().String())
	}
	return ok
}
