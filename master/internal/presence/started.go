package presence

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"saltern/master/cluster"
)

// bounds of Started.
const (
	maxStarted   = 1 << 17 // minions; of further ones nothing is known, see After
	maxProcesses = 8       // of a minion: the daemon, one for each of its masters, salt-call
	// startedFor is how far back After knows who has started: as long as a job may be
	// given late.
	startedFor = lateFor + 5*time.Minute
	// sameStart is within which time two notices of a start without a token are of
	// the same one.
	sameStart = 5 * time.Second
	// KnownFor is after how long all masters know of a process, or have not heard of the one
	// at which it signed in for so long that nothing it may have missed is waiting there.
	KnownFor = 90 * time.Second
)

// Started knows which minions have started anew, and when. A process that is new has signed
// in with a new token, at this master or at another one that has told us. It remembers no
// job of the process before. It is safe for concurrent use.
type Started struct {
	mu        sync.Mutex
	processes map[string][]process // by minion, the latest last
	starts    []start              // of the last while, the latest last
	lastFull  time.Time            // when a minion found no room, the last time
	noted     uint64               // of what was ever noted
}

type process struct {
	sum uint64 // 0: it showed no token
	at  time.Time
}

type start struct {
	at time.Time
	id string
}

// NewStarted makes an empty Started.
func NewStarted() *Started { return &Started{processes: map[string][]process{}} }

// Saw notes a sign-in of a process, and returns when the process was first seen; fresh tells
// that it was not known. One without a token is a new process each time.
func (s *Started) Saw(id string, sum uint64, at time.Time) (since time.Time, fresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list, known := s.processes[id]
	if !known && len(s.processes) >= maxStarted {
		s.lastFull = at
		s.noted++
		return at, false
	}

	i := slices.IndexFunc(list, func(p process) bool { return p.sum == sum })
	switch {
	case i < 0:
		list = append(list[max(0, len(list)-maxProcesses+1):], process{sum, at})
		fresh = true
	case sum == 0 && at.Sub(list[i].at) > sameStart:
		list[i].at = at
		fresh = true
	case sum != 0 && at.Before(list[i].at): // another master has seen it before
		s.removeStart(id, list[i].at)
		list[i].at = at
	default:
		return list[i].at, false
	}

	s.processes[id] = list
	s.insertStart(id, at)
	return at, fresh
}

// Count changes with each start that becomes known. A nil Started knows none.
func (s *Started) Count() uint64 {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.noted
}

// insertStart puts a start in its place; s.mu is held.
func (s *Started) insertStart(id string, at time.Time) {
	s.noted++
	i := len(s.starts)
	for i > 0 && s.starts[i-1].at.After(at) {
		i--
	}
	s.starts = slices.Insert(s.starts, i, start{at, id})
	old := 0
	for old < len(s.starts) && at.Sub(s.starts[old].at) > startedFor {
		old++
	}
	s.starts = slices.Delete(s.starts, 0, old)
}

// removeStart takes back what note has put there; s.mu is held.
func (s *Started) removeStart(id string, at time.Time) {
	for i := len(s.starts) - 1; i >= 0 && !s.starts[i].at.Before(at); i-- {
		if s.starts[i].id == id && s.starts[i].at.Equal(at) {
			s.starts = slices.Delete(s.starts, i, i+1)
			return
		}
	}
}

// After returns the minions that have started after a time; sure is false when there may be
// more than are known.
func (s *Started) After(t, now time.Time) (ids map[string]bool, sure bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids = map[string]bool{}
	for i := len(s.starts) - 1; i >= 0 && s.starts[i].at.After(t); i-- {
		ids[s.starts[i].id] = true
	}
	return ids, now.Sub(t) <= startedFor && (s.lastFull.IsZero() || now.Sub(s.lastFull) > startedFor)
}

// Learn notes what a peer has told, and returns what was not known.
func (s *Started) Learn(told []cluster.Start, now time.Time) (fresh []cluster.Start) {
	for _, x := range told {
		if _, unknown := s.Saw(x.ID, x.Process, now.Add(-x.Age)); unknown {
			fresh = append(fresh, x)
		}
	}
	return fresh
}

// All returns what a master that comes has to know, the latest first, at most so many.
func (s *Started) All(most int, now time.Time) []cluster.Start {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []cluster.Start
	for id, list := range s.processes {
		for _, p := range list {
			out = append(out, cluster.Start{ID: id, Process: p.sum, Age: max(now.Sub(p.at), 0)})
		}
	}
	slices.SortFunc(out, func(a, b cluster.Start) int { return cmp.Compare(a.Age, b.Age) })
	return out[:min(len(out), most)]
}

// Forget drops a minion, when its key is gone.
func (s *Started) Forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.processes, id)
}
