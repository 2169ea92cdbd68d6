package fleet

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"saltern/master/history"
	"saltern/master/history/summary"
	"saltern/master/jobs"
	"saltern/master/value"
)

// What a master says of a run depends on the runs alone, not on the order in which it has heard of them. A master that was
// away hears of a run before it hears of the run's job, or of the run before:
//
//	load of a job, of which there are runs ──> AddJob ──> amendRuns: user, function, test
//	return that is older than the last run ──> record ──┴> settle: the causes of this run and of those after it
//
// Both write the amended runs into the history again.

// Bounds of how long the history may take for the runs of a job, and for those of a minion.
const (
	amendFor  = 2 * time.Minute
	settleFor = 10 * time.Second
)

// maxWindow bounds the returns of a minion that settle reads. A run that comes so late that there are more after it
// changes nothing of them.
const maxWindow = 2000

// AddJob implements [jobs.JobArchive]. It amends the runs that came before the load of their job.
func (r *Recorder) AddJob(a jobs.ArchivedJob) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.jobs.jobs, a.JID)
	ctx, cancel := context.WithTimeout(context.Background(), amendFor)
	defer cancel()

	differs := false
	err := r.eachPage(ctx, history.Filter{JID: a.JID}, func(runs []history.Run) bool {
		if len(runs) == 0 { // the load came before the returns, as almost always
			return false
		}
		job := r.jobOf(&a)
		differs = slices.ContainsFunc(runs, func(run history.Run) bool {
			return job.amend(&run) || r.table.differsFrom(&run)
		})
		return !differs
	})
	if err == nil && differs {
		err = r.amendRuns(ctx, &a)
	}
	if err != nil {
		return fmt.Errorf("write the runs of a job with its load: %w", err)
	}
	return nil
}

func (r *Recorder) jobOf(a *jobs.ArchivedJob) job {
	return r.jobs.of(a.JID, func() *value.Map { return a.LoadOf(a.JID) })
}

// amendRuns writes the runs of a job again that differ from its load. The caller holds mu.
func (r *Recorder) amendRuns(ctx context.Context, a *jobs.ArchivedJob) error {
	var failed error
	err := r.eachPage(ctx, history.Filter{JID: a.JID, Returns: true}, func(runs []history.Run) bool {
		job := r.jobOf(a)
		for i := range runs {
			run := &runs[i]
			if !job.amend(run) && !r.table.differsFrom(run) {
				continue
			}

			scope := job.scopeOf(run)
			if failed = r.writeAgain(run, scope); failed != nil {
				return false
			}
			r.table.add(run, scope, r.cfg.Now()) // without its job it may not have counted as a run of states
			if scope != 0 {
				r.settle(run.Minion, orderOf(run.JID, run.Time), a.LoadOf)
			}
		}
		return true
	})
	return cmp.Or(failed, err)
}

// amend makes a run of the history what it is by its job, and reports whether it was something else.
func (j *job) amend(run *history.Run) bool {
	if j.function == "" || isLeftOut(j.function) {
		return false
	}
	isTest := j.test || run.Summary.WouldChange > 0
	if run.User == j.user && run.Function == j.function && run.Summary.Test == isTest {
		return false
	}

	if run.Function != j.function && len(run.Return) > 0 {
		run.Summary = summary.OfPacked(j.function, run.Return)
		var none *baseline
		none.explain(&run.Summary)
	}
	run.User = j.user
	run.Function = j.function
	run.Summary.Test = isTest
	return true
}

// scopeOf returns the scope of a run of the job, or 0 if it cannot be compared.
func (j *job) scopeOf(run *history.Run) uint64 {
	if !summary.RunsStates(j.function) && run.Summary.States() == 0 {
		return 0
	}
	return j.scope
}

// writeAgain puts an amended run, which has its return, into the history and the table. The caller holds mu.
func (r *Recorder) writeAgain(run *history.Run, scope uint64) error {
	if err := r.cfg.Store.Amend(*run); err != nil {
		return err
	}
	r.table.amend(run, scope, r.cfg.Now())
	r.outcomes.forget(run.JID)
	return nil
}

