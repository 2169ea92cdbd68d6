package event

import (
	"context"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// AwaitWriters waits until the bus has all events that were written to the pull socket on
// connections that are closed by now. That includes the events of a process that has ended, so call
// AwaitWriters before reporting the end of a process.
func (s *Server) AwaitWriters(ctx context.Context) error {
	if err := s.passed(ctx, pullName); err != nil {
		return fmt.Errorf("event socket: waiting for its writers: %w", err)
	}

	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for s.hungUp() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("event socket: waiting for its writers: %w", ctx.Err())
		}
	}

	return nil
}

// hungUp reports whether some writer has closed its connection and the server has not read all of
// its data yet.
func (s *Server) hungUp() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.writers {
		if hasHungUp(c) {
			return true
		}
	}
	return false
}

// hasHungUp reports whether the other end of a connection is closed.
func hasHungUp(c *net.UnixConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	hungUp := false
	_ = raw.Control(func(fd uintptr) {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(poll, 0)
		hungUp = err == nil && n == 1 && poll[0].Revents&(unix.POLLRDHUP|unix.POLLHUP) != 0
	})
	return hungUp
}
