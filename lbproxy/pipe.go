package lbproxy

import "golang.org/x/sys/unix"

const (
	pipeSize  = 1 << 20
	pipesKept = 16 // number of idle pipes that a loop keeps
	pipesMax  = 64 // number of pipes that a loop may have; without a free pipe it copies
)

// pipe holds n spliced bytes. The loop splices only into an empty pipe, so that EAGAIN always means
// that the source has no bytes now.
type pipe struct{ r, w, n int }

func (p *pipe) close() {
	unix.Close(p.r)
	unix.Close(p.w)
}

// pipePool holds the unused pipes of one loop.
type pipePool struct {
	idle  []*pipe
	total int
}

// get returns a pipe. It returns nil if none is available; the caller then copies instead.
func (pp *pipePool) get() *pipe {
	if n := len(pp.idle); n > 0 {
		p := pp.idle[n-1]
		pp.idle = pp.idle[:n-1]
		return p
	}

	if pp.total >= pipesMax {
		return nil
	}

	var fd [2]int
	if unix.Pipe2(fd[:], unix.O_NONBLOCK|unix.O_CLOEXEC) != nil {
		return nil
	}

	// Without the right to a larger size the pipe keeps 64 KiB.
	_, _ = unix.FcntlInt(uintptr(fd[0]), unix.F_SETPIPE_SZ, pipeSize)
	pp.total++
	return &pipe{r: fd[0], w: fd[1]}
}

// put returns a pipe to the pool. It closes a pipe that still holds bytes.
func (pp *pipePool) put(p *pipe) {
	if p == nil {
		return
	}
	if p.n > 0 || len(pp.idle) >= pipesKept {
		p.close()
		pp.total--
		return
	}
	pp.idle = append(pp.idle, p)
}

func (pp *pipePool) close() {
	for _, p := range pp.idle {
		p.close()
	}
	pp.total -= len(pp.idle)
	pp.idle = nil
}
