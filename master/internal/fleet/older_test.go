package fleet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"saltern/master/history"
	"saltern/master/value"
	"saltern/test/check"
)

// runList is a Store, and an Older, of some runs.
type runList struct {
	runs  []history.Run
	err   error
	asked int
	waits bool // it is still to take restored runs
}

func (l *runList) Append(history.Run) error { return nil }
func (l *runList) Amend(history.Run) error  { return nil }

func (l *runList) Misses(*history.Run) (bool, error) { return false, nil }
func (l *runList) Sync() error                       { return nil }
func (l *runList) HasRestored() bool                 { return l.waits }

func (l *runList) Oldest() (oldest time.Time) {
	for _, run := range l.runs {
		if oldest.IsZero() || run.Time.Before(oldest) {
			oldest = run.Time
		}
	}
	return oldest
}

func (l *runList) WholeSince() time.Time { return l.Oldest() }

func (l *runList) Query(_ context.Context, f history.Filter, limit int, from history.Cursor) (page history.Page, err error) {
	for i := range l.runs {
		run := &l.runs[i]
		selected := (f.Minion == "" || f.Minion == run.Minion) && !run.Time.Before(f.From) &&
			(f.To.IsZero() || run.Time.Before(f.To))
		if from != "" {
			place := placeOf(from)
			selected = selected && history.Compare(&place, run) < 0
		}
		if selected {
			page.Runs = append(page.Runs, *run)
		}
	}
	slices.SortFunc(page.Runs, func(a, b history.Run) int { return history.Compare(&a, &b) })
	if len(page.Runs) > limit {
		page.Runs = page.Runs[:limit]
		page.Next = history.After(&page.Runs[limit-1])
	}
	return page, nil
}

// database is a runList that keeps microseconds.
type database struct{ runList }

func (d *database) Runs(ctx context.Context, f history.Filter, limit int, from history.Cursor) (history.Page, error) {
	d.asked++
	if d.err != nil {
		return history.Page{}, d.err
	}
	if from != "" {
		place := placeOf(from)
		place.Time = place.Time.Truncate(time.Microsecond)
		from = history.After(&place)
	}
	return d.Query(ctx, f, limit, from)
}

// olderFleet has all runs in a database, and those from a time on, with gaps where late ones are missing, in the history.
func olderFleet(random *rand.Rand) (f *Fleet, db *database, all []string) {
	store := &runList{}
	db = &database{}
	for i := range 300 {
		run := history.Run{
			JID:    fmt.Sprintf("job%d", random.IntN(40)),
			Minion: fmt.Sprintf("web%d.%d", random.IntN(3), i),
			Time:   start.Add(time.Duration(random.IntN(300)) * time.Minute).Add(time.Duration(i) * 1100 * time.Nanosecond),
		}
		age := start.Add(300 * time.Minute).Sub(run.Time)
		if age < 120*time.Minute || age < 150*time.Minute && random.IntN(2) == 0 {
			store.runs = append(store.runs, run)
		}
		run.Time = run.Time.Truncate(time.Microsecond)
		db.runs = append(db.runs, run)
	}
	slices.SortFunc(db.runs, func(a, b history.Run) int { return history.Compare(&a, &b) })
	for _, run := range db.runs {
		all = append(all, run.Minion)
	}
	recorder := &Recorder{cfg: Config{Store: store, Late: 30 * time.Minute}}
	return NewFleet(recorder, accepted{}, db, func() time.Time { return start }), db, all
}

// Pages of runs that are in the history, in a database, or in both, have each run once, in order.
func TestPagesOfHistoryAndDatabase(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	for range 60 {
		f, db, all := olderFleet(random)
		limit := 1 + random.IntN(70)
		filter := history.Filter{}
		if random.IntN(2) == 0 {
			filter.Minion = "web1*"
			all = slices.DeleteFunc(all, func(minion string) bool { return minion[:4] != "web1" })
		}

		var got []string
		for from := history.Cursor(""); ; {
			page, missing, err := f.AllRuns(t.Context(), filter, limit, from)
			check.Must(t, err)
			if missing != nil || len(page.Runs) > limit {
				t.Fatalf("seed %d: %d runs of %d, missing: %v", seed, len(page.Runs), limit, missing)
			}
			for _, run := range page.Runs {
				got = append(got, run.Minion)
			}
			if from = page.Next; from == "" {
				break
			}
		}
		if !slices.Equal(got, all) {
			t.Fatalf("seed %d: pages of %d for %q have %d runs, not %d, or another order", seed, limit, filter.Minion,
				len(got), len(all))
		}

		db.asked = 0
		_, _, err := f.AllRuns(t.Context(), history.Filter{}, 5, "")
		check.Must(t, err)
		if db.asked != 0 {
			t.Fatalf("seed %d: the database was asked for runs that the history has", seed)
		}
	}
}

func TestRunsOfADatabaseThatIsAway(t *testing.T) {
	f, db, _ := olderFleet(rand.New(rand.NewPCG(1, 1)))
	db.err = errors.New("it is away")
	page, missing, err := f.AllRuns(t.Context(), history.Filter{}, 1000, "")
	own := len(f.recorder.cfg.Store.(*runList).runs)
	if err != nil || !errors.Is(missing, db.err) || len(page.Runs) != own || page.Next != "" {
		t.Errorf("%d runs of %d, %v, %v", len(page.Runs), own, missing, err)
	}

	answer, err := f.call(t.Context(), "fleet.runs", functions["fleet.runs"], nil, value.NewMap("limit", 1000))
	check.Must(t, err)
	if text := answer.(*value.Map).Str("older_missing"); text != "it is away" {
		t.Errorf("the runner says %q", text)
	}

	since := f.recorder.cfg.Store.Oldest().Add(f.recorder.cfg.Late)
	if _, missing, err := f.AllRuns(t.Context(), history.Filter{From: since}, 1000, ""); missing != nil || err != nil {
		t.Errorf("the database was asked for a time that the history has: %v, %v", missing, err)
	}
}
