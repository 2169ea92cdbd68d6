package keys

import (
	"errors"
	"sync"
	"time"
)

// errSlow means that the disk did not answer in time.
var errSlow = errors.New("the folder of the keys does not answer in time")

// sharing performs one disk operation for many callers: callers that arrive during an operation
// share the next one. At most two goroutines wait for a hanging disk.
type sharing struct {
	mu      sync.Mutex
	next    *shared // waits to begin; may be nil
	current *shared // begun last; may be nil
}

type shared struct {
	done chan struct{}
	err  error
}

// do returns when a run of f that began after the call is done, or with errSlow after limit (0: no
// limit).
func (y *sharing) do(limit time.Duration, f func() error) error {
	y.mu.Lock()
	s := y.next
	if s == nil {
		s = &shared{done: make(chan struct{})}
		y.next = s
		before := y.current
		go func() { // ends with f
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
