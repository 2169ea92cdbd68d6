package target

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"saltern/master/pattern"
)

// errEffort means that a target was given up since it took too much work.
var errEffort = errors.New("target takes too much work")

// maxEffort is how long all the work on one target may take.
const maxEffort = 10 * time.Second

// lookEvery is after how many steps the clock is looked at.
const lookEvery = 128

// Effort bounds and counts the work on targets of one request. It may be used
// concurrently. The zero value is not usable; a nil Effort bounds nothing.
type Effort struct {
	ctx   context.Context
	until time.Time
	steps atomic.Int64
	spent atomic.Bool
}

// NewEffort makes an Effort that ends with ctx, at the latest after 10 s.
func NewEffort(ctx context.Context) *Effort { return NewEffortFor(ctx, maxEffort) }

// NewEffortFor makes an Effort that ends with ctx, at the latest after limit.
func NewEffortFor(ctx context.Context, limit time.Duration) *Effort {
	return &Effort{ctx: ctx, until: time.Now().Add(limit)}
}

// Restart gives the rest of the work a whole limit of time, after the request has
// waited. It must not be called while the Effort is used.
func (e *Effort) Restart(limit time.Duration) { e.until = time.Now().Add(limit) }

// Spent returns an error when the work was given up: its outcome is no answer.
func (e *Effort) Spent() error { return e.errGivenUp() }

// Steps returns what was done so far: one step is a name that was looked at.
func (e *Effort) Steps() int64 {
	if e == nil {
		return 0
	}
	return e.steps.Load()
}

// Do counts steps of other work for the same request. The error is ErrEffort
// when there may be no more of it.
func (e *Effort) Do(steps int) error {
	if e.spendSteps(steps) {
		return nil
	}
	return e.errGivenUp()
}

// spendSteps counts steps and reports whether there may be any.
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

// errGivenUp is ErrEffort when the work was given up.
func (e *Effort) errGivenUp() error {
	if e == nil || !e.spent.Load() {
		return nil
	}
	if err := e.ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", errEffort, err)
	}
	return errEffort
}

// regexSteps are the bytes of an expression that count for one step.
const regexSteps = 16

// matchRegex matches an expression. One that cannot be decided in time ends the
// whole work: "no" would be "yes" behind a not.
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
