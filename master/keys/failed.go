package keys

import (
	"slices"
	"sync"
)

// failedLooks holds the keys whose files could not be read, until the next try. Its zero value is
// ready.
type failedLooks struct {
	mu     sync.Mutex
	states map[string][]State // by id
	tried  map[string][]State // what take has returned last, so that a further failure is not logged
	many   bool               // there were more than maxFailed: all files must be checked
}

// maxFailed bounds the ids of failedLooks. When there are more, Run checks all files.
const maxFailed = maxNames

// add records states of an id.
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

// take returns the recorded ids and forgets them. many reports whether some were not recorded.
func (l *failedLooks) take() (states map[string][]State, many bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	states, many = l.states, l.many
	l.tried = l.states
	l.states, l.many = nil, false
	return states, many
}

// has reports whether the files of an id could not be read lately.
func (l *failedLooks) has(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.states[id] != nil || l.tried[id] != nil
}
