package fleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"saltern/internal/durable"
	"saltern/master/history"
	"saltern/master/history/summary"
	"saltern/master/jobs"
)

// Store is the history of runs ([history.Store]).
type Store interface {
	Append(run history.Run) error
	Amend(run history.Run) error
	Misses(run *history.Run) (bool, error)
	Sync() error
	Query(ctx context.Context, filter history.Filter, limit int, from history.Cursor) (history.Page, error)
	Oldest() time.Time
	WholeSince() time.Time
	HasRestored() bool
}

// Config configures a Recorder.
type Config struct {
	Store Store
	// Dir is the folder of the saved table, on this node's disk. It must exist.
	Dir string
	// Watch gets each run. It may be nil: nobody watches.
	Watch Watcher
	// Late is how old a return may be that another master passes to this one (keep_jobs_seconds).
	Late time.Duration
	Now  func() time.Time
	Log  *slog.Logger
}

// Watcher gets the runs that the history takes.
type Watcher interface {
	// Ran takes a run that the history has taken. After a crash it may get the same run again.
	Ran(run *history.Run)
}

// Recorder writes each return into the history and the table. It implements [jobs.Archive].
type Recorder struct {
	cfg     Config
	table   *Table
	counter counter
	// outcomes has the results of jobs that somebody has asked about.
	outcomes *outcomes
	refused  atomic.Uint64 // returns whose ids the history does not take
	missing  atomic.Int64  // sources of returns that are still to come, see AddMissing

	mu   sync.Mutex // one Add or Sync at a time
	jobs jobCache
}

var (
	_ jobs.Refiller   = (*Recorder)(nil)
	_ jobs.JobArchive = (*Recorder)(nil)
)

const tableFile = "last-runs"

// New returns a Recorder with the saved table and the newest runs of the history. Without a saved table it
// makes the table from the history, which takes a second for each hundred thousand runs; it stops after
// maxRead runs, and when ctx ends.
func New(ctx context.Context, cfg Config) (*Recorder, error) {
	r := &Recorder{
		cfg:      cfg,
		table:    newTable(),
		jobs:     newJobCache(),
		outcomes: newOutcomes(),
		counter:  counter{functions: map[string]*counts{}},
	}
	table, hasDays, err := readTable(r.path())
	hasTable := err == nil
	if hasTable {
		r.table = table
	} else if !errors.Is(err, fs.ErrNotExist) {
		cfg.Log.Warn("table of last runs is made anew from the history", "path", r.path(), "error", err)
	}

	all, remade := r.mergeRestored()
	err = r.readHistory(ctx, hasDays && !all)
	if err != nil && hasTable {
		if !hasDays { // what was read is not whole
			r.table.daysFrom = dayOf(cfg.Now()) + 1
		}
		cfg.Log.Warn("table of last runs may lack the newest ones until the minions run again", "error", err)
		return r, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the last runs of all minions: %w", err)
	}
	r.removeRestored(remade)
	return r, nil
}

// readTable reads a saved table. hasDays is false for a table of the version before.
func readTable(path string) (table *Table, hasDays bool, err error) {
	saved, err := durable.Read(path, maxSaved)
	if err != nil {
		return nil, false, err
	}
	return parseTable(saved)
}

func (r *Recorder) path() string { return filepath.Join(r.cfg.Dir, tableFile) }

// maxRead bounds the runs that are read from the history to make the table, or for one answer.
const maxRead = 200_000

// readHistory enters the runs of the history into the table, the latest first. Runs do not need to be
// in order: an older one does not displace a newer one. newest means that a page of runs that the table
// knows is the last one to be read.
func (r *Recorder) readHistory(ctx context.Context, newest bool) error {
	var oldest time.Time
	err := r.eachPage(ctx, history.Filter{}, func(runs []history.Run) bool {
		known := true
		for i := range runs {
			oldest = runs[i].Time
			if r.table.add(&runs[i], scopeOfHistory(&runs[i]), r.cfg.Now()) {
				known = false
			}
		}
		return !newest || !known
	})
	if errors.Is(err, errTooMany) {
		r.table.daysFrom = dayOf(oldest) + 1
		return nil
	}
	return err
}

// eachPage calls visit with the runs of the history that match, a page at a time and the latest first,
// until visit returns false. After maxRead runs it returns errTooMany.
func (r *Recorder) eachPage(ctx context.Context, filter history.Filter, visit func([]history.Run) bool) error {
	const pageSize = 1000
	var from history.Cursor
	for range maxRead / pageSize {
		page, err := r.cfg.Store.Query(ctx, filter, pageSize, from)
		if err != nil {
			return err
		}
		if !visit(page.Runs) || page.Next == "" {
			return nil
		}
		from = page.Next
	}
	return errTooMany
}

// scopeOfHistory returns the scope of a run of the history, which lacks the arguments. So a table
// that was made from the history has no baselines: the next run of any states is compared with
// none, see [summary.Unknown].
func scopeOfHistory(run *history.Run) uint64 {
	if !summary.RunsStates(run.Function) && run.Summary.States() == 0 {
		return 0
	}
	return unknownScope
}

// Add implements [jobs.Archive].
func (r *Recorder) Add(a jobs.Archived) error {
	_, err := r.Record(a)
	return err
}

// Record does what Add does, and returns the run that the history has taken, also beside a [jobs.ErrLeftOut] that says
// that the history lacks its content. It returns nil without an error for a return of a function that is in no history, and for one
// whose job id is far ahead.
func (r *Recorder) Record(a jobs.Archived) (*history.Run, error) { return r.record(a, isNews) }

