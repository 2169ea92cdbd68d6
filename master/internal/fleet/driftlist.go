package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"saltern/master/history"
	"saltern/master/history/summary"
)

// Drifted is a state by which a minion had drifted.
type Drifted struct {
	Minion, JID, User string
	Time              time.Time
	State             summary.State
	Corrected         bool // false: the run only said what it would change
	Revision          string
}

// foundDrift names a state of a minion that has drifted.
type foundDrift struct {
	minion string
	state  uint32
}

// laterRun is a run that has found a drift as well.
type laterRun struct {
	jid  string
	time time.Time
}

// Drift returns the states by which minions had drifted, the latest first, at most limit of them.
// more means that there are others, or that not all runs were read. A run that corrects nothing and a later
// one find the same drift, which is in the list once, unless a run between them has found the state in order.
func (f *Fleet) Drift(ctx context.Context, filter history.Filter, limit int) (list []Drifted, more bool, err error) {
	filter.Results = []summary.Result{summary.Changed, summary.WouldChange, summary.Failed}
	later := map[foundDrift]laterRun{} // the earliest of the later runs that have found it
	asked := 0
	var failed error
	err = f.each(ctx, filter, func(run *history.Run) bool {
		for _, state := range run.Summary.Drifted() {
			if filter.State != "" && state.ID != filter.State {
				continue
			}
			found := foundDrift{run.Minion, hashState(&state)}
			next, foundLater := later[found]
			later[found] = laterRun{run.JID, run.Time}
			if run.Summary.Test && foundLater {
				asked++
				inOrder := false
				if asked <= maxAskedBetween {
					inOrder, failed = f.wasInOrder(ctx, run, next, found.state)
				}
				if failed != nil {
					return false
				}
				if !inOrder {
					continue
				}
			}

			if len(list) == limit {
				more = true
				return false
			}
			list = append(list, Drifted{
				Minion:    run.Minion,
				JID:       run.JID,
				User:      run.User,
				Time:      run.Time,
				State:     state,
				Corrected: !run.Summary.Test,
				Revision:  run.Summary.Revision,
			})
		}
		return true
	})
	switch {
	case failed != nil:
		return nil, false, failed
	case errors.Is(err, errTooMany):
		return list, true, nil
	}
	return list, more, err
}

// maxAskedBetween bounds how many runs without corrections of an answer are looked at with [Fleet.wasInOrder]. Further ones
// are taken to find the same drift as the next run.
const maxAskedBetween = 200

// wasInOrder reports whether a run of the same states, between two that found a state of a minion changed, has found it in
// order. The history does not know which states a run had: those of the same function, and as many, count as the same.
func (f *Fleet) wasInOrder(ctx context.Context, first *history.Run, second laterRun, state uint32) (bool, error) {
	between := history.Filter{Minion: first.Minion, From: first.Time, To: second.time}
	page, err := f.recorder.cfg.Store.Query(ctx, between, 100, "")
	if err != nil {
		return false, fmt.Errorf("look for runs between two that found drift: %w", err)
	}

	return slices.ContainsFunc(page.Runs, func(run history.Run) bool {
		s := &run.Summary
		isOther := run.JID != first.JID && run.JID != second.jid
		isAlike := run.Function == first.Function && s.States() == first.Summary.States()
		isWhole := len(s.ChangedStates) == s.Changed+s.WouldChange && len(s.FailedStates) == s.Failed
		is := func(one summary.State) bool { return hashState(&one) == state }
		isTouched := slices.ContainsFunc(s.ChangedStates, is) || slices.ContainsFunc(s.FailedStates, is)
		return isOther && isAlike && isWhole && !isTouched
	}), nil
}
