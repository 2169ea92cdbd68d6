package zmtp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// link is one connection in both directions, of a server or of a client. One goroutine of the link
// calls handshake and then nextMessage; any goroutine may send, ping and call fail.
type link struct {
	conn   net.Conn
	reader *reader
	outbox outbox
	limits *Limits
	// room returns the pool from which the memory of a message is reserved, and the source for
	// which it is reserved. The link calls room once for each message that is larger than
	// smallSize.
	room  func() (*pool, netip.Addr)
	peer  Peer
	minor byte // minor version of ZMTP that the peer announced
	// deaf means that the link's goroutine does not read at present, so that the peer cannot be
	// judged by its silence.
	deaf atomic.Bool
	// The link calls expire with the TTL of a PING. expire may be nil.
	expire func(ttl time.Duration)
	// The link calls onPong with the context of a PONG. onPong may be nil.
	onPong func(context []byte)
	// onCommand handles commands other than PING and PONG. It may be nil: such a command ends the
	// connection.
	onCommand func(name, body []byte) error

	closing sync.Once
	cause   error // argument of the first call of fail; valid after ended is closed
	ended   chan struct{}
}

// outLimits bound the queue of an outbox.
type outLimits struct {
	items int
	bytes int
	stall time.Duration
	rate  int // least rate of a flush in bytes per second, counted after the first stall time; 0: none
}

// init sets up a new link. The outbox calls spawn to start its temporary flusher. spawn must run
// the flusher in a goroutine that the owner of the link waits for.
func (k *link) init(
	conn net.Conn,
	l *Limits,
	p *pools,
	room func() (*pool, netip.Addr),
	o outLimits,
	spawn func(func()),
) {
	k.conn = conn
	k.reader = newReader(conn, p)
	k.limits = l
	k.room = room
	k.ended = make(chan struct{})

	k.outbox.conn = conn
	k.outbox.raw = k.reader.raw
	k.outbox.maxItems = o.items
	k.outbox.maxBytes = o.bytes
	k.outbox.stall = o.stall
	k.outbox.rate = o.rate
	k.outbox.fail = k.fail
	k.outbox.spawn = spawn
	k.outbox.try = k.outbox.tryWrite
}

// fail ends the connection; later calls do nothing. If cause is nil or io.EOF, fail closes the
// connection without a reset. With any other cause it resets the connection, so that the kernel
// does not send bytes that nobody reads.
func (k *link) fail(cause error) {
	k.closing.Do(func() {
		k.cause = cause
		close(k.ended) // close ended first: closing the connection wakes the reader, which calls closeCause
		k.outbox.close()
		if tc, ok := k.conn.(*net.TCPConn); ok && cause != nil && !errors.Is(cause, io.EOF) {
			_ = tc.SetLinger(0)
		}
		_ = k.conn.Close()
	})
}

// closeCause returns the cause with which fail ended the connection, or err if the connection has
// not ended. err is a read error, which the end of the connection may have caused.
func (k *link) closeCause(err error) error {
	select {
	case <-k.ended:
		if k.cause != nil {
			return k.cause
		}
		return errClosed
	default:
		return err
	}
}

// handshake exchanges greeting and READY. socketType is the socket type of this end. The caller
// must have set a deadline.
func (k *link) handshake(socketType, identity string) error {
	if err := k.outbox.sendPackets(packet{b: appendReady(greeting(), socketType, identity)}); err != nil {
		return err
	}

	// Reject a peer of another protocol (a browser, a scanner) at its first byte.
	b, err := k.reader.peek(1)
	if err != nil {
		return err
	}
	if b[0] != 0xff {
		return violation("first byte 0x%02x is no greeting", b[0])
	}

	if b, err = k.reader.peek(greetingSize); err != nil {
		return unexpected(err)
	}

	if k.minor, err = parseGreeting(b); err != nil {
		return err
	}

	k.reader.skip(greetingSize)
	h, err := k.reader.header(nil)
	if err != nil {
		return unexpected(err)
	}
	if !h.command {
		return violation("message before READY")
	}

	name, body, err := k.reader.command(h, nil)
	if err != nil {
		return err
	}
	defer k.reader.skip(int(h.size))

	switch string(name) {
	case "READY":
	case "ERROR":
		return violation("peer refused the handshake: %q", body[min(1, len(body)):])
	default:
		return violation("command %q before READY", name)
	}

	meta, err := parseMetadata(body)
	if err != nil {
		return err
	}
	if !accepts(socketType, meta.socketType) {
		return violation("socket type %q cannot talk to %s", meta.socketType, socketType)
	}

	k.peer.SocketType, k.peer.Identity = meta.socketType, meta.identity
	return nil
}

// message is one received message; its frames lie one after the other in buf.
type message struct {
	buf     buffer
	ends    []int
	room    func() (*pool, netip.Addr)
	memory  *pool // pool against which the message counts; nil for a small message
	source  netip.Addr
	charged int64
}

