package schedule

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"saltern/internal/control"
	"saltern/internal/versioned"
	"saltern/master/internal/schedule/plan"
)

// haveNews reports whether states contain data that the other masters need even if no run is due.
func (s *Schedule) haveNews(states []plan.State) bool {
	for i, e := range s.entries {
		if e.Tells(s.states[i], states[i]) || e.knownJob() != e.recordedJob {
			return true
		}
	}
	return false
}

// noteRecorded notes which jobs the other masters can read in the record.
func (s *Schedule) noteRecorded(r record) {
	for _, e := range s.entries {
		e.recordedJob = r.Entries[e.Key].Job
	}
}

// recordRuns writes a record with the runs that are about to start, and returns the current record
// after the write. An earlier write may have succeeded although it returned an error. In that case
// a record of this version and term already exists.
func (s *Schedule) recordRuns(next record) (record, error) {
	err := s.cfg.Records.replaceNext(next)
	if err == nil {
		return next, nil
	}
	if taken, readErr := s.cfg.Records.loadNewest(); readErr == nil && taken.Version == next.Version &&
		taken.Term == next.Term {
		return taken, nil
	}
	if errors.Is(err, versioned.ErrConflict) {
		s.term = 0 // another master owns or owned the schedule: the record of that master is the current record
	}
	return record{}, err
}

// begunIn returns the runs that are recorded in states, but not in the states of the last check.
func (s *Schedule) begunIn(states []plan.State) (dues []dueRun) {
	for i, e := range s.entries {
		if states[i].LastRun.After(s.states[i].LastRun) {
			dues = append(dues, dueRun{e, e.RunOf(states[i])})
		}
	}
	return dues
}

// reportFault reports why runs cannot be recorded, or, if err is nil, that they can be recorded
// again. It logs each cause once. To compare causes it removes file names, because temporary names
// differ each time. If err means that a record cannot be read, reportFault sets that record aside.
func (s *Schedule) reportFault(err error) {
	if errors.Is(err, versioned.ErrContent) {
		err = s.setAside(err)
	}

	s.report(control.ScheduleFault, err)

	text := ""
	if err != nil {
		text = err.Error()
	}

	if e, ok := errors.AsType[*fs.PathError](err); ok {
		text = e.Err.Error()
	}

	if text != "" && text != s.loggedFault {
		s.cfg.Log.Error("scheduled runners wait, since other masters cannot be told of them", "error", err)
	}

	s.loggedFault = text
}

// setAside renames a record that cannot be read. cause is the error of reading it. The next check
// continues with the newest readable record.
func (s *Schedule) setAside(cause error) error {
	aside, err := s.cfg.Records.setAside()
	if err != nil {
		return errors.Join(cause, err)
	}
	s.term = 0
	text := strings.Join(aside, ", ")
	s.cfg.Log.Error("record of the schedule is broken and set aside", "aside", text, "error", cause)
	s.report(control.ScheduleRecordFault,
		fmt.Errorf("%w; it is kept as %s, and the newest whole record counts: entries that are not in it begin anew",
			cause, text))
	return nil
}

func (s *Schedule) report(fault control.Fault, err error) {
	if s.cfg.Problem != nil {
		s.cfg.Problem(fault, err)
	}
}

// takeOver reads the states of the entries from the record.
func (s *Schedule) takeOver(now time.Time) error {
	r, err := s.cfg.Records.loadNewest()
	if err != nil {
		return err
	}
	// The newest records are lost, but this master still has the states that were in them.
	if r.Version < s.version && r.Term <= s.wrote {
		s.version = r.Version
		return nil
	}

	states := s.statesOf(r)
	s.version = r.Version
	s.wrote = r.Term
	s.lastTime = time.Time{}
	s.lastCivil = r.Looked
	s.carryOthers(r)
	for _, e := range s.entries {
		if known := r.Entries[e.Key]; known.Digest == e.Digest {
			e.adoptJob(known.Job, now)
		}
	}
	s.noteRecorded(r)
	if ahead := r.Looked.Sub(plan.Civil(now)); r.Version > 0 && ahead > 0 {
		s.lastCivil = time.Time{} // the clock of the record's writer is ahead of this master's clock
		for i, e := range s.entries {
			states[i] = e.CameBack(e.Shift(states[i], -ahead.Truncate(plan.Tick)), plan.Civil(now))
		}
		s.dropCarried(ahead)
	}

	s.setStates(states)
	return nil
}

func (s roster) statesOf(r record) []plan.State {
	states := make([]plan.State, len(s.entries))
	for i, e := range s.entries {
		if known := r.Entries[e.Key]; known.Digest == e.Digest {
			states[i] = known.State
			if !known.Carried.IsZero() { // the owner did not know the entry: nobody checked it until Looked
				states[i] = e.Resume(known.State, r.Looked.Add(plan.Tick))
			}
		}
	}
	return states
}
