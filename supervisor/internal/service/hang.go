package service

import (
	"fmt"
	"time"
)

// Hang configures when a run that is up, and whose health check fails, is ended and restarted
// because it hangs. A busy service, a starved machine and a suspended one must not look like
// that. So only failed checks in a row count that ended in time and are Silent, and another sign
// of life excuses them all. A run that has not passed its first check never hangs, because a
// start may take long.
type Hang struct {
	After time.Duration // since the first of at least [hangChecks] such checks; default 15 s
	// Silent reports whether a failure means that the service took the question
	// and did not answer. A refusal is an answer.
	Silent func(error) bool
	// Alive reports whether the service has shown another sign of life since then.
	// nil: there is none.
	Alive func(since time.Time) bool
}

const (
	hangChecks = 4
)

// hangError says why a hung run was ended.
type hangError struct {
	took time.Duration
	last error
}

// Error completes a sentence about the service.
func (e *hangError) Error() string {
	return fmt.Sprintf("did not answer for %s (%v)", e.took.Round(time.Second), e.last)
}

// hangWatch counts the checks of one run. It is not safe for concurrent use.
type hangWatch struct {
	hang   *Hang
	limit  time.Duration // of one check
	silent int           // in a row
	since  time.Time     // when the first of them began
}

func (w *hangWatch) reset() { w.silent = 0 }

// failed counts a failed check. It returns why the run must be ended, or nil.
func (w *hangWatch) failed(began, ended time.Time, err error) *hangError {
	if w.hang == nil {
		return nil
	}

	// A check that ended long after its limit shows that this process did not run.
	starved := ended.Sub(began) > w.limit+w.limit/4
	if starved || !w.hang.Silent(err) {
		w.reset()
		return nil
	}

	if w.silent == 0 {
		w.since = began
	}

	w.silent++
	after := w.hang.After
	if after <= 0 {
		after = 15 * time.Second
	}

	if w.silent < hangChecks || ended.Sub(w.since) < after {
		return nil
	}
	if w.hang.Alive != nil && w.hang.Alive(w.since) {
		w.reset()
		return nil
	}

	return &hangError{took: ended.Sub(w.since), last: err}
}
