package schedule

import (
	"context"
	"errors"
	"slices"
	"time"

	"saltern/internal/pause"
	"saltern/master/internal/schedule/plan"
)

const (
	// endWithin bounds how long the end of the master waits for runs. A runner in Python may take
	// seconds until its function begins.
	endWithin = 5 * time.Second
	endPoll   = 20 * time.Millisecond
	// giveBackWithin bounds how long the end of the master waits for the shared folder.
	giveBackWithin = 3 * time.Second
)

// errNoSuccessor is why runs that have not begun are lost.
var errNoSuccessor = errors.New("this master does not share its schedule, or does not own it")

// errSilent is why runs that have not begun may be lost.
var errSilent = errors.New("the shared folder does not answer")

// finish waits for the runs for a while, and cancels those that are still in progress. Those that have
// not begun are left to the next owner.
func (s *Schedule) finish() {
	ctx, cancel := context.WithTimeout(context.Background(), endWithin)
	defer cancel()
	for busy := true; busy; {
		stats := s.backlog.Stats()
		busy = stats.Waiting+stats.Running > 0 && pause.For(ctx, endPoll) == nil
	}

	s.backlog.Close()
	left := 0
	for _, e := range s.entries {
		left += int(e.waiting.Load())
	}
	if left == 0 {
		return
	}

	if err := s.giveBack(); err != nil {
		s.cfg.Log.Warn("scheduled runners that waited are lost, since the master stops", "runners", left, "error", err)
		return
	}
	s.cfg.Log.Info("scheduled runners that waited begin at the next owner of the cluster", "runners", left)
}

// giveBack records that the entries whose runs have not begun are due again. It returns an error if
// there is no other master, or if another one owns the schedule already.
func (s *Schedule) giveBack() error {
	term, own := s.cfg.Own()
	if s.cfg.Records == nil || !own || term != s.term {
		return errNoSuccessor
	}

	states := slices.Clone(s.states)
	for i, e := range s.entries {
		if e.waiting.Load() > 0 {
			states[i].LeftAt = s.lastCivil.Add(plan.Tick)
		}
	}

	next := record{
		Version: s.version + 1,
		Term:    term,
		Looked:  s.lastCivil,
		Entries: s.entryRecords(states, s.lastCivil),
	}
	written := make(chan error, 1)
	// If the file system hangs, this goroutine lasts until it answers. A record that is written late conflicts
	// with that of the next owner, which then counts.
	go func() { written <- s.cfg.Records.replaceNext(next) }()

	select {
	case err := <-written:
		return err
	case <-time.After(giveBackWithin):
		return errSilent
	}
}

// hasNotBegun reports whether a call ended with an error before its function began (pyhost.Unbegun).
func hasNotBegun(err error) bool {
	var call interface{ NotBegun() bool }
	return errors.As(err, &call) && call.NotBegun()
}
