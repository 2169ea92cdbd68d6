package event

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"path/filepath"
)

// errSettled closes the connection of passed, which is neither a reader nor a writer.
var errSettled = errors.New("event: settled")

// Settle waits until everybody who connected to the pub socket before the call is a reader. The
// kernel reports a connection to its client before the server has accepted it, so the client could
// miss what is fired at its request. Call Settle before starting something that a client waits for.
// An error means that this is not certain.
func (s *Server) Settle(ctx context.Context) error {
	if err := s.passed(ctx, pubName); err != nil {
		return fmt.Errorf("event socket: waiting for its readers: %w", err)
	}
	return nil
}

// passed waits until a socket has accepted all earlier connections. It makes a connection of its
// own and waits for that one, since a socket accepts connections in order.
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
