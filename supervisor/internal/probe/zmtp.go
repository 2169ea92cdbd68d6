// Package probe observes what a node depends on: whether a master answers, which program has a
// port, how full a disk is, whether the clock is synchronised, how many keys there are. Every
// observation is bounded in time and size and changes nothing.
package probe

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"saltern/internal/control"
)

// errJoining is [Ping]'s error for a master that answers but does not serve yet, because it is
// still joining its cluster.
var errJoining = errors.New("master is still joining its cluster")

// UnwellError is the error that [Ping] returns for a master that answers and reports that it has a
// fault. The text comes from the master.
type UnwellError string

// Error implements error.
func (e UnwellError) Error() string { return string(e) }

// ErrSilent means that the peer accepted the connection and then sent nothing in time. A failed,
// refused or closed connection is another error.
var ErrSilent = errors.New("timed out")

// Limits of one probe. A master's answer to a ping is a few dozen bytes.
const (
	maxFrame  = 64 << 10
	maxFrames = 32
)

// pingPayload is msgpack of {"enc":"clear","load":{"cmd":"ping"},"version":3}, the clear request
// that every Salt master echoes (salt/master.py, ClearFuncs.ping).
const pingPayload = "\x83\xa3enc\xa5clear\xa4load\x81\xa3cmd\xa4ping\xa7version\x03"

// Ping checks whether a master answers: it makes the ZMTP 3.0 handshake (RFC 23, NULL mechanism) as
// a REQ peer and sends Salt's clear `ping`. address is host:port of the request port. It takes at
// most 3 s.
func Ping(ctx context.Context, address string) error {
	c, err := dialZMTP(ctx, address, "REQ")
	if err != nil {
		return err
	}
	defer c.Close()

	msg := append([]byte{1, 0, 0, byte(len(pingPayload))}, pingPayload...)
	if _, err := c.Write(msg); err != nil {
		return fmt.Errorf("send ping: %w", shortenError(err))
	}

	for range maxFrames {
		flags, body, err := readFrame(c)
		if err != nil {
			return fmt.Errorf("no answer to ping: %w", silence(err))
		}
		if flags&flagCommand != 0 || flags&flagMore != 0 {
			continue // heartbeats, and the empty delimiter
		}

		return judgeReply(body)
	}

	return errors.New("no answer to ping: only other frames came")
}

func judgeReply(body []byte) error {
	trouble := control.PingTrouble(body)
	switch {
	case trouble != "":
		return UnwellError(trouble)
	case bytes.Contains(body, []byte("cluster_retry")):
		return errJoining
	case bytes.Contains(body, []byte("\xa3cmd\xa4ping")):
		return nil
	}
	return fmt.Errorf("answer to ping is not an echo (%d bytes)", len(body))
}

// Subscribable makes the ZMTP handshake with a publish port as a SUB peer, and closes the
// connection. It returns nil if the port speaks the protocol.
func Subscribable(ctx context.Context, address string) error {
	c, err := dialZMTP(ctx, address, "SUB")
	if err != nil {
		return err
	}
	return c.Close()
}

const (
	flagMore    = 1
	flagLong    = 2
	flagCommand = 4
)

func dialZMTP(ctx context.Context, address, socketType string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, shortenError(err)
	}

	deadline, _ := ctx.Deadline()
	_ = c.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	err = handshake(c, socketType)
	stop()

	if err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("handshake: %w", silence(err))
	}

	return c, nil
}

func handshake(c io.ReadWriter, socketType string) error {
	var greeting [64]byte
	greeting[0] = 0xff
	greeting[8] = 1
	greeting[9] = 0x7f
	greeting[10] = 3
	copy(greeting[12:], "NULL")
	property := "\x0bSocket-Type" + string(binary.BigEndian.AppendUint32(nil, uint32(len(socketType)))) + socketType
	ready := "\x05READY" + property
	out := append(greeting[:], flagCommand, byte(len(ready)))
	out = append(out, ready...)
	if _, err := c.Write(out); err != nil {
		return err
	}

	var peer [64]byte
	if _, err := io.ReadFull(c, peer[:]); err != nil {
		return fmt.Errorf("no greeting: %w", err)
	}
	if peer[0] != 0xff || peer[9]&1 == 0 || peer[10] < 3 {
		return errors.New("greeting is not ZMTP 3")
	}

	flags, body, err := readFrame(c)
	if err != nil {
		return fmt.Errorf("no READY: %w", err)
	}
	if flags&flagCommand == 0 || !bytes.HasPrefix(body, []byte("\x05READY")) {
		return errors.New("peer refused the handshake")
	}

	return nil
}

// readFrame reads one frame. It checks the frame's size before it allocates memory.
func readFrame(r io.Reader) (flags byte, body []byte, err error) {
	var head [9]byte
	if _, err := io.ReadFull(r, head[:2]); err != nil {
		return 0, nil, err
	}

	size := uint64(head[1])
	if head[0]&flagLong != 0 {
		if _, err := io.ReadFull(r, head[2:]); err != nil {
			return 0, nil, err
		}
		size = binary.BigEndian.Uint64(head[1:])
	}

	if head[0]&^(flagMore|flagLong|flagCommand) != 0 || size > maxFrame {
		return 0, nil, fmt.Errorf("bad frame (flags %#x, %d bytes)", head[0], size)
	}

	body = make([]byte, size)
	_, err = io.ReadFull(r, body)
	return head[0], body, err
}

// silence returns ErrSilent for a timeout of an established connection, else shortenError(err).
func silence(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Timeout() {
		return ErrSilent
	}
	return shortenError(err)
}

// shortenError removes repetitions from a network error, for a line of the status.
func shortenError(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		switch {
		case op.Timeout():
			return errors.New("timed out")
		case op.Err != nil:
			if inner := errors.Unwrap(op.Err); inner != nil {
				return inner
			}
			return op.Err
		}
	}

	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("connection closed")
	}

	return err
}
