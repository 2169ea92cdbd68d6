package lbproxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// While a master is well, the checks of its request port share a connection: a handshake each
// second would cost both sides more than all other work in idle times. Each check of the publish
// port opens a new connection, because the master counts each open connection there as a minion.
const (
	// holdAfter is how many good checks in a row, each with a new connection, precede the first reuse.
	holdAfter = 2
	// holdFor is how many checks reuse a connection. The next check dials, to test that the backend
	// still accepts connections.
	holdFor = 3
)

// reuse keeps the connection of one check for the next checks. It belongs to one checker.
type reuse struct {
	off        bool // never reuse: a publish port, rare checks, or a master that does not answer PINGs
	proven     bool // whether the backend has answered on a kept connection
	used       bool // whether the last check used a kept connection
	goodInRow  int  // number of good checks in a row with new connections
	checksLeft int  // how many more checks may use conn
	conn       net.Conn
	reader     *bufio.Reader
}

// errNoConnection means that the check needs a new connection. It says nothing about the backend.
var errNoConnection = errors.New("the connection that was kept has ended")

// probeKept checks with the kept connection, if there is one.
func (h *reuse) probeKept(ctx context.Context, mode Mode, ping bool) error {
	c, r := h.conn, h.reader
	if c == nil {
		return errNoConnection
	}

	h.conn, h.reader = nil, nil
	free, err := limitTo(ctx, c)
	if err == nil {
		if ping && mode == Request {
			err = askPing(c, r)
		} else {
			err = askPong(c, r)
		}
	}

	if err == nil && free() {
		h.proven = true
		h.checksLeft--
		if h.checksLeft > 0 {
			h.conn, h.reader = c, r
			return nil
		}
		return c.Close()
	}

	_ = c.Close()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		h.off = !h.proven
		return fmt.Errorf("%w: %w", errSilent, err)
	case errors.Is(err, errJoining), errors.Is(err, errUnwell):
		return err
	}

	return errNoConnection
}

// keepConnection keeps the connection of a good check for the next checks. It reports whether it
// kept the connection.
func (h *reuse) keepConnection(c net.Conn, r *bufio.Reader) bool {
	h.goodInRow++
	if h.off || h.goodInRow < holdAfter {
		return false
	}
	h.conn = c
	h.reader = r
	h.checksLeft = holdFor
	return true
}

func (h *reuse) close() {
	if h.conn != nil {
		_ = h.conn.Close()
	}
	h.conn, h.reader = nil, nil
}

// limitTo makes calls on c fail once ctx ends. free removes that limit and reports whether ctx was
// still active.
func limitTo(ctx context.Context, c net.Conn) (free func() bool, err error) {
	d, _ := ctx.Deadline() // without a deadline, d is the zero time, which sets no limit
	if err := c.SetDeadline(d); err != nil {
		return nil, fmt.Errorf("limit check: %w", err)
	}
	return context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) }), nil
}

// askPing sends a Salt ping on a connection whose handshake is complete, and judges the answer.
func askPing(w io.Writer, r *bufio.Reader) error {
	msg := appendFrame(nil, flagMore, nil)
	msg = appendFrame(msg, 0, pingRequest())
	if _, err := w.Write(msg); err != nil {
		return fmt.Errorf("send ping: %w", err)
	}
	payload, err := readReply(w, r)
	if err != nil {
		return fmt.Errorf("read answer to ping: %w", err)
	}
	return pingAnswer(payload)
}

// askPong sends a PING of ZMTP (RFC 37), without a TTL, and waits for the PONG.
func askPong(w io.Writer, r *bufio.Reader) error {
	if _, err := w.Write(appendFrame(nil, flagCommand, []byte("\x04PING\x00\x00lb"))); err != nil {
		return fmt.Errorf("send PING: %w", err)
	}

	for range maxProbeFrames {
		flags, body, err := readFrame(r)
		if err != nil {
			return fmt.Errorf("read PONG: %w", err)
		}
		if flags&flagCommand == 0 {
			continue
		}
		if string(body) == "\x04PONGlb" {
			return nil
		}

		if err := answerPing(w, body); err != nil {
			return err
		}
	}

	return fmt.Errorf("%w: more than %d frames", errProtocol, maxProbeFrames)
}

// answerPing answers a command if it is a PING. A PING holds a TTL of two bytes and a context,
// which the PONG sends back (RFC 37).
func answerPing(w io.Writer, body []byte) error {
	if len(body) < 7 || string(body[:5]) != "\x04PING" {
		return nil
	}
	_, err := w.Write(appendFrame(nil, flagCommand, append([]byte("\x04PONG"), body[7:]...)))
	return err
}
