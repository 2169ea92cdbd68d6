package schedule

import (
	"context"
	"slices"
	"time"
)

// prepareWithin bounds how long the runs of a new owner wait for Python. It is less than the time after
// which runs are skipped, see sinceLastLook.
const prepareWithin = 15 * time.Second

// prepare starts Python for the runs of the schedule if this master has just become the owner. ready is
// closed when Python is there, or after prepareWithin.
func (s *Schedule) prepare(ctx context.Context) {
	term, own := s.cfg.Own()
	if !own || s.preparedTerm == term {
		return
	}

	s.preparedTerm = term
	ready := make(chan struct{})
	s.ready = ready
	needed := slices.IndexFunc(s.entries, func(e *entry) bool { return e.Enabled && s.cfg.Runs.InPython(e.Fun) })
	if needed < 0 {
		close(ready)
		return
	}

	fun := s.entries[needed].Fun
	s.preparing.Go(func() {
		defer close(ready)
		ctx, cancel := context.WithTimeout(ctx, prepareWithin)
		defer cancel()
		s.cfg.Runs.Prepare(ctx, fun)
	})
}

// mustWait reports whether one of the runs needs Python, which is being started. A run that is recorded
// and waits for Python is lost if the owner is killed. The first owner of a cluster has no record from
// which it could make up for runs that it does not look for now.
func (s *Schedule) mustWait(dues []dueRun) bool {
	if s.cfg.Records == nil || s.version == 0 || s.ready == nil {
		return false
	}
	select {
	case <-s.ready:
		return false
	default:
	}
	return slices.ContainsFunc(dues, func(d dueRun) bool { return s.cfg.Runs.InPython(d.fun) })
}
