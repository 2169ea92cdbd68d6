package zmtp

import (
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// reader reads a connection through a buffer from a pool. It holds the buffer only while the buffer
// contains bytes: while it waits for the next byte in the runtime's poller, it holds none. Only one
// goroutine may use a reader.
type reader struct {
	conn  net.Conn
	raw   syscall.RawConn // nil for a connection without a descriptor, as from net.Pipe
	pools *pools
	// seen is when bytes last arrived, in Unix nanoseconds.
	seen atomic.Int64

	box  *[]byte // buffer; nil while idle
	r, w int     // (*box)[r:w] holds the unread bytes

	try    func(uintptr) bool // the method value tryRead, stored so that no read allocates it
	dst    []byte             // slice into which try reads; nil: the buffer
	n      int
	tryErr error
}

func newReader(conn net.Conn, p *pools) *reader {
	r := &reader{conn: conn, pools: p}
	r.raw = rawConn(conn)
	r.try = r.tryRead
	r.seen.Store(time.Now().UnixNano())
	return r
}

func rawConn(conn net.Conn) syscall.RawConn {
	if sc, ok := conn.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			return raw
		}
	}
	return nil
}

// tryRead runs inside RawConn.Read: it reads once without blocking, and returns true when there is
// a result.
func (r *reader) tryRead(fd uintptr) bool {
	dst := r.dst
	if dst == nil {
		r.holdBuffer()
		dst = (*r.box)[r.w:]
	}

	for {
		n, err := syscall.Read(int(fd), dst)
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.EAGAIN:
			r.release()
			return false
		case err != nil:
			n = 0
		case n == 0:
			err = io.EOF
		}

		r.n, r.tryErr = n, err
		return true
	}
}

func (r *reader) holdBuffer() {
	if r.box == nil {
		r.box = r.pools.read.Get().(*[]byte)
		r.r, r.w = 0, 0
	}
}

// release returns the buffer to its pool if it is empty.
func (r *reader) release() {
	if r.box != nil && r.r == r.w {
		r.pools.read.Put(r.box)
		r.box = nil
		r.r = 0
		r.w = 0
	}
}

// close discards unread bytes and returns the buffer to its pool.
func (r *reader) close() {
	r.r = r.w
	r.release()
}

// readSome waits for at least one byte and reads into dst, or into the buffer when dst is nil.
func (r *reader) readSome(dst []byte) (int, error) {
	r.dst = dst
	var err error
	if r.raw != nil {
		r.n, r.tryErr = 0, nil
		if err = r.raw.Read(r.try); err == nil {
			err = r.tryErr
		}
	} else {
		if dst == nil {
			r.holdBuffer()
			dst = (*r.box)[r.w:]
		}
		r.n, err = r.conn.Read(dst)
	}

	r.dst = nil
	if r.n > 0 {
		r.seen.Store(time.Now().UnixNano())
		return r.n, nil
	}

	if err == nil {
		err = io.ErrNoProgress
	}

	return 0, err
}

// buffered returns the number of unread bytes in the buffer.
func (r *reader) buffered() int { return r.w - r.r }

// peek returns the next n bytes (at most readSize) and leaves them unread.
func (r *reader) peek(n int) ([]byte, error) {
	for r.w-r.r < n {
		if r.box != nil && r.r > 0 && (r.r == r.w || r.r+n > readSize) {
			copy(*r.box, (*r.box)[r.r:r.w])
			r.r, r.w = 0, r.w-r.r
		}
		got, err := r.readSome(nil)
		if err != nil {
			return nil, err
		}
		r.w += got
	}
	return (*r.box)[r.r : r.r+n], nil
}

// skip drops n bytes that peek has returned.
func (r *reader) skip(n int) {
	r.r += n
	r.release()
}

// readFull fills dst, first from the buffer, after that directly from the connection.
func (r *reader) readFull(dst []byte) error {
	if n := r.buffered(); n > 0 {
		c := copy(dst, (*r.box)[r.r:r.w])
		r.skip(c)
		dst = dst[c:]
	}
	for len(dst) > 0 {
		n, err := r.readSome(dst)
		if err != nil {
			return err
		}
		dst = dst[n:]
	}
	return nil
}
