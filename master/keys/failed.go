package keys

import (
	"slices"
	"sync"
)

// failedLooks holds the keys whose files could not be read, until the next try. Its zero value is
// ready to use.
type failedLooks struct {
	mu     sync.Mutex
	states map[string][]State // states whose files could not be read, by id
	tried  map[string][]State // last result of take, so that a further failure of the same files is not logged
	many   bool               // there were more than maxFailed: all files must be checked
}

// maxFailed bounds the ids of failedLooks. When there are more ids, Run checks all files.
const maxFailed = maxNames

// add records the states of an id whose files could not be read.
func (l *failedLooks) add(id string, states []State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.states[id]; !known && len(l.states) >= maxFailed {
		l.many = true
		return
	}
	if l.states == nil {
		l.states = map[string][]State{}
	}
	for _, st := range states {
		if !slices.Contains(l.states[id], st) {
			l.states[id] = append(l.states[id], st)
		}
	}
}

// take returns the recorded ids and forgets them. many reports whether some ids were not recorded.
func (l *failedLooks) take() (states map[string][]State, many bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	states, many = l.states, l.many
	l.tried = l.states
	l.states, l.many = nil, false
	return states, many
}

// has reports whether recently a file of an id could not be read.
func (l *failedLooks) has(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.states[id] != nil || l.tried[id] != nil
}