// settle compares the runs of a minion again, from an order on. It logs a failure, after which the causes stay as they
// are. The caller holds mu.
func (r *Recorder) settle(minion, from string, loadOf func(jid string) *value.Map) {
	ctx, cancel := context.WithTimeout(context.Background(), settleFor)
	defer cancel()
	w := window{recorder: r, minion: minion, from: from, loadOf: loadOf}
	err := w.read(ctx)
	if err == nil {
		err = w.compare(ctx)
	}
	if err != nil {
		r.cfg.Log.Warn("runs of a minion cannot be compared again: the causes of their changes may be wrong", "minion", minion,
			"error", err)
	}
}

// window has the runs of states of a minion from an order on, and those before that they are compared with.
type window struct {
	recorder *Recorder
	minion   string
	from     string
	loadOf   func(jid string) *value.Map

	before  entry // baselines before from
	runs    []comparedRun
	wanting map[uint64]bool // scopes that changed something and whose baseline before from is not found
	until   time.Time       // no older return may be of an order that counts
	newest  bool            // only the newest of the runs from the order on were read
}

type comparedRun struct {
	history.Run
	scope uint64
	order string
}

// read reads the runs, the oldest first.
func (w *window) read(ctx context.Context) error {
	w.before.baselines = w.recorder.table.baselinesBefore(w.minion, w.from)
	w.wanting = map[uint64]bool{}
	w.until = earliestOf(w.from)

	w.newest = true
	err := w.readPages(ctx)
	slices.SortStableFunc(w.runs, func(a, b comparedRun) int {
		return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.JID, b.JID))
	})
	return err
}

// readPages reads the returns of the minion, the latest first. Most late runs are late by one or two.
func (w *window) readPages(ctx context.Context) error {
	const firstPage, largestPage = 8, 1000
	var from history.Cursor
	returns := 0
	for size := firstPage; returns < maxWindow; size = min(2*size, largestPage) {
		page, err := w.recorder.cfg.Store.Query(ctx, history.Filter{Minion: w.minion}, size, from)
		if err != nil {
			return err
		}
		for i := range page.Runs {
			isBefore := page.Runs[i].Time.Before(w.until)
			w.newest = w.newest && !isBefore
			if isBefore && len(w.wanting) == 0 {
				return nil
			}
			w.add(&page.Runs[i])
		}

		returns += len(page.Runs)
		if from = page.Next; from == "" {
			w.newest = false
			return nil
		}
	}
	return nil
}

// earliestOf returns the time before which no return may have an order or a later one.
func earliestOf(order string) time.Time {
	at, err := jobs.Time(order)
	if err != nil {
		return time.Time{}
	}
	return at.Add(-farthestAhead)
}

// add adds a return, if it is a run of states whose load is known. Returns come the latest first.
func (w *window) add(run *history.Run) {
	if scopeOfHistory(run) == 0 {
		return
	}
	job := w.recorder.jobs.of(run.JID, func() *value.Map { return w.loadOf(run.JID) })
	scope := job.scope
	if scope == unknownScope {
		return
	}

	order := orderOf(run.JID, run.Time)
	w.runs = append(w.runs, comparedRun{*run, scope, order})
	switch {
	case order >= w.from && len(run.Summary.ChangedStates) > 0:
		w.wanting[scope] = w.before.baselineOf(scope, w.from) == nil
	case order < w.from && w.wanting[scope] && isBaseline(&run.Summary):
		w.wanting[scope] = false
		if earliest := earliestOf(order); earliest.Before(w.until) {
			w.until = earliest // one whose job began later may have returned before
		}
	}
	if !w.wanting[scope] {
		delete(w.wanting, scope)
	}
}

