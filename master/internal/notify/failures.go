package notify

import (
	"fmt"
	"maps"
	"slices"
	"sync"
)

// failures are the destinations that have accepted no message for reportAfter. They are one problem
// of the node, which ends with the last of them.
type failures struct {
	report func(error) // nil: the problem has ended

	mu   sync.Mutex
	errs map[string]error // by the name of the destination
}

// set notes that a destination fails with err, or nil: it does not fail.
func (f *failures) set(name string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, failed := f.errs[name]
	switch {
	case err != nil:
		f.errs[name] = err
	case failed:
		delete(f.errs, name)
	default:
		return
	}

	if len(f.errs) == 0 {
		f.report(nil)
		return
	}
	names := slices.Sorted(maps.Keys(f.errs))
	f.report(&destinationError{to: names[0], others: len(names) - 1, err: f.errs[names[0]]})
}

// destinationError says which destination does not accept messages.
type destinationError struct {
	to     string
	others int // destinations that do not accept messages either
	err    error
}

// Error implements error.
func (e *destinationError) Error() string {
	name := e.to
	if e.others > 0 {
		name = fmt.Sprintf("%s (and %d more)", e.to, e.others)
	}
	return name + " accepts no notifications: " + e.err.Error()
}

// Unwrap returns the error below.
func (e *destinationError) Unwrap() error { return e.err }
