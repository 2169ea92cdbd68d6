package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"saltern/master/history"
	"saltern/master/history/summary"
	"saltern/master/pattern"
)

// Fleet answers questions about all minions over time.
type Fleet struct {
	recorder *Recorder
	minions  Minions
	older    Older // may be nil: there is only the history
	now      func() time.Time
	reading  chan struct{} // holds a token for each answer that reads the history

	trend struct {
		mu     sync.Mutex
		latest *Trend
		made   time.Time
		took   time.Duration
	}
	failing failing
}

// Minions are the minions of the master.
type Minions interface {
	// Accepted returns the ids whose keys are accepted.
	Accepted() []string
	// IsSyndic reports whether a minion is a syndic.
	IsSyndic(id string) bool
}

// accepted returns the ids whose keys are accepted, without syndics. The caller must not change the slice.
func (f *Fleet) accepted() []string {
	ids := f.minions.Accepted()
	if !slices.ContainsFunc(ids, f.isMute) {
		return ids
	}
	return slices.DeleteFunc(slices.Clone(ids), f.isMute)
}

// isMute reports whether a minion is a syndic, and has never answered as a minion.
func (f *Fleet) isMute(id string) bool {
	if !f.minions.IsSyndic(id) {
		return false
	}
	_, answered := f.recorder.table.Last(id)
	return !answered
}

// maxReading bounds the answers that read the history at once; others wait.
const maxReading = 4

// NewFleet returns a Fleet. older may be nil: there is only the history.
func NewFleet(r *Recorder, minions Minions, older Older, now func() time.Time) *Fleet {
	return &Fleet{
		recorder: r,
		minions:  minions,
		older:    older,
		now:      now,
		reading:  make(chan struct{}, maxReading),
	}
}

// errTooMany means that a question needs more runs than an answer may read.
var errTooMany = fmt.Errorf("more than %d runs would have to be read: ask for a shorter time, a minion or a function",
	maxRead)

// Summary is the state of all minions.
type Summary struct {
	Minions  int                    // with an accepted key
	Results  map[summary.Result]int // minions by the result of their last run of states
	NeverRun int                    // minions that have run no states
	Silent   int                    // minions whose last return is older than Since
	Drifted  []string               // minions whose last run found drift
	Failed   []string               // minions whose last run failed
	Since    time.Time
	Runs     int // returns since then
	States   map[string]int
	Worst    []StateCount // states that failed most often since then
	// Partial means that there were more runs than were read, or that the history is still to take runs from the job cache
	// or from other masters: the counts of runs are too small.
	Partial bool
}

// StateCount is a state and how often it failed.
type StateCount struct {
	State    string // function and id
	Failures int
	Minions  int
	Comment  string // of the latest failure
}

// Summary returns the state of all minions, with counts of the runs since a time.
func (f *Fleet) Summary(ctx context.Context, since time.Time) (Summary, error) {
	accepted := f.accepted()
	out := Summary{
		Partial: f.recorder.isPartial(),
		Minions: len(accepted),
		Results: map[summary.Result]int{},
		Since:   since,
		States:  map[string]int{},
	}
	for _, minion := range slices.Sorted(slices.Values(accepted)) {
		last, ok := f.recorder.table.Last(minion)
		if !ok || last.Answer.Time.Before(since) {
			out.Silent++
		}
		if last.Run.JID == "" {
			out.NeverRun++
			continue
		}
		out.Results[last.Run.Result]++
		if last.Run.Result >= summary.Failed {
			out.Failed = append(out.Failed, minion)
		}
		if len(last.Summary.Drifted()) > 0 {
			out.Drifted = append(out.Drifted, minion)
		}
	}

	err := f.countRuns(ctx, &out)
	return out, err
}

func (f *Fleet) countRuns(ctx context.Context, out *Summary) error {
	type failures struct {
		StateCount
		minions map[string]bool
	}
	failed := map[string]*failures{}
	err := f.each(ctx, history.Filter{From: out.Since}, func(run *history.Run) bool {
		s := &run.Summary
		out.Runs++
		out.States["ok"] += s.OK
		out.States["changed"] += s.Changed
		out.States["would change"] += s.WouldChange
		out.States["failed"] += s.Failed
		for _, state := range s.FailedStates {
			if state.ID == "" {
				continue
			}
			name := state.Function + " " + state.ID
			if failed[name] == nil {
				if len(failed) >= maxStates {
					continue
				}
				failed[name] = &failures{StateCount{State: name, Comment: state.Comment}, map[string]bool{}}
			}
			failed[name].Failures++
			failed[name].minions[run.Minion] = true
		}
		return true
	})
	if errors.Is(err, errTooMany) {
		out.Partial = true
		err = nil
	}

	for _, s := range failed {
		s.StateCount.Minions = len(s.minions)
		out.Worst = append(out.Worst, s.StateCount)
	}
	slices.SortFunc(out.Worst, func(a, b StateCount) int {
		return cmp.Or(cmp.Compare(b.Failures, a.Failures), cmp.Compare(a.State, b.State))
	})
	out.Worst = out.Worst[:min(len(out.Worst), 10)]
	return err
}

