// Package schedule runs the master's own scheduled runners (option schedule).
//
// Each second it checks every entry with package plan. When a run is due, it records the run for
// the other masters of the cluster, waits for a free worker, calls the runner, and fires the result
// as an event on the bus.
package schedule

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"saltern/internal/control"
	"saltern/master/event"
	"saltern/master/internal/background"
	"saltern/master/internal/schedule/plan"
	"saltern/master/redact"
	"saltern/master/runner"
	"saltern/master/value"
)

// Runs calls runners (runner.Runs).
type Runs interface {
	Call(ctx context.Context, fun string, args []any, named *value.Map) (any, error)
	// Return passes a result to returners of Salt's library.
	Return(ctx context.Context, returners []string, result *value.Map) error
	// InPython reports whether a function runs in Python.
	InPython(fun string) bool
	// Prepare starts Python, so that the next call of such a function does not wait for it.
	Prepare(ctx context.Context, fun string)
	// Public returns a result without the parts that only some readers of events may see.
	Public(fun string, named *value.Map, result any) any
}

// IDs creates job ids (jobs.IDs).
type IDs interface{ New() string }

// Config configures a Schedule.
type Config struct {
	Plan     *plan.Plan
	Problems []plan.Problem // problems of the option, including refused entries
	// Saved holds entries that are not in the option. It may be nil: there are none.
	Saved Saved
	Runs  Runs
	IDs   IDs
	// Fire fires an event on the bus. It may be nil: results are not announced.
	Fire func(tag string, data *value.Map)
	ID   string // id of this master
	// Returners lists the returners that get the result of each run (schedule_returner).
	Returners []string
	// Workers is how many runs execute at once. 0 means 10, which is also the default of
	// reactor_worker_threads.
	Workers int
	// Own reports whether this master is the owner: the one master of a cluster that runs the
	// schedule. term is the term of the owner.
	Own func() (term uint64, ok bool)
	// Records is shared by the masters of the cluster. It may be nil: there is only one master.
	Records *Records
	Now     func() time.Time // local time, with a monotonic clock
	// Problem reports a fault that an administrator should know about. If err is nil, the fault has
	// ended. Problem may be nil.
	Problem func(fault control.Fault, err error)
	Log     *slog.Logger
}

// Schedule runs the entries of a plan.
//
// Overflow policy: if all workers are busy, a run waits. As in Salt, a run is skipped if as many
// runs of its entry are waiting or executing as the entry allows (maxrunning; by default 1).
// Skipped runs are counted, and their number is logged.
type Schedule struct {
	cfg     Config
	backlog *background.Backlog

	mu sync.Mutex
	// roster holds the entries, and states their states in the same order. Only takeDue writes the
	// fields, and reads them without holding mu.
	roster
	states []plan.State

	// Only takeDue uses the following fields.
	loggedFault string // why runs could not be recorded, as it was last logged
	// lastTime is the time of the last check, and lastCivil is the same time in civil form, see
	// package plan. Both are zero before the first check.
	lastTime  time.Time
	lastCivil time.Time
	version   uint64 // version of the newest record that this master knows
	wrote     uint64 // term of the master that wrote the record of that version
	term      uint64 // term in which states is known to be current; 0: states may be outdated
	// others holds records of entries that this master does not know.
	others entryRecords

	// The fields of prepare, which only the goroutine of Run uses.
	preparing    sync.WaitGroup
	preparedTerm uint64
	ready        <-chan struct{} // nil: nothing was prepared
}

const (
	defaultWorkers = 10
	maxWaiting     = 10_000 // bound of the waiting runs

)

// entry is a plan.Entry together with its runs.
type entry struct {
	*plan.Entry
	*tally
	since time.Time // civil time at which the entry was saved; zero: it is in the option
	// lapsed is the due time of a run that is skipped because no check was made for too long. Zero
	// means that there is none. Only takeDue uses it.
	lapsed time.Time
}

// dueRun is a run that must start now.
type dueRun struct {
	entry *entry
	fun   string
}

// New returns a Schedule.
func New(cfg Config) *Schedule {
	s := &Schedule{cfg: cfg, roster: newRoster(cfg.Plan, cfg.Problems)}
	s.states = make([]plan.State, len(s.entries))
	s.backlog = background.NewBacklog(background.BacklogConfig{
		Workers: cmp.Or(cfg.Workers, defaultWorkers),
		Depth:   maxWaiting,
		Now:     time.Now,
	})
	return s
}

// Stats returns the counters of runs.
func (s *Schedule) Stats() background.BacklogStats { return s.backlog.Stats() }

