package service

import (
	"fmt"
	"time"
)

// Hang configures when a service whose health check fails is killed and restarted because it hangs.
// A busy service, a starved machine or a suspended one must not look like a hang. So only
// consecutive failed checks count, and of these only checks that ended in time and for whose error
// Silent returns true. If Alive reports another sign of life, the count starts again. A run that
// has not passed its first check never counts as hung, because a start may take long.
type Hang struct {
	After time.Duration // how long these checks, at least [hangChecks] of them, must have failed; default 15 s
	// Silent reports whether an error means that the service accepted the request but did not
	// answer. A refusal counts as an answer.
	Silent func(error) bool
	// Alive reports whether the service has shown a sign of life other than a passed check after
	// since. It may be nil: there is no other sign.
	Alive func(since time.Time) bool
}

const (
	hangChecks = 4
)

// hangError is the reason why a run was ended as hung.
type hangError struct {
	took time.Duration
	last error
}

// Error returns the rest of a sentence that begins with the service's name.
func (e *hangError) Error() string {
	return fmt.Sprintf("did not answer for %s (%v)", e.took.Round(time.Second), e.last)
}

// hangWatch counts the failed checks of one run. It is not safe for concurrent use.
type hangWatch struct {
	hang   *Hang
	limit  time.Duration // time limit of one check
	silent int           // number of silent checks in a row
	since  time.Time     // when the first of these silent checks began
}

func (w *hangWatch) reset() { w.silent = 0 }

// failed counts a failed check. It returns why the run must be ended, or nil if it may continue.
func (w *hangWatch) failed(began, ended time.Time, err error) *hangError {
	if w.hang == nil {
		return nil
	}

	// A check that ended long after its limit shows that this process itself was not running.
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
