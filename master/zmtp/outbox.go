package zmtp

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

var (
	errDropped = errors.New("zmtp: queue full, message dropped")
	errClosed  = errors.New("zmtp: connection closed")
)

// packet is a piece of the outgoing stream that must not be split: one frame, one message, or
// several.
type packet struct {
	b       []byte
	free    func() // called once, when the bytes are written or dropped; may be nil
	control bool   // the packet is a PING or PONG
}

// outbox sends the packets of a connection; the package comment describes how. When a data packet
// would exceed maxItems or maxBytes, the outbox drops that packet, as libzmq does at its high-water
// mark, and sendPackets returns errDropped. When maxControl control packets (PING, PONG) wait
// already, it drops further control packets, since a peer that does not read does not miss them.
type outbox struct {
	conn     net.Conn
	raw      syscall.RawConn
	maxItems int
	maxBytes int
	stall    time.Duration // longest time in which a flush may make no progress
	rate     int           // least bytes per second of a flush, counted after the first stall time; 0: none
	fail     func(error)   // called without the lock when writing has failed permanently
	spawn    func(func())  // starts the flusher in a goroutine that the connection's owner waits for

	// moved is when the peer last accepted queued bytes, in Unix nanoseconds.
	moved atomic.Int64

	mu      sync.Mutex
	queue   []packet      // packets that wait; empty unless a flusher runs
	bytes   int           // bytes in queue
	control int           // number of control packets in queue
	idle    chan struct{} // not nil while a flusher runs, which closes the channel at its end
	dead    bool

	try    func(uintptr) bool
	src    []byte
	n      int
	tryErr error
}

const (
	maxControl = 4
	// flushChunk is how many bytes a slow peer must accept within one stall time.
	flushChunk = 64 << 10
)

// tryWrite runs inside RawConn.Write and writes as much of src as the socket accepts without
// blocking. It always returns true, so that RawConn does not wait.
func (o *outbox) tryWrite(fd uintptr) bool {
	for o.n < len(o.src) {
		n, err := syscall.Write(int(fd), o.src[o.n:])
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.EAGAIN:
			return true
		case err != nil:
			o.tryErr = err
			return true
		}

		o.n += n
	}

	return true
}

// sendPackets writes or queues the packets, all or none of them. It never waits for the peer.
// sendPackets takes ownership of the packets, even when it returns an error.
func (o *outbox) sendPackets(ps ...packet) error {
	o.mu.Lock()
	broken, err := o.sendLocked(ps)
	o.mu.Unlock()
	if broken {
		o.fail(err)
	}
	return err
}

// sendLocked works like sendPackets, for a caller that holds o.mu. broken reports that the
// connection has ended.
func (o *outbox) sendLocked(ps []packet) (broken bool, err error) {
	if o.dead {
		freeAll(ps)
		return false, errClosed
	}

	if o.idle == nil && o.raw != nil {
		for len(ps) > 0 {
			n, err := o.writeNow(ps[0].b)
			if err != nil {
				o.markDead()
				freeAll(ps)
				return true, err
			}

			if n < len(ps[0].b) {
				ps[0].b = ps[0].b[n:]
				break
			}

			freeAll(ps[:1])
			ps = ps[1:]
		}

		if len(ps) == 0 {
			return false, nil
		}
	}

	size, control := 0, 0
	for _, p := range ps {
		size += len(p.b)
		if p.control {
			control++
		}
	}

	// An idle outbox accepts packets of any size, since the socket may already have taken their
	// first bytes.
	if o.idle != nil && !o.hasRoom(len(ps), size, control) {
		freeAll(ps)
		return false, errDropped
	}

	o.queue = append(o.queue, ps...)
	o.bytes += size
	o.control += control
	if o.idle == nil {
		o.idle = make(chan struct{})
		o.moved.Store(time.Now().UnixNano())
		o.spawn(o.flushQueue)
	}

	return false, nil
}

func (o *outbox) hasRoom(items, size, control int) bool {
	if control == items {
		return o.control+control <= maxControl
	}
	return len(o.queue)+items <= o.maxItems && o.bytes+size <= o.maxBytes
}

// writeNow writes the bytes that the socket accepts at once and returns their number.
func (o *outbox) writeNow(b []byte) (int, error) {
	o.src = b
	o.n = 0
	o.tryErr = nil
	err := o.raw.Write(o.try)
	o.src = nil
	if err == nil {
		err = o.tryErr
	}
	return o.n, err
}