// isNews has record count a run, and tell it to those who watch.
const isNews = true

func (r *Recorder) record(a jobs.Archived, news bool) (*history.Run, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	job := r.jobs.of(a.JID, a.Load)
	if isLeftOut(job.function) {
		return nil, nil
	}
	if hasIDAhead(a) {
		_ = r.refuse(a, errAhead) // a caller chose the id: it must not keep a segment on a full disk
		return nil, nil
	}

	run := history.Run{
		Minion:   a.Minion,
		JID:      a.JID,
		User:     job.user,
		Function: job.function,
		Time:     a.Time,
		Summary:  summary.OfPacked(job.function, a.Return),
		Return:   a.Return,
	}
	run.Summary.Test = run.Summary.Test || job.test

	var scope uint64
	if summary.RunsStates(job.function) || run.Summary.States() > 0 {
		scope = job.scope
	}
	now := r.cfg.Now()
	r.table.compare(&run, scope)

	err := r.cfg.Store.Append(run)
	if errors.Is(err, history.ErrRun) { // it will never be taken
		return nil, r.refuse(a, err)
	}
	if err != nil {
		return nil, fmt.Errorf("add a return to the history: %w", err)
	}
	isLate := scope != 0 && r.table.hasLater(&run, now)
	r.table.add(&run, scope, now)
	r.outcomes.add(&run)
	if isLate {
		r.settle(run.Minion, orderOf(run.JID, run.Time), a.LoadOf)
	}
	if news {
		if r.cfg.Watch != nil {
			r.cfg.Watch.Ran(&run)
		}
		r.counter.count(&run, job.byMinion)
	}
	if len(a.Return) > history.MaxReturn {
		return &run, fmt.Errorf("%w: the history has the summary of a return of %d bytes only", jobs.ErrLeftOut, len(a.Return))
	}
	return &run, nil
}

// idsAhead is how far a job id may be ahead of its return. The history looks a run up in all segments whose
// ids may include it, and one id far ahead would make a segment seem to include all later ids.
const idsAhead = 24 * time.Hour

func hasIDAhead(a jobs.Archived) bool { return a.JID > jobs.FromTime(a.Time.Add(idsAhead)) }

var errAhead = errors.New("its job id is more than a day ahead of the return")

// refuse counts and logs a return that the history does not take, and returns the error for the job cache.
func (r *Recorder) refuse(a jobs.Archived, err error) error {
	r.refused.Add(1)
	r.cfg.Log.Warn("return is left out of the history", "minion", a.Minion, "jid", a.JID, "error", err)
	return fmt.Errorf("%w: %w", jobs.ErrLeftOut, err)
}

// isLeftOut reports whether the returns of a function are in no history: those by which tools ask every few
// seconds whether a job still runs, and those of runners and wheel functions, which only the master has that
// ran them. The audit record tells who called these.
func isLeftOut(function string) bool {
	return function == "saltutil.find_job" || function == "saltutil.running" ||
		strings.HasPrefix(function, "runner.") || strings.HasPrefix(function, "wheel.")
}

// Holds implements [jobs.Refiller].
func (r *Recorder) Holds(a jobs.Archived) (jobs.Holding, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	job := r.jobs.of(a.JID, a.Load)
	if isLeftOut(job.function) || hasIDAhead(a) {
		return jobs.NotKept, nil
	}
	misses, err := r.cfg.Store.Misses(&history.Run{JID: a.JID, Minion: a.Minion, Time: a.Time})
	if misses {
		return jobs.Lost, nil
	}
	return jobs.Held, err
}

// Refill implements [jobs.Refiller].
func (r *Recorder) Refill(a jobs.Archived) error {
	_, err := r.record(a, !isNews)
	return err
}

// AddMissing implements [jobs.Refiller]. While a source is missing, each answer of fleet.* says that it is partial.
func (r *Recorder) AddMissing(sources int) { r.missing.Add(int64(sources)) }

// isPartial reports whether the history is still to take runs from the job cache or from other masters.
func (r *Recorder) isPartial() bool { return r.missing.Load() > 0 }

// WholeSince implements [jobs.Archive].
func (r *Recorder) WholeSince() time.Time { return r.cfg.Store.WholeSince() }

// Sync implements [jobs.Archive]. It makes durable what Add has taken: first the history, then the
// table.
func (r *Recorder) Sync() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.cfg.Store.Sync(); err != nil {
		return fmt.Errorf("sync the history: %w", err)
	}
	return r.save()
}

// save writes the table if it has changed. The caller holds mu.
func (r *Recorder) save() error {
	packed, changed := r.table.pack()
	if !changed {
		return nil
	}
	if err := durable.Replace(r.path(), packed, 0o600); err != nil {
		r.table.markChanged()
		return fmt.Errorf("save the last runs: %w", err)
	}
	return nil
}

// Table returns the table of last runs.
func (r *Recorder) Table() *Table { return r.table }

// Stats are the figures of a Recorder.
type Stats struct {
	Minions int
	Evicted uint64 // minions that others have displaced from the table
	Refused uint64 // returns that are in no history, because of their ids
}

// Stats returns the figures.
func (r *Recorder) Stats() Stats {
	r.table.mu.RLock()
	defer r.table.mu.RUnlock()
	return Stats{Minions: len(r.table.entries), Evicted: r.table.evicted, Refused: r.refused.Load()}
}