func (m *message) frameAt(i int) []byte {
	start := 0
	if i > 0 {
		start = m.ends[i-1]
	}
	return m.buf.b[start:m.ends[i]:m.ends[i]]
}

func (m *message) free() {
	m.buf.free()
	m.ends = m.ends[:0]
	m.discharge()
}

func (m *message) discharge() {
	if m.charged != 0 {
		m.memory.release(m.source, m.charged)
		m.memory, m.charged = nil, 0
	}
}

func (m *message) charge(capacity int) error {
	if m.memory == nil {
		m.memory, m.source = m.room()
	}
	growth := int64(capacity) - m.charged
	if !m.memory.reserve(m.source, growth) {
		return fmt.Errorf("%w: it has %d bytes so far", errNoRoom, capacity)
	}
	m.charged += growth
	return nil
}

// nextMessage reads one message into m, which must be free. It answers commands that arrive before
// the message.
func (k *link) nextMessage(m *message) error {
	err := k.readMessage(m)
	if err != nil {
		m.free()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = errSlow
		}
	}
	return err
}

func (k *link) readMessage(m *message) error {
	m.room = k.room
	p := pace{limits: k.limits}
	for {
		h, err := k.reader.header(&p)
		if err != nil {
			return err
		}

		if h.command {
			if err := k.command(h, &p); err != nil {
				return err
			}
			if len(m.ends) > 0 {
				// Commands do not extend the deadline of a message, however often they arrive.
				if err := p.deadline(k.reader, len(m.buf.b)); err != nil {
					return err
				}
				continue
			}
		} else {
			if len(m.ends) >= k.limits.MaxFrames {
				return violation("message of more than %d frames", k.limits.MaxFrames)
			}
			if h.size > uint64(k.limits.MaxMessage-len(m.buf.b)) {
				return violation("message of more than %d bytes", k.limits.MaxMessage)
			}

			if err := k.reader.readBody(&m.buf, h.size, &p, m.charge); err != nil {
				return err
			}

			m.ends = append(m.ends, len(m.buf.b))
			if h.more {
				if err := p.expectBytes(k.reader, 1, len(m.buf.b)); err != nil {
					return err
				}
				continue
			}
		}

		if err := p.endMessage(k.reader); err != nil {
			return err
		}
		if !h.command {
			return nil
		}
	}
}

func (k *link) command(h header, p *pace) error {
	name, body, err := k.reader.command(h, p)
	if err != nil {
		return err
	}
	defer k.reader.skip(int(h.size))

	switch string(name) {
	case "PING":
		if len(body) < 2 || len(body) > 2+maxPingContext {
			return violation("PING of %d bytes", len(body))
		}

		if k.expire != nil {
			k.expire(time.Duration(binary.BigEndian.Uint16(body)) * 100 * time.Millisecond)
		}

		pong := appendCommand(make([]byte, 0, 32), "PONG", body[2:])
		if err := k.outbox.sendPackets(packet{b: pong, control: true}); err != errDropped {
			return err
		}

		return nil
	case "PONG":
		if k.onPong != nil {
			k.onPong(body)
		}
		return nil
	case "READY", "ERROR", "HELLO", "WELCOME", "INITIATE":
		return violation("command %q after the handshake", name)
	}

	if k.onCommand == nil {
		return violation("command %q", name)
	}

	return k.onCommand(name, body)
}

// Errors that end a connection and that the peer causes.
var (
	errSilent  = errors.New("zmtp: peer is silent")
	errStalled = errors.New("zmtp: peer does not read")
	errNoRoom  = errors.New("zmtp: no memory for a message now")
)

// restartSilence sets deaf to false and starts to measure the silence of the peer from now.
func (k *link) restartSilence() {
	k.reader.seen.Store(time.Now().UnixNano())
	k.deaf.Store(false)
}

// heartbeat ends the link if its peer has been silent for longer than timeout, and otherwise sends
// ping. A slow peer that accepts bytes is not silent.
func (k *link) heartbeat(now time.Time, timeout time.Duration, ping []byte) {
	if k.minor == 0 {
		return
	}

	last := k.reader.seen.Load()
	busy := k.outbox.pending() != nil
	if busy {
		last = max(last, k.outbox.moved.Load())
	}

	if !k.deaf.Load() && now.UnixNano()-last > int64(timeout) {
		k.fail(errSilent)
		return
	}

	if !busy {
		_ = k.outbox.sendPackets(packet{b: ping, control: true})
	}
}

// pingFrame returns a PING without context, as a Salt master sends it (with a TTL of 0). The wire
// carries the TTL in tenths of a second.
func pingFrame(ttl time.Duration) []byte {
	return appendCommand(nil, "PING", binary.BigEndian.AppendUint16(nil, uint16(ttl/(100*time.Millisecond))))
}