// flushQueue writes the queued packets, as the body of the flusher's goroutine. It ends when the
// queue is empty or the connection is broken.
func (o *outbox) flushQueue() {
	var bufs net.Buffers
	start, written := time.Now(), 0
	for {
		o.mu.Lock()
		if len(o.queue) == 0 || o.dead {
			freeAll(o.queue)
			o.queue = nil
			o.bytes = 0
			o.control = 0
			close(o.idle)
			o.idle = nil

			if !o.dead {
				_ = o.conn.SetWriteDeadline(time.Time{})
			}
			o.mu.Unlock()

			return
		}

		bufs = bufs[:0]
		size, count := 0, 0
		for _, p := range o.queue {
			b := p.b[:min(len(p.b), flushChunk-size)]
			bufs = append(bufs, b)
			size += len(b)
			if len(b) < len(p.b) {
				break
			}

			count++
			if size == flushChunk || len(bufs) == 64 {
				break
			}
		}
		o.mu.Unlock()

		end := time.Now().Add(o.stall)
		if o.rate > 0 {
			if all := start.Add(o.stall +
				time.Duration(written+size)*time.Second/time.Duration(o.rate)); all.Before(end) {
				end = all
			}
		}

		_ = o.conn.SetWriteDeadline(end)
		out := bufs // WriteTo changes the slice it is called on
		_, err := out.WriteTo(o.conn)

		o.mu.Lock()
		if err != nil {
			o.markDead()
			o.mu.Unlock()
			if errors.Is(err, os.ErrDeadlineExceeded) {
				err = errStalled
			}
			o.fail(err)
			continue // the next iteration ends the goroutine
		}

		o.moved.Store(time.Now().UnixNano())
		written += size
		o.removeWritten(count, size)
		o.mu.Unlock()
	}
}

// removeWritten removes the written bytes from the queue: the first count packets, and size bytes
// of the next packet.
func (o *outbox) removeWritten(count, size int) {
	o.bytes -= size
	for _, p := range o.queue[:count] {
		size -= len(p.b)
		if p.control {
			o.control--
		}
	}
	freeAll(o.queue[:count])
	clear(o.queue[:count]) // a long queue must not keep written bytes in memory
	o.queue = o.queue[count:]
	if size > 0 {
		o.queue[0].b = o.queue[0].b[size:]
	}
}

// markDead marks the outbox as closed. The caller holds o.mu. markDead leaves the queue to the
// flusher, which may be writing the queue and frees it when it returns.
func (o *outbox) markDead() { o.dead = true }

func (o *outbox) close() {
	o.mu.Lock()
	o.markDead()
	o.mu.Unlock()
}

// pending returns a channel that is closed once the queue is empty, or nil when the queue is empty
// already.
func (o *outbox) pending() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.idle
}

// queued returns the number of waiting bytes.
func (o *outbox) queued() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.bytes
}

func freeAll(ps []packet) {
	for _, p := range ps {
		if p.free != nil {
			p.free()
		}
	}
}

// publish writes or queues the messages in order, and then ping, which may be empty. joined holds
// the joined bytes of the messages and of ping. publish drops messages for which the queue has no
// room. sent is the number of messages that it did not drop, and size is the number of their bytes.
func (o *outbox) publish(ms []*publication, joined, ping []byte) (sent, size int, err error) {
	o.mu.Lock()
	sent, size, broken, err := o.putAll(ms, joined, ping)
	o.mu.Unlock()
	if broken {
		o.fail(err)
	}
	return sent, size, err
}

func (o *outbox) putAll(ms []*publication, joined, ping []byte) (sent, size int, broken bool, err error) {
	if o.dead {
		return 0, 0, false, errClosed
	}

	n := 0 // number of bytes of rest that this call has written
	if o.idle == nil && o.raw != nil {
		n, err = o.writeNow(joined)
		if err != nil {
			o.markDead()
			return 0, 0, true, err
		}
	}

	for ; len(ms) > 0 && n >= len(ms[0].wire); ms = ms[1:] {
		n -= len(ms[0].wire)
		sent, size = sent+1, size+len(ms[0].wire)
	}

	for _, m := range ms {
		if broken, err = o.sendLocked([]packet{{b: m.wire[n:]}}); err != nil {
			break
		}
		n = 0
		sent++
		size += len(m.wire)
	}

	if n < len(ping) && !broken {
		// If the queue has no room for the PING, earlier PINGs wait already.
		if over, why := o.sendLocked([]packet{{b: ping[n:], control: true}}); over {
			return sent, size, true, why
		}
	}

	return sent, size, broken, err
}
