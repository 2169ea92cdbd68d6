package keys

import (
	"errors"
	"sync"
	"time"
)

// errSlow means that the disk did not answer in time.
var errSlow = errors.New("the folder of the keys does not answer in time")

// sharing performs one disk operation for many callers: callers that arrive during an operation
// share the next operation. If the disk hangs, at most two goroutines wait for the disk.
type sharing struct {
	mu      sync.Mutex
	next    *shared // operation that waits to begin; nil: none
	current *shared // operation that has begun last; nil: none
}

type shared struct {
	done chan struct{}
	err  error
}

// do runs f, or waits for a run of f that begins after the call of do, and returns the result of
// that run. After limit (0: no limit) it returns errSlow.
func (y *sharing) do(limit time.Duration, f func() error) error {
	y.mu.Lock()
	s := y.next
	if s == nil {
		s = &shared{done: make(chan struct{})}
		y.next = s
		before := y.current
		go func() { // this goroutine ends when f returns
			if before != nil {
				<-before.done
			}

			y.mu.Lock()
			y.next, y.current = nil, s
			y.mu.Unlock()

			s.err = f()
			close(s.done)
		}()
	}
	y.mu.Unlock()

	if limit == 0 {
		<-s.done
		return s.err
	}

	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-s.done:
		return s.err
	case <-t.C:
		return errSlow
	}
}
