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

// A check of the request port of a master that is well uses the connection of the
// check before: connecting and shaking hands each second costs both sides more than
// all else that they do while nothing happens. On the publish port a connection that
// stays would count as a minion's, for whoever looks at the port.
const (
	// holdAfter is how many checks in a row must have been good with connections of
	// their own.
	holdAfter = 2
	// holdFor is for how many checks more a connection is used: that new ones are
	// accepted has to be seen as well.
	holdFor = 3
	// holdInter is the longest time between checks with which a connection is kept:
	// masters give up who does not answer their own PINGs.
	holdInter = 2 * time.Second
)

// reuse keeps the connection of a check for the next ones. It belongs to one
// checker.
type reuse struct {
	off        bool // a publish port, checks that are too rare, or PINGs stay unanswered
	proven     bool // it has answered on a connection that was kept
	used       bool // the last check did so
	goodInRow  int  // checks in a row with connections of their own
	checksLeft int  // checks that may use conn
	conn       net.Conn
	reader     *bufio.Reader
}

// errAnew: nothing is known; the check needs a connection of its own.
var errNoConnection = errors.New("the connection that was kept has ended")

// probeKept checks on the connection that was kept, if there is one.
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

// keepConnection takes the connection of a check that was good; it reports whether it did.
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

// limitTo ends calls on c with ctx. free takes that back and reports whether it
// was in time.
func limitTo(ctx context.Context, c net.Conn) (free func() bool, err error) {
	d, _ := ctx.Deadline() // the zero time means none
	if err := c.SetDeadline(d); err != nil {
		return nil, fmt.Errorf("limit check: %w", err)
	}
	return context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) }), nil
}

// askPing does a Salt ping on a connection whose handshake is done.
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

// askPong sends a PING of ZMTP (RFC 37), without a TTL, and waits for its PONG.
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

// answerPing answers a command if it is a PING: RFC 37 has a TTL of two bytes in
// it and a context to send back.
func answerPing(w io.Writer, body []byte) error {
	if len(body) < 7 || string(body[:5]) != "\x04PING" {
		return nil
	}
	_, err := w.Write(appendFrame(nil, flagCommand, append([]byte("\x04PONG"), body[7:]...)))
	return err
}