// maxStates bounds the different failed states that a summary counts.
const maxStates = 10_000

// globsOf removes minion, function and user from the filter where they are globs, and returns the condition
// in their place. globs is false if none of them is.
func globsOf(filter *history.Filter) (wanted func(*history.Run) bool, globs bool) {
	take := func(text *string) string {
		if !pattern.HasMeta(*text) {
			return "*"
		}
		glob := *text
		*text = ""
		globs = true
		return glob
	}
	minion := take(&filter.Minion)
	function := take(&filter.Function)
	user := take(&filter.User)
	return func(run *history.Run) bool {
		return pattern.Glob(minion, run.Minion) && pattern.Glob(user, run.User) &&
			summary.AnyFunction(run.Function, func(one string) bool { return pattern.Glob(function, one) })
	}, globs
}

// each calls visit for the runs of a filter, which may have globs, the latest first, until visit returns
// false. It returns errTooMany after maxRead runs.
func (f *Fleet) each(ctx context.Context, filter history.Filter, visit func(*history.Run) bool) error {
	leave, err := f.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()

	wanted, _ := globsOf(&filter)
	return f.recorder.eachPage(ctx, filter, func(runs []history.Run) bool {
		for i := range runs {
			if wanted(&runs[i]) && !visit(&runs[i]) {
				return false
			}
		}
		return true
	})
}

// enter waits until this answer may read the history. The caller must call leave when it has read.
func (f *Fleet) enter(ctx context.Context) (leave func(), err error) {
	select {
	case f.reading <- struct{}{}:
		return func() { <-f.reading }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait to read the history: %w", ctx.Err())
	}
}

// first returns the latest run that a filter selects, which may have globs, and how many runs were read to
// find it. The run is nil if there is none.
func (f *Fleet) first(ctx context.Context, filter history.Filter) (first *history.Run, read int, err error) {
	leave, err := f.enter(ctx)
	if err != nil {
		return nil, 0, err
	}
	defer leave()

	pageSize := 1
	wanted, globs := globsOf(&filter)
	if globs {
		pageSize = 1000
	}
	for from := history.Cursor(""); ; {
		page, err := f.recorder.cfg.Store.Query(ctx, filter, pageSize, from)
		if err != nil {
			return nil, read, err
		}
		read += len(page.Runs)
		at := slices.IndexFunc(page.Runs, func(run history.Run) bool { return wanted(&run) })
		if at >= 0 {
			return &page.Runs[at], read, nil
		}
		from = page.Next
		if from == "" || read >= maxSifted {
			return nil, read, nil
		}
	}
}

// maxSifted bounds the runs that are read for a page of a filter with globs.
const maxSifted = 20_000

// Runs returns a page of runs. The filter may have globs: then a page may be short, or empty, and have a next
// one.
func (f *Fleet) Runs(ctx context.Context, q history.Filter, limit int, from history.Cursor) (history.Page, error) {
	leave, err := f.enter(ctx)
	if err != nil {
		return history.Page{}, err
	}
	defer leave()

	wanted, globs := globsOf(&q)
	if !globs {
		return f.recorder.cfg.Store.Query(ctx, q, limit, from)
	}

	var out history.Page
	for read := 0; ; {
		page, err := f.recorder.cfg.Store.Query(ctx, q, limit-len(out.Runs), from)
		if err != nil {
			return history.Page{}, err
		}
		read += len(page.Runs)
		page.Runs = slices.DeleteFunc(page.Runs, func(run history.Run) bool { return !wanted(&run) })
		out.Runs = append(out.Runs, page.Runs...)
		out.Next = page.Next
		from = page.Next
		if from == "" || len(out.Runs) >= limit || read >= maxSifted {
			return out, nil
		}
	}
}
