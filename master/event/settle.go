package event

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"path/filepath"
)

// errSettled is the reason for closing a connection that the method passed opened: it is neither a
// reader nor a writer.
var errSettled = errors.New("event: settled")

// Settle waits until every client that connected to the pub socket before the call is registered as
// a reader. The kernel completes a connection before the server has accepted it, so a client could
// miss an event that its own request causes. Call Settle before starting anything whose events a
// client waits for. After an error some client may not be a reader yet.
func (s *Server) Settle(ctx context.Context) error {
	if err := s.passed(ctx, pubName); err != nil {
		return fmt.Errorf("event socket: waiting for its readers: %w", err)
	}
	return nil
}

// passed waits until the server has accepted all connections to a socket that clients opened before
// the call. It opens another connection and waits until the server has accepted that one, since the
// server accepts in order.
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

// settled reports whether the method passed opened the connection c. If so, settled wakes that call
// of passed. The caller holds s.mu.
func (s *Server) settled(c *net.UnixConn) bool {
	done, ok := s.settling[c.RemoteAddr().String()]
	if ok {
		close(done)
		delete(s.settling, c.RemoteAddr().String())
	}
	return ok
}
