package fleet

import (
	"context"
	"errors"
	"hash/fnv"
	"sync"

	"saltern/master/history"
	"saltern/master/history/summary"
)

// outcomes has the results of jobs that somebody has asked about, so that a list of jobs that is shown again
// and again does not read the history again and again. It is safe for concurrent use.
type outcomes struct {
	mu      sync.Mutex
	jobs    map[string]*outcome
	returns int // results of all jobs
}

// Bounds of outcomes. Overflow policy: all are forgotten, and read again.
const (
	maxOutcomes       = 20_000  // jobs
	maxOutcomeReturns = 500_000 // results of all jobs; each takes some 20 bytes
)

// outcome counts the returns of a job by result. A repeated return changes nothing.
type outcome struct {
	whole   bool                      // it has all runs of the history
	results map[uint64]summary.Result // by the hash of the minion's id
	counts  Outcome
}

// Outcome counts the returns of a job by result.
type Outcome struct {
	OK, Failed           int
	Changed, WouldChange int // runs of states among those that are OK
	Error                int // runs of states that did not start, among those that failed
}

func (o *Outcome) add(result summary.Result) {
	if result >= summary.Failed {
		o.Failed++
	} else {
		o.OK++
	}

	switch result {
	case summary.Changed:
		o.Changed++
	case summary.WouldChange:
		o.WouldChange++
	case summary.Error:
		o.Error++
	}
}

func newOutcomes() *outcomes { return &outcomes{jobs: map[string]*outcome{}} }

func hashMinion(id string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id)) // never fails
	return h.Sum64()
}

// add enters a run of a job that somebody has asked about.
func (o *outcomes) add(run *history.Run) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if one := o.jobs[run.JID]; one != nil {
		o.addLocked(one, run)
	}
}

func (o *outcomes) addLocked(one *outcome, run *history.Run) {
	minion := hashMinion(run.Minion)
	if _, ok := one.results[minion]; ok {
		return
	}
	if o.returns >= 2*maxOutcomeReturns {
		o.forgetLocked()
	}
	result := run.Summary.Result
	one.results[minion] = result
	o.returns++
	one.counts.add(result)
}

// of returns the outcome of a job if it is known.
func (o *outcomes) of(jid string) (Outcome, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	one := o.jobs[jid]
	if one == nil || !one.whole {
		return Outcome{}, false
	}
	return one.counts, true
}

// forget makes the outcome of a job be read again.
func (o *outcomes) forget(jid string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if one := o.jobs[jid]; one != nil {
		o.returns -= len(one.results)
		delete(o.jobs, jid)
	}
}

func (o *outcomes) forgetLocked() {
	o.jobs = map[string]*outcome{}
	o.returns = 0
}

// begin makes add enter the runs of a job from now on.
func (o *outcomes) begin(jid string) *outcome {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.jobs) >= maxOutcomes || o.returns >= maxOutcomeReturns {
		o.forgetLocked()
	}
	one := o.jobs[jid]
	if one == nil {
		one = &outcome{results: map[uint64]summary.Result{}}
		o.jobs[jid] = one
	}
	return one
}

// readOutcome enters the runs of a job from the history, and returns its outcome. It subtracts them from
// budget, the number of runs that an answer may read; when that is used up, ok is false.
func (f *Fleet) readOutcome(ctx context.Context, jid string, budget *int) (out Outcome, ok bool, err error) {
	o := f.recorder.outcomes
	if out, ok = o.of(jid); ok {
		return out, true, nil
	}
	if *budget <= 0 {
		return Outcome{}, false, nil
	}

	one := o.begin(jid)
	err = f.each(ctx, history.Filter{JID: jid}, func(run *history.Run) bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.addLocked(one, run)
		*budget--
		return true
	})
	if err != nil && !errors.Is(err, errTooMany) {
		return Outcome{}, false, err
	}

	o.mu.Lock()
	defer o.mu.Unlock()
	one.whole = true
	return one.counts, true, nil
}
