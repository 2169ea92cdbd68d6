package target

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"saltern/master/pattern"
)

// errEffort means that matching a target was ended because it took too much work.
var errEffort = errors.New("target takes too much work")

// lookEvery is the number of steps after which Effort reads the clock.
const lookEvery = 128

// Effort bounds and counts the work on the targets of one request. It may be used concurrently.
// NewEffort and NewEffortFor create an Effort; a nil Effort has no bound.
type Effort struct {
	ctx   context.Context
	until time.Time
	steps atomic.Int64
	spent atomic.Bool
}

// NewEffort returns an Effort that ends with ctx, or after 10 s.
func NewEffort(ctx context.Context) *Effort { return NewEffortFor(ctx, 10*time.Second) }

// NewEffortFor returns an Effort that ends with ctx, or after limit.
func NewEffortFor(ctx context.Context, limit time.Duration) *Effort {
	return &Effort{ctx: ctx, until: time.Now().Add(limit)}
}

// Restart begins a new time limit for the remaining work of a request that has waited. The Effort
// must not be used during the call.
func (e *Effort) Restart(limit time.Duration) { e.until = time.Now().Add(limit) }

// Spent returns an error if the Effort was used up before the work was complete. After such an
// error the caller must not use the result of the work.
func (e *Effort) Spent() error { return e.errGivenUp() }

// Steps returns the number of steps so far. One step is a check of one name.
func (e *Effort) Steps() int64 {
	if e == nil {
		return 0
	}
	return e.steps.Load()
}

// Do counts steps of further work for the same request. It returns errEffort when the Effort is
// used up.
func (e *Effort) Do(steps int) error {
	if e.spendSteps(steps) {
		return nil
	}
	return e.errGivenUp()
}

// spendSteps counts steps and reports whether the Effort is not used up.
func (e *Effort) spendSteps(steps int) bool {
	if e == nil {
		return true
	}
	n := e.steps.Add(int64(steps))
	if e.spent.Load() {
		return false
	}
	if n/lookEvery != (n-int64(steps))/lookEvery && (e.ctx.Err() != nil || time.Now().After(e.until)) {
		e.spent.Store(true)
		return false
	}
	return true
}

// errGivenUp returns errEffort if the Effort was used up before the work was complete, and nil if
// not.
func (e *Effort) errGivenUp() error {
	if e == nil || !e.spent.Load() {
		return nil
	}
	if err := e.ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", errEffort, err)
	}
	return errEffort
}

// regexSteps is the number of bytes of an expression that cost one step.
const regexSteps = 16

// matchRegex reports whether an expression matches. If matching takes too long, matchRegex marks
// the Effort as used up, so that the target fails: after a "not", a wrong false would select the
// minion.
func (e *Effort) matchRegex(expr, s string) bool {
	if !e.spendSteps(1 + len(expr)/regexSteps) {
		return false
	}
	ok, err := pattern.MatchErr(expr, s)
	if e != nil && errors.Is(err, pattern.ErrTimeout) {
		e.spent.Store(true)
	}
	return err == nil && ok
}
