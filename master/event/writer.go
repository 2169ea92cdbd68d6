package event

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"
)

// skippable is the size in bytes of the largest frame that the server skips; a larger frame ends
// the connection.
const skippable = 64 << 20

// addWriter serves a connection on the pull socket.
func (s *Server) addWriter(c *net.UnixConn) error {
	return s.addSource(c, func(error) error { return nil })
}

// addConfirmed serves a connection on which the server answers each event, in order.
func (s *Server) addConfirmed(c *net.UnixConn) error {
	return s.addSource(c, func(err error) error {
		if e := c.SetWriteDeadline(time.Now().Add(s.cfg.FrameTimeout)); e != nil {
			return e
		}
		_, e := c.Write(appendAnswer(nil, err))
		return e
	})
}

// addSource serves a connection on which a process sends events. It calls answer with the outcome
// of each event. The mode of the sockets keeps other users away. addSource also checks the user
// that the kernel reports, in case an administrator has widened the mode.
func (s *Server) addSource(c *net.UnixConn, answer func(error) error) error {
	uid, err := s.cfg.peerUID(c)
	if err != nil {
		return err
	}
	if !s.mayFire(uid) {
		return fmt.Errorf("user %d may not fire events", uid)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.stopped:
		return net.ErrClosed
	case s.settled(c):
		return errSettled
	case len(s.writers) >= s.cfg.MaxWriters:
		return fmt.Errorf("%d writers already", len(s.writers))
	}

	s.writers[c] = struct{}{}
	s.reading.Go(func() {
		err := s.readWriter(c, answer)
		c.Close()
		s.mu.Lock()
		delete(s.writers, c)
		s.mu.Unlock()

		if err != nil && !errors.Is(err, net.ErrClosed) {
			s.log.Warn("event socket: writer cut off", "uid", uid, "error", err)
		}
	})

	return nil
}

// readWriter puts the events of one writer on the bus until the writer closes the connection. It
// counts and skips frames that contain no event: the length prefix shows where the next frame
// starts. A writer may be silent without limit between frames but not inside a frame.
func (s *Server) readWriter(c *net.UnixConn, answer func(error) error) error {
	in := bufio.NewReaderSize(c, 16<<10)
	for {
		if err := c.SetReadDeadline(time.Time{}); err != nil {
			return err
		}

		if _, err := in.Peek(1); err != nil {
			return ignoreHangup(err)
		}

		if err := c.SetReadDeadline(time.Now().Add(s.cfg.FrameTimeout)); err != nil {
			return err
		}

		var head [prefixLen]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return ignoreHangup(err)
		}

		n := int64(binary.BigEndian.Uint32(head[:]))
		switch {
		case n > skippable:
			s.bad.Add(1)
			return fmt.Errorf("%w: claims %d bytes", errFrame, n)
		case n > int64(s.cfg.MaxFrame):
			s.bad.Add(1)
			s.log.Warn("event socket: frame too large, skipped", "bytes", n, "limit", s.cfg.MaxFrame)
			if _, err := io.CopyN(io.Discard, in, n); err != nil {
				return ignoreHangup(err)
			}

			if err := answer(fmt.Errorf("%w: %d bytes, the limit is %d", errFrame, n, s.cfg.MaxFrame)); err != nil {
				return ignoreHangup(err)
			}

			continue
		}

		var frame bytes.Buffer // the buffer grows with the bytes that arrive, not with the length in the prefix
		if _, err := io.CopyN(&frame, in, n); err != nil {
			return ignoreHangup(err)
		}

		err := s.takeFrame(frame.Bytes())
		if err != nil {
			s.bad.Add(1)
			s.log.Warn("event socket: bad event skipped", "error", err)
		}

		if err := answer(err); err != nil {
			return ignoreHangup(err)
		}
	}
}

// takeFrame puts the event in a frame on the bus. Readers get the original bytes of the event,
// unless it is too large, lacks _stamp, or was changed.
func (s *Server) takeFrame(frame []byte) error {
	e, body, err := parseFrame(frame)
	if err != nil {
		return err
	}

	changed := e.fromSocket()
	if s.cfg.Clean != nil {
		cleaned := s.cfg.Clean(e.Tag, e.Data)
		changed = changed || cleaned != e.Data
		e.Data = cleaned
	}

	_, stamped := e.Data.Get("_stamp")
	if changed || !stamped || len(frame) > s.bus.maxSize {
		return s.bus.Relay(e)
	}

	e.wire = &wire{}
	e.wire.frame, e.wire.body, err = frameBody(body)
	if err != nil {
		return err
	}

	return s.bus.deliver(e)
}

// ignoreHangup returns nil for an error that means that the writer has closed the connection. It
// returns any other error unchanged.
func ignoreHangup(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
