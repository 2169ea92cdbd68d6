package presence

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"saltern/master/cluster"
)

// Bounds of Started.
const (
	// maxStarted bounds the minions. Overflow policy: starts of further minions are not recorded,
	// see After.
	maxStarted   = 1 << 17
	maxProcesses = 8 // processes of one minion: the daemon, one for each of its masters, salt-call
	// startedFor is how long starts are stored: as long as a job may be published late, plus a
	// margin.
	startedFor = lateFor + 5*time.Minute
	// KnownFor is how long after its start a process is known to every master. A master that does
	// not know the process by then was cut off for so long that no other master still holds a job
	// for it.
	KnownFor = 90 * time.Second
)

// Started records which minions were restarted, and when. A new process of a minion signs in with a
// new token, at this master or at another master, which reports it. The new process does not know
// which jobs the earlier process ran. Started is safe for concurrent use.
type Started struct {
	mu        sync.Mutex
	processes map[string][]process // processes of each minion, the latest process last
	starts    []start              // recent starts, the latest last
	lastFull  time.Time            // time at which a start was last dropped because the table was full
	noted     uint64               // number of starts that were ever recorded
}

type process struct {
	sum   uint64 // digest of the process's token; 0: it sent no token
	at    time.Time
	asked bool // the process sent no token and was asked to sign in again with a token
}

type start struct {
	at time.Time
	id string
}

// NewStarted returns an empty Started.
func NewStarted() *Started { return &Started{processes: map[string][]process{}} }

// Saw records a sign-in of a process, and returns when the process was first seen. fresh reports
// whether Saw has recorded a new process; it is also false if the table is full. Two sign-ins of a
// minion without a token are two processes, unless the second follows within five seconds.
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
		list = append(list[max(0, len(list)-maxProcesses+1):], process{sum: sum, at: at})
		fresh = true
	// Two reports of a start without a token within this time are about the same start.
	case sum == 0 && at.Sub(list[i].at) > 5*time.Second:
		list[i] = process{at: at}
		fresh = true
	case sum != 0 && at.Before(list[i].at): // another master has seen the process earlier
		s.removeStart(id, list[i].at)
		list[i].at = at
	default:
		return list[i].at, false
	}

	s.processes[id] = list
	s.insertStart(id, at)
	return at, fresh
}

// eventCommand is the command with which a minion sends events (salt/minion.py _fire_master).
const eventCommand = "_minion_event"

// AsksToken reports whether the newest process of a minion must sign in again because it has not
// sent a token. It returns true only once for a process. A minion that does not have the master's
// key yet sends no token (salt/crypt.py minion_sign_in_payload), so the first sign-in of a new
// minion has none. If a process sent its first token at a later connection, it would look like a
// new process.
//
// command is the command of the minion's request. Only events count, because the minion process
// itself sends events. The pillar, for example, is requested by another object in Salt, which has a
// different token. If s is nil, AsksToken returns false.
func (s *Started) AsksToken(id, command string) bool {
	if s == nil || command != eventCommand {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.processes[id]
	newest := -1
	for i, p := range list {
		if newest < 0 || !p.at.Before(list[newest].at) {
			newest = i
		}
	}

	if newest < 0 || list[newest].sum != 0 || list[newest].asked {
		return false
	}
	list[newest].asked = true
	return true
}

// Count returns a number that changes with each new start. If s is nil, Count returns 0.
func (s *Started) Count() uint64 {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.noted
}

// insertStart inserts a start in order of time. The caller holds s.mu.
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

// removeStart undoes insertStart. The caller holds s.mu.
func (s *Started) removeStart(id string, at time.Time) {
	for i := len(s.starts) - 1; i >= 0 && !s.starts[i].at.Before(at); i-- {
		if s.starts[i].id == id && s.starts[i].at.Equal(at) {
			s.starts = slices.Delete(s.starts, i, i+1)
			return
		}
	}
}

// After returns the minions that have started after t. sure is false if ids may be incomplete,
// because t is too long ago or because starts were recently dropped.
func (s *Started) After(t, now time.Time) (ids map[string]bool, sure bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids = map[string]bool{}
	for i := len(s.starts) - 1; i >= 0 && s.starts[i].at.After(t); i-- {
		ids[s.starts[i].id] = true
	}
	return ids, now.Sub(t) <= startedFor && (s.lastFull.IsZero() || now.Sub(s.lastFull) > startedFor)
}

// Learn records the starts that a peer has reported, and returns those that were unknown.
func (s *Started) Learn(starts []cluster.Start, now time.Time) (fresh []cluster.Start) {
	for _, x := range starts {
		if _, unknown := s.Saw(x.ID, x.Process, now.Add(-x.Age)); unknown {
			fresh = append(fresh, x)
		}
	}
	return fresh
}

// All returns the starts that a new peer must know: the latest first, at most limit.
func (s *Started) All(limit int, now time.Time) []cluster.Start {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []cluster.Start
	for id, list := range s.processes {
		for _, p := range list {
			out = append(out, cluster.Start{ID: id, Process: p.sum, Age: max(now.Sub(p.at), 0)})
		}
	}
	slices.SortFunc(out, func(a, b cluster.Start) int { return cmp.Compare(a.Age, b.Age) })
	return out[:min(len(out), limit)]
}

// Forget drops the entries of a minion whose key was removed.
func (s *Started) Forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.processes, id)
}
