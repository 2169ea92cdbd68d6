package extpillar

import (
	"maps"
	"sync"
	"time"
)

const (
	// suspectFor is how long a command line counts as suspect after it did not end in time.
	suspectFor = 10 * time.Minute
	// suspectShare is the part of the places for commands that suspects may have: one in so many.
	suspectShare = 4
	maxSuspects  = 10000
)

// suspects holds the command lines that did not end in time. Few of them run at once: otherwise the
// commands of some minions, each of which holds a place to its deadline and is asked for again, keep all
// others waiting. Overflow policy: one that finds no room is not suspect. The zero value is ready. It is
// safe for concurrent use.
type suspects struct {
	mu     sync.Mutex
	until  map[string]time.Time
	atWork int
}

// note records that a line did not end in time.
func (s *suspects) note(line string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.until == nil {
		s.until = map[string]time.Time{}
	}
	if len(s.until) >= maxSuspects {
		maps.DeleteFunc(s.until, func(_ string, until time.Time) bool { return !now.Before(until) })
	}
	if len(s.until) < maxSuspects {
		s.until[line] = now.Add(suspectFor)
	}
}

// clear records that a line has ended in time.
func (s *suspects) clear(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.until, line)
}

// admit reports whether a line may run now, when there are so many places for commands. If it may, the
// caller calls end afterwards.
func (s *suspects) admit(line string, places int, now time.Time) (end func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !now.Before(s.until[line]) {
		return func() {}, true
	}
	if s.atWork >= max(1, places/suspectShare) {
		return nil, false
	}

	s.atWork++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.atWork--
	}, true
}
