package main

import (
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// lossyPipe returns a writer for logs that keeps working if nobody reads them. A child that may
// outlive the supervisor gets a pipe in non-blocking mode as standard error. If w is such a pipe
// and the pipe is full, the writer drops lines instead of blocking. It reports the number of
// dropped lines when the pipe can take lines again. lossyPipe returns any other w unchanged.
func lossyPipe(w io.Writer) io.Writer {
	const fd = 2 // not os.Stderr.Fd(), which would set blocking mode
	var st unix.Stat_t
	if w != io.Writer(os.Stderr) || unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return w
	}
	if fl, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err != nil || fl&unix.O_NONBLOCK == 0 {
		return w
	}
	return &lossyWriter{fd: fd}
}

// lossyWriter writes to a non-blocking pipe. The kernel writes a line of up to 4096 bytes
// completely or not at all (pipe(7), PIPE_BUF). A lossyWriter is safe for concurrent use.
type lossyWriter struct {
	fd int

	mu      sync.Mutex
	dropped int
}

func (d *lossyWriter) Write(b []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dropped > 0 {
		note := fmt.Appendf(nil, "%d lines were left out: nobody read them\n", d.dropped)
		if !d.putBytes(note) {
			d.dropped++
			return len(b), nil
		}
		d.dropped = 0
	}

	if !d.putBytes(b) {
		d.dropped++
	}

	return len(b), nil
}

func (d *lossyWriter) putBytes(b []byte) bool {
	for {
		n, err := unix.Write(d.fd, b)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return false
		case n < len(b):
			b = b[n:]
		default:
			return true
		}
	}
}
