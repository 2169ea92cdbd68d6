package fleet

import (
	"context"
	"errors"
	"slices"
	"time"

	"saltern/master/history"
)

// Older has the runs of a longer time than the history, such as a database to which all masters write.
type Older interface {
	// Runs is like [history.Store.Query], for a page of at most 1,000 runs. Times of runs may be cut to microseconds.
	// It waits for a bounded time; callers of runners may see the text of its error.
	Runs(ctx context.Context, filter history.Filter, limit int, from history.Cursor) (history.Page, error)
}

// AllRuns returns a page of runs like Runs, and with the history's those that only older has. If older does not
// answer, the page has the history's, and missing says so.
func (f *Fleet) AllRuns(
	ctx context.Context,
	filter history.Filter,
	limit int,
	from history.Cursor,
) (page history.Page, missing, err error) {
	page, err = f.Runs(ctx, filter, limit, from)
	if err != nil || f.older == nil {
		return page, nil, err
	}

	// The oldest run may be a late one: the history may lack others that are a little younger.
	complete := f.recorder.cfg.Store.Oldest()
	if !complete.IsZero() {
		complete = complete.Add(f.recorder.cfg.Late)
		if filter.To.IsZero() || filter.To.After(complete) {
			filter.To = complete
		}
	}
	isEmpty := !filter.From.IsZero() && !filter.To.IsZero() && !filter.From.Before(filter.To)
	if isEmpty || endsAfter(page.Next, complete) {
		return page, nil, nil
	}

	wanted, globs := globsOf(&filter)
	older := limit
	if globs {
		older = maxLimit
	}
	others, err := f.older.Runs(ctx, filter, older, from)
	if ctx.Err() != nil || errors.Is(err, history.ErrCursor) {
		return history.Page{}, nil, err
	}
	if err != nil {
		return page, err, nil
	}
	others.Runs = slices.DeleteFunc(others.Runs, func(run history.Run) bool { return !wanted(&run) })
	return mergePages(page, others, limit), nil, nil
}

// endsAfter reports whether a page that goes on at next ends after a time.
func endsAfter(next history.Cursor, at time.Time) bool {
	if next == "" || at.IsZero() {
		return false
	}
	end, _, _, err := next.Place()
	return err == nil && end.After(at)
}

// mergePages returns the first limit runs of two pages that begin at the same place. Of a run that is in both it takes
// that of own.
func mergePages(own, others history.Page, limit int) history.Page {
	type key struct{ jid, minion string }
	known := map[key]bool{}
	for i := range own.Runs {
		known[key{own.Runs[i].JID, own.Runs[i].Minion}] = true
	}

	out := history.Page{Runs: own.Runs}
	for _, run := range others.Runs {
		if !known[key{run.JID, run.Minion}] {
			out.Runs = append(out.Runs, run)
		}
	}
	slices.SortFunc(out.Runs, func(a, b history.Run) int { return history.Compare(&a, &b) })

	// The page ends where the first of both ends.
	for _, next := range []history.Cursor{own.Next, others.Next} {
		if next == "" {
			continue
		}
		if out.Next == "" || comesBefore(next, out.Next) {
			out.Next = next
		}
	}
	if out.Next != "" {
		out.Runs = slices.DeleteFunc(out.Runs, func(run history.Run) bool { return isBehind(&run, out.Next) })
	}
	if len(out.Runs) > limit {
		out.Runs = out.Runs[:limit]
		out.Next = history.After(&out.Runs[limit-1])
	}
	return out
}

// comesBefore reports whether the page of cursor a begins before that of b.
func comesBefore(a, b history.Cursor) bool {
	run := placeOf(a)
	return !isBehind(&run, b) && a != b
}

// isBehind reports whether a run belongs to the page of a cursor, not to the one before. As for Older, the cursor counts
// in microseconds, so that the page after it has the run.
func isBehind(run *history.Run, next history.Cursor) bool {
	last := placeOf(next)
	last.Time = last.Time.Truncate(time.Microsecond)
	return history.Compare(run, &last) > 0
}

// placeOf returns the place of a cursor as a run.
func placeOf(c history.Cursor) (run history.Run) {
	run.Time, run.JID, run.Minion, _ = c.Place() // a cursor of Query or Runs is never damaged
	return run
}
