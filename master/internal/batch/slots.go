package batch

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	// maxAsking bounds the runs that wait for answers of minions before their job begins: each occupies a
	// worker. Overflow policy: a further run is refused, and its caller told so. One of the schedule or of
	// a reaction waits for slotWait first, because nobody repeats it, if none waits already.
	maxAsking = 8
	// maxAskingOfOne bounds those of one account without all rights.
	maxAskingOfOne = 2
	slotWait       = 5 * time.Minute
	// maxSlotWaits bounds the runs that wait for a slot: each occupies a worker of the schedule or of the
	// reactor, which have ten by default. Overflow policy: a further run is refused.
	maxSlotWaits = 1
)

// ErrAsking means that too many runs wait for answers of minions, and ErrAskingOfOne that they are of
// one account.
var (
	ErrAsking      = fmt.Errorf("%d other runs wait for answers of their minions: nothing was run; try again later", maxAsking)
	ErrAskingOfOne = fmt.Errorf("%d of your runs wait for answers of their minions: nothing was run; try again later",
		maxAskingOfOne)
)

// Slots bounds the runs that wait for answers of minions before their job begins. It is safe for
// concurrent use.
type Slots struct {
	taken chan struct{}
	waits chan struct{} // has an element for each run that waits

	mu    sync.Mutex
	ofOne map[string]int // slots of accounts without all rights
}

// NewSlots returns Slots of which none is taken.
func NewSlots() *Slots {
	return &Slots{
		taken: make(chan struct{}, maxAsking),
		waits: make(chan struct{}, maxSlotWaits),
		ofOne: map[string]int{},
	}
}

// Take takes a slot for a run of an account; account is "" for callers with all rights. If waits is
// true and all slots are taken, it waits for one. The caller must call release once when the run has
// ended.
func (s *Slots) Take(ctx context.Context, account string, waits bool) (release func(), err error) {
	if account != "" && !s.addOf(account) {
		return nil, ErrAskingOfOne
	}
	if err := s.takeAny(ctx, waits); err != nil {
		s.removeOf(account)
		return nil, err
	}
	return func() {
		<-s.taken
		s.removeOf(account)
	}, nil
}

func (s *Slots) takeAny(ctx context.Context, waits bool) error {
	select {
	case s.taken <- struct{}{}:
		return nil
	default:
	}
	if !waits {
		return ErrAsking
	}
	select {
	case s.waits <- struct{}{}:
		defer func() { <-s.waits }()
	default:
		return ErrAsking
	}

	ctx, cancel := context.WithTimeoutCause(ctx, slotWait, ErrAsking)
	defer cancel()
	select {
	case s.taken <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *Slots) addOf(account string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ofOne[account] >= maxAskingOfOne {
		return false
	}
	s.ofOne[account]++
	return true
}

func (s *Slots) removeOf(account string) {
	if account == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ofOne[account]--
	if s.ofOne[account] <= 0 {
		delete(s.ofOne, account)
	}
}
