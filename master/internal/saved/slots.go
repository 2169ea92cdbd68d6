package saved

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	// maxTesting bounds the runs that wait for minions: each occupies a runner. Overflow policy: a
	// further run is refused, and its caller told so. One of the schedule or of a reaction waits for
	// slotWait first, because nobody repeats it, if none waits already.
	maxTesting = 8
	// maxTestingOfOne bounds those of one user without all rights.
	maxTestingOfOne = 2
	slotWait        = 5 * time.Minute
	// maxSlotWaits bounds the runs that wait for a slot: each occupies a worker of the schedule or of the
	// reactor, which have ten by default. Overflow policy: a further run is refused.
	maxSlotWaits = 1
)

// errTesting means that too many runs wait for minions, and errTestingOfOne that they are of one user.
var (
	errTesting      = fmt.Errorf("%d other runs of saved jobs wait for their minions: nothing was run; try again later", maxTesting)
	errTestingOfOne = fmt.Errorf("%d of your runs of saved jobs wait for their minions: nothing was run; try again later",
		maxTestingOfOne)
)

// slots bounds the runs that wait for minions. It is safe for concurrent use.
type slots struct {
	taken chan struct{}
	waits chan struct{} // has an element for each run that waits

	mu    sync.Mutex
	ofOne map[User]int // slots of users without all rights
}

func newSlots() *slots {
	return &slots{
		taken: make(chan struct{}, maxTesting),
		waits: make(chan struct{}, maxSlotWaits),
		ofOne: map[User]int{},
	}
}

// take takes a slot for a run of a user. If waits is true and all slots are taken, it waits for one.
// The caller must call release once when the run has ended.
func (s *slots) take(ctx context.Context, by User, waits bool) (release func(), err error) {
	if by.Limited && !s.addOf(by) {
		return nil, errTestingOfOne
	}
	if err := s.takeAny(ctx, waits); err != nil {
		s.removeOf(by)
		return nil, err
	}
	return func() {
		<-s.taken
		s.removeOf(by)
	}, nil
}

func (s *slots) takeAny(ctx context.Context, waits bool) error {
	select {
	case s.taken <- struct{}{}:
		return nil
	default:
	}
	if !waits {
		return errTesting
	}
	select {
	case s.waits <- struct{}{}:
		defer func() { <-s.waits }()
	default:
		return errTesting
	}

	ctx, cancel := context.WithTimeoutCause(ctx, slotWait, errTesting)
	defer cancel()
	select {
	case s.taken <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *slots) addOf(by User) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ofOne[by] >= maxTestingOfOne {
		return false
	}
	s.ofOne[by]++
	return true
}

func (s *slots) removeOf(by User) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ofOne[by]--
	if s.ofOne[by] <= 0 {
		delete(s.ofOne, by)
	}
}
