package keys

import (
	"errors"
	"sync"
	"time"
)

// errSlow means that the disk did not answer in time.
var errSlow = errors.New("the folder of the keys does not answer in time")

// sharing does one thing with a disk for many callers: those that come while it
// is being done share the next time. At most two goroutines wait for a disk that
// hangs.
type sharing struct {
	mu   sync.Mutex
	next *shared // not begun; nil: none
	now  *shared // the newest that was begun; nil: none
}

type shared struct {
	done chan struct{}
	err  error
}

// do returns when f, begun after the call, is done, or with errSlow after limit
// (0: none).
func (y *sharing) do(limit time.Duration, f func() error) error {
	y.mu.Lock()
	s := y.next
	if s == nil {
		s = &shared{done: make(chan struct{})}
		y.next = s
		before := y.now
		go func() { // ends with f
			if before != nil {
				<-before.done
			}

			y.mu.Lock()
			y.next, y.now = nil, s
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
