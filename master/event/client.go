package event

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"time"

	"saltern/master/msgpack"
	"saltern/master/value"
)

// maxClientFrame bounds one frame that a Listener accepts, in bytes. It is larger than any frame of
// Saltern's masters, since the other end may be a Salt master.
const maxClientFrame = 64 << 20

// Listener reads events from the pub socket of a Saltern master or of a Python master of 3006 to
// 3008. Only one goroutine may use a Listener, but any goroutine may call Close.
type Listener struct {
	conn   net.Conn
	buf    []byte // unread bytes
	prefix bool   // the master puts a length prefix before each frame
	known  bool   // prefix is determined
}

// DialPub connects to master_event_pub.ipc in sockDir. The Listener may miss events that are fired
// before DialPub returns, but none that are fired later. ctx bounds only the connecting.
func DialPub(ctx context.Context, sockDir string) (*Listener, error) {
	c, err := dialSocket(ctx, sockDir, pubName)
	if err != nil {
		return nil, err
	}
	return &Listener{conn: c}, nil
}

func dialSocket(ctx context.Context, dir, name string) (net.Conn, error) {
	path := filepath.Join(dir, name)
	if n := len(path); n > maxSocketPath {
		return nil, fmt.Errorf("event socket %s: path has %d bytes, the system allows %d", path, n, maxSocketPath)
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("connect to event socket: %w", err)
	}
	return c, nil
}

// Close closes the connection. A waiting Next returns an error.
func (l *Listener) Close() error { return l.conn.Close() }

// Next waits for the next event. If ctx ends first, Next returns the error of ctx, and the Listener
// remains usable. It returns io.EOF when the master has closed the connection, and errFrame when
// the master sent something that is not an event.
func (l *Listener) Next(ctx context.Context) (Event, error) {
	p, err := l.NextPacked(ctx)
	if err != nil {
		return Event{}, err
	}
	return p.Event()
}

// NextPacked works like Next, but does not unpack the data. Callers that need the data of only a
// few events use NextPacked to save time.
func (l *Listener) NextPacked(ctx context.Context) (Packed, error) {
	stop := context.AfterFunc(ctx, func() { l.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer func() {
		if !stop() {
			l.conn.SetReadDeadline(time.Time{})
		}
	}()

	for {
		if err := ctx.Err(); err != nil {
			return Packed{}, err
		}

		body, ok, err := l.nextBody()
		if err != nil {
			return Packed{}, err
		}
		if ok {
			return packedOf(body)
		}

		if err := l.readMore(); err != nil {
			if ctx.Err() != nil {
				return Packed{}, ctx.Err()
			}
			return Packed{}, fmt.Errorf("read event socket: %w", err)
		}
	}
}

// nextBody returns the body of the next frame in the buffer. ok is false if the frame is not
// complete yet. The body is valid until the next read.
func (l *Listener) nextBody() ([]byte, bool, error) {
	if from, n, ok := plainBody(l.buf); ok { // the frame has no length prefix
		if n > maxClientFrame {
			return nil, false, fmt.Errorf("%w: claims %d bytes", errFrame, n)
		}
		if len(l.buf) < from+n {
			return nil, false, nil
		}

		b := l.buf[from : from+n]
		l.buf = l.buf[from+n:]
		return b, true, nil
	}

	v, ok, err := l.nextFrame()
	if err != nil || !ok {
		return nil, false, err
	}

	m, ok := v.(*value.Map)
	if !ok {
		return nil, false, fmt.Errorf("%w: not a map", errFrame)
	}

	b, ok := m.Bytes("body")
	if !ok {
		return nil, false, fmt.Errorf("%w: no body", errFrame)
	}

	return b, true, nil
}

// nextFrame decodes the next frame in the buffer. ok is false if the frame is not complete yet. A
// frame without a length prefix starts with the head of a map (a byte above 0x7f); a length prefix
// starts with a smaller byte.
func (l *Listener) nextFrame() (any, bool, error) {
	if len(l.buf) == 0 {
		return nil, false, nil
	}

	if !l.known {
		l.known, l.prefix = true, l.buf[0] < 0x80
	}

	if l.prefix {
		if len(l.buf) < prefixLen {
			return nil, false, nil
		}

		n := int(binary.BigEndian.Uint32(l.buf))
		if n > maxClientFrame {
			return nil, false, fmt.Errorf("%w: claims %d bytes", errFrame, n)
		}
		if len(l.buf) < prefixLen+n {
			return nil, false, nil
		}

		v, err := msgpack.Decode(l.buf[prefixLen:prefixLen+n], limits)
		l.buf = l.buf[prefixLen+n:]
		if err != nil {
			return nil, false, fmt.Errorf("%w: %w", errFrame, err)
		}

		return v, true, nil
	}

	v, n, err := msgpack.DecodePrefix(l.buf, limits)
	switch {
	case errors.Is(err, msgpack.ErrShort) && len(l.buf) < maxClientFrame:
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("%w: %w", errFrame, err)
	}

	l.buf = l.buf[n:]
	return v, true, nil
}

// readMore appends the available bytes to the unread bytes in the buffer. It doubles a full buffer,
// so that a large frame is scanned only a few times.
func (l *Listener) readMore() error {
	if cap(l.buf)-len(l.buf) < 4<<10 {
		grown := make([]byte, len(l.buf), max(64<<10, 2*len(l.buf)))
		copy(grown, l.buf)
		l.buf = grown
	}

	n, err := l.conn.Read(l.buf[len(l.buf):cap(l.buf)])
	l.buf = l.buf[:len(l.buf)+n]
	if n > 0 {
		return nil
	}

	if err == nil {
		err = io.ErrNoProgress
	}

	return err
}