// compare sets the causes of the runs from the order on, and writes those again that had others.
func (w *window) compare(ctx context.Context) error {
	if w.newest {
		return nil
	}

	now := w.recorder.cfg.Now()
	var all []baseline
	for i := range w.runs {
		run := &w.runs[i]
		base := w.before.baselineOf(run.scope, run.order)
		if run.order >= w.from && base != nil && base.explain(&run.Summary) {
			if err := w.write(ctx, run); err != nil {
				return err
			}
		}

		all = append(all, baselineOf(&run.Run, run.scope))
		w.before.renewBaselines(all[i:])
		w.before.setBaseline(&run.Run, run.scope, now)
	}
	w.recorder.table.renew(w.minion, w.runs, all, now)
	return nil
}

// write writes a run again with its return.
func (w *window) write(ctx context.Context, run *comparedRun) error {
	filter := history.Filter{Minion: run.Minion, JID: run.JID, Returns: true}
	page, err := w.recorder.cfg.Store.Query(ctx, filter, 1, "")
	if err != nil {
		return err
	}
	if len(page.Runs) > 0 {
		run.Return = page.Runs[0].Return
	}
	return w.recorder.writeAgain(&run.Run, run.scope)
}

// hasLater reports whether the table has a later run of states of the minion than a run that it is about to get.
func (t *Table) hasLater(run *history.Run, now time.Time) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	e := t.entries[run.Minion]
	if e == nil {
		return false
	}
	order := orderOf(run.JID, run.Time)
	return e.run.JID != "" && e.run.order() != order && !isNewer(order, e.run.order(), now)
}

// baselinesBefore returns copies of the baselines of a minion before an order.
func (t *Table) baselinesBefore(minion, order string) []baseline {
	t.mu.RLock()
	defer t.mu.RUnlock()
	e := t.entries[minion]
	if e == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(e.baselines), func(b baseline) bool { return b.order >= order })
}

// differsFrom reports whether a run of the history is another one than the table has of it. After a crash the table is
// older than the history.
func (t *Table) differsFrom(run *history.Run) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	e := t.entries[run.Minion]
	if e == nil {
		return false
	}
	differs := func(a *Answer) bool {
		return a.JID == run.JID && (a.User != clip(run.User, 64) || a.Function != clip(run.Function, 64))
	}
	return differs(&e.answer) || differs(&e.run)
}

// renew enters what the history has of a minion: its last run, and baselines, which the table may have with other causes.
func (t *Table) renew(minion string, runs []comparedRun, all []baseline, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[minion]
	if e == nil {
		return
	}
	e.renewBaselines(all)
	for i := range runs {
		if runs[i].JID == e.run.JID {
			e.amend(&runs[i].Run, runs[i].scope, now)
		}
	}
	t.changed = true
}

// renewBaselines replaces the baselines of the entry that are in a list.
func (e *entry) renewBaselines(list []baseline) {
	for i := range e.baselines {
		mine := &e.baselines[i]
		at := slices.IndexFunc(list, func(b baseline) bool { return b.scope == mine.scope && b.order == mine.order })
		if at >= 0 {
			*mine = list[at]
		}
	}
}

// amend enters a run again, which has become another one, where the table has it.
func (t *Table) amend(run *history.Run, scope uint64, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.entries[run.Minion]; e != nil {
		e.amend(run, scope, now)
		t.changed = true
	}
}

func (e *entry) amend(run *history.Run, scope uint64, now time.Time) {
	if e.answer.JID == run.JID {
		e.answer = answerOf(run)
	}
	var latest *summary.Summary
	if scope != 0 && e.run.JID == run.JID {
		e.run = answerOf(run)
		latest = &run.Summary
		e.drifted = len(latest.Drifted()) > 0
	}

	order := orderOf(run.JID, run.Time)
	e.baselines = slices.DeleteFunc(e.baselines, func(b baseline) bool { return b.order == order })
	if scope != 0 && scope != unknownScope {
		e.setBaseline(run, scope, now)
	}
	e.fit(latest)
}
