package event

import (
	"net"
	"sync"
)

// batch is the largest number of frames in one writev(2).
const batch = 64

// reader is one connection on the pub socket. Its queue is bounded in bytes; all readers share the
// frames.
type reader struct {
	conn     *net.UnixConn
	uid      uint32
	wake     chan struct{}
	gone     chan struct{} // closed when the client has closed the connection
	finished chan struct{} // closed when the server will queue no more frames

	mu    sync.Mutex
	queue [][]byte
	bytes int // bytes of the frames that are queued or being written
}

// push queues a frame. It returns false when more than bound bytes would wait.
func (r *reader) push(frame []byte, bound int) bool {
	r.mu.Lock()

	// A frame larger than the bound may wait if no other frame waits; otherwise it could never be
	// sent.
	if r.bytes > 0 && r.bytes+len(frame) > bound {
		r.mu.Unlock()
		return false
	}

	r.bytes += len(frame)
	r.queue = append(r.queue, frame)
	r.mu.Unlock()

	select {
	case r.wake <- struct{}{}:
	default:
	}

	return true
}

func (r *reader) waiting() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bytes
}

// takeBatch moves up to batch frames from the queue to the end of frames. It returns the extended
// slice and the number of bytes in the added frames.
func (r *reader) takeBatch(frames [][]byte) ([][]byte, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := min(batch, len(r.queue))
	frames = append(frames, r.queue[:n]...)
	size := 0
	for i := range n {
		size += len(r.queue[i])
		r.queue[i] = nil
	}

	r.queue = r.queue[n:]
	if len(r.queue) == 0 {
		r.queue = nil
	}

	return frames, size
}

// writeFrames sends frames until the connection ends, or until finished is closed and all queued
// frames are sent.
func (r *reader) writeFrames() {
	var room [batch][]byte
	last := r.finished
	for {
		frames, size := r.takeBatch(room[:0])
		if len(frames) == 0 && last == nil {
			return
		}
		if len(frames) == 0 {
			select {
			case <-r.wake:
			case <-last:
				last = nil
			case <-r.gone:
				return
			}

			continue
		}

		buffers := net.Buffers(frames)
		if _, err := buffers.WriteTo(r.conn); err != nil {
			return
		}

		clear(room[:])
		r.mu.Lock()
		r.bytes -= size
		r.mu.Unlock()
	}
}

// watchHangup waits until the client or the server closes the connection. It discards the bytes
// that the client sends.
func (r *reader) watchHangup() {
	defer close(r.gone)
	var b [512]byte
	for {
		if _, err := r.conn.Read(b[:]); err != nil {
			return
		}
	}
}