// Run checks the entries each second until ctx ends. Then it gives the runners that wait or are in
// progress a few seconds, cancels those that are still in progress, and leaves those that have not
// begun to the next owner.
func (s *Schedule) Run(ctx context.Context) {
	if len(s.entries) > 0 || s.cfg.Saved != nil {
		s.lookUntil(ctx)
	}
	s.preparing.Wait()
	s.finish()
}

func (s *Schedule) lookUntil(ctx context.Context) {
	t := time.NewTicker(plan.Tick)
	defer t.Stop()
	for {
		s.prepare(ctx)
		for _, d := range s.takeDue() {
			s.startRun(ctx, d)
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// takeDue makes one check and returns the runs that are due. In a cluster it has recorded these
// runs before it returns. Only one goroutine may call it. It may wait for the shared storage, but
// holds no lock while it waits.
func (s *Schedule) takeDue() []dueRun {
	s.adoptSaved()
	term, own := s.cfg.Own()
	if !own || len(s.entries) == 0 {
		s.term = 0
		return nil
	}

	now := s.cfg.Now()
	took := s.cfg.Records != nil && s.term != term
	if took {
		if err := s.takeOver(now); err != nil {
			s.reportFault(err)
			return nil
		}
	}

	states, dues := s.walkEntries(now)
	if s.mustWait(dues) {
		return nil // a later check finds the same runs due
	}

	looked := plan.Civil(now).Truncate(plan.Tick)
	if s.cfg.Records != nil && (took || len(dues) > 0 || s.haveNews(states)) {
		noted, err := s.recordRuns(record{
			Version: s.version + 1,
			Term:    term,
			Looked:  looked,
			Entries: s.entryRecords(states, looked),
		})
		if err != nil {
			s.reportFault(err)
			return nil // the next check finds the same runs due
		}

		if !noted.Looked.Equal(looked) {
			looked = noted.Looked
			states = s.statesOf(noted)
			dues = s.begunIn(states)
		}

		s.version++
		s.wrote = term
		s.noteRecorded(noted)
	}

	s.reportFault(nil)
	s.logLapsed()
	s.setStates(states)
	s.lastTime = now
	s.lastCivil = looked
	s.term = term

	return dues
}

// setStates replaces the states of the entries.
func (s *Schedule) setStates(states []plan.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.states = states
}

// logLapsed logs the runs that are skipped because no check was made for too long.
func (s *Schedule) logLapsed() {
	for _, e := range s.entries {
		if !e.lapsed.IsZero() {
			s.cfg.Log.Warn("scheduled runner was due while the schedule could not go on for long, and is left out",
				"name", e.Name, "fun", e.Fun, "due", e.lapsed.Format(time.DateTime))
			e.lapsed = time.Time{}
		}
	}
}

// walkEntries makes all checks of all entries since the last call. For an entry that was due
// several times since then, it returns only the last run.
func (s *Schedule) walkEntries(now time.Time) (states []plan.State, dues []dueRun) {
	civil := plan.Civil(now).Truncate(plan.Tick)
	from, shift, gap := s.sinceLastLook(now, civil)
	wrong := s.clockWasWrong(now, shift)
	s.dropCarried(shift)
	look := plan.Look{Enabled: s.plan.Enabled, Splay: plan.SameSplay}
	states = slices.Clone(s.states)
	for i, e := range s.entries {
		state := states[i]
		if shift != 0 {
			state = e.Shift(state, shift)
		}
		if shift < 0 && wrong {
			state = e.CameBack(state, civil)
		}

		if gap {
			state = s.resume(e, state, from)
		}

		look.Running = int(e.running.Load())
		fun := ""
		begin := from
		if e.since.After(from) && !e.since.After(civil) {
			begin = e.since // no run of before the entry was saved
		}
		state = e.Walk(state, begin, civil, look, func(_ time.Time, due string) bool {
			fun = due
			return true
		})
		if state.Since.IsZero() || s.lastCivil.IsZero() || gap || shift > 0 && wrong {
			state = state.WentForward(from, civil)
		}
		if state.Skipped == plan.SkipRunning && state.SkippedTime.After(from) {
			e.missed.Add(1)
		}

		states[i] = state
		if fun != "" {
			dues = append(dues, dueRun{e, fun})
		}
	}

	return states, dues
}

// resume continues an entry after a time without checks, and sets e.lapsed if a run is skipped for
// lack of checks. After a takeover from another master it does not set e.lapsed, because that
// master may have skipped the run for a reason.
func (s *Schedule) resume(e *entry, state plan.State, from time.Time) plan.State {
	next := e.Resume(state, from)
	due := state.Due()
	runs := e.Enabled && s.plan.Enabled && !s.lastTime.IsZero()
	if runs && due.After(s.lastCivil) && next.Next.IsZero() {
		e.lapsed = due
	}
	return next
}

// sinceLastLook returns the time from which checks must be made, and by how much the clock was set
// forward (negative: back) since the last check. gap means that from is later than the last check,
// so runs between the last check and from are skipped.
func (s *Schedule) sinceLastLook(now, civil time.Time) (from time.Time, shift time.Duration, gap bool) {
	if s.lastCivil.IsZero() {
		return civil.Add(-plan.Tick), 0, false
	}

	from = s.lastCivil
	if !s.lastTime.IsZero() {
		shift = plan.Civil(now).Sub(plan.Civil(s.lastTime)) - now.Sub(s.lastTime)
		// The clock is imprecise: ignore small differences.
		if shift.Abs() < 2*time.Second {
			shift = 0
		}
	}

	// If the clock was set forward by a few hours at most, as for summer time, the runs in the
	// hours that the clock skipped take place late.
	if shift != 0 && civil.After(from) && civil.Sub(from) <= 3*time.Hour {
		return from, shift, false
	}
	if shift < 0 {
		return civil.Add(-plan.Tick), shift, false
	}

	// No master made checks for longer than a takeover takes. Skip runs that were due earlier than
	// that.
	if oldest := civil.Add(-10 * time.Minute); from.Before(oldest) {
		return oldest, shift, true
	}

	return from, shift, false
}

// clockWasWrong reports whether the clock was set because it was wrong, and not for summer time.
func (s *Schedule) clockWasWrong(now time.Time, shift time.Duration) bool {
	_, before := s.lastTime.Zone()
	_, after := now.Zone()
	const steps = 30 * time.Minute // of offsets of time zones
	odd := shift - shift.Round(steps)
	return before == after || odd.Abs() > 2*time.Second
}

// startRun starts a run when a worker is free.
func (s *Schedule) startRun(ctx context.Context, d dueRun) {
	if d.entry.DryRun {
		return
	}

	d.entry.running.Add(1)
	d.entry.waiting.Add(1)
	weight := event.Weight(value.NewMap("args", d.entry.Args, "kwargs", d.entry.Kwargs))
	err := s.backlog.Put(ctx, weight, func(ctx context.Context) {
		d.entry.waiting.Add(-1)
		s.callRunner(ctx, d)
		d.entry.running.Add(-1)
		if missed := d.entry.missed.Swap(0); missed > 0 {
			s.cfg.Log.Warn("scheduled runner was at work when it was due again; runs were left out", "name",
				d.entry.Name, "fun", d.fun, "runs", missed)
		}
	})
	if err != nil {
		d.entry.running.Add(-1) // not started, because the master stops
	}
}

// callRunner calls the function of a run and announces the result (salt/utils/schedule.py
// handle_func).
func (s *Schedule) callRunner(ctx context.Context, d dueRun) {
	e := d.entry
	shown := redact.Of(d.fun, e.Args, e.Kwargs)
	jid := s.cfg.IDs.New()
	result, err := s.cfg.Runs.Call(runner.WithSchedule(ctx, e.Name), d.fun, e.Args, e.Kwargs)
	if ctx.Err() != nil && hasNotBegun(err) {
		e.waiting.Add(1)
		return
	}
	if d.fun == plan.SavedRunner {
		e.noteJob(result)
	}
	if err != nil && ctx.Err() == nil {
		s.cfg.Log.Error("scheduled runner failed", "name", e.Name, "fun", d.fun, "error", shown.Error(err))
	}

	data := e.runResult(s.cfg.ID, jid, d.fun, shown.FunArgs(), s.cfg.Now())
	if err != nil {
		data.Set("return", "Unhandled exception running "+d.fun)
		data.Set("success", false)
		data.Set("retcode", int64(254))
	} else {
		data.Set("return", s.cfg.Runs.Public(d.fun, e.Kwargs, shown.Result(result)))
		data.Set("success", true)
		data.Set("retcode", int64(0))
	}

	returners := slices.Clone(e.Returners)
	for _, name := range s.cfg.Returners {
		if !slices.Contains(returners, name) {
			returners = append(returners, name)
		}
	}

	if len(returners) > 0 && err == nil {
		if err := s.cfg.Runs.Return(ctx, returners, e.toReturners(data)); err != nil && ctx.Err() == nil {
			s.cfg.Log.Error("result of a scheduled runner is not with its returners", "name", e.Name, "fun",
				d.fun, "error", err)
		}
	}

	if e.Silent || s.cfg.Fire == nil {
		return
	}

	data.Set("cmd", "_return")
	if len(returners) == 0 {
		data.Set("jid", "req")
		if e.Uncached {
			data.Set("jid", "nocache")
		}
	}

	s.cfg.Fire("__schedule_return", data)
}
