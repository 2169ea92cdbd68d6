package schedule

import (
	"time"

	"saltern/master/internal/schedule/plan"
)

const (
	// carryFor is how long masters pass on the record of an entry that they do not know. A master that takes
	// the schedule over may not have read yet what was saved at another one. After that time the entry counts
	// as deleted.
	carryFor = 24 * time.Hour
	// maxCarried bounds the number of such records, so that the file stays within maxRecord.
	maxCarried = 10_000
	// carryShift is by how much clocks may differ. The times in such records cannot be shifted without the
	// entry.
	carryShift = time.Minute
)

// carryOthers keeps the records of r whose entries the roster does not have, or has with other settings.
func (s *Schedule) carryOthers(r record) {
	known := map[string]string{} // digests by key
	for _, e := range s.entries {
		known[e.Key] = e.Digest
	}

	s.others = entryRecords{}
	for key, other := range r.Entries {
		if known[key] == other.Digest || len(s.others) == maxCarried {
			continue
		}

		// A time ahead of the record's comes from a clock that was wrong.
		if other.Carried.IsZero() || other.Carried.After(r.Looked) {
			other.Carried = r.Looked
		}
		s.others[key] = other
	}
}

// dropCarried drops the records of unknown entries if the clock has jumped by shift, because their times are of
// the clock before.
func (s *Schedule) dropCarried(shift time.Duration) {
	if shift.Abs() > carryShift {
		s.others = nil
	}
}

// takeCarried returns the state that another master has recorded for an entry that this master has only
// learned now. ok is false if there is none, or only one that is too old. What was due while nobody checked
// the entry is left out.
func (s *Schedule) takeCarried(e *entry) (state plan.State, ok bool) {
	other, known := s.others[e.Key]
	if !known || other.Digest != e.Digest {
		return plan.State{}, false
	}
	delete(s.others, e.Key)

	e.adoptJob(other.Job, s.cfg.Now())
	restart := plan.Civil(s.cfg.Now()).Truncate(plan.Tick)
	if restart.Sub(other.Carried) > carryFor {
		return plan.State{}, false
	}
	if !s.lastCivil.IsZero() {
		restart = s.lastCivil.Add(plan.Tick) // the next check
	}
	return e.Resume(other.State, restart), true
}

// entryRecords returns the records of the entries, and of those that this master does not know. looked is
// the civil time of the record.
func (s *Schedule) entryRecords(states []plan.State, looked time.Time) entryRecords {
	records := entryRecords{}
	for key, other := range s.others {
		if looked.Sub(other.Carried) <= carryFor {
			records[key] = other
		}
	}
	for i, e := range s.entries {
		records[e.Key] = entryRecord{Digest: e.Digest, State: states[i], Job: e.knownJob()}
	}
	return records
}
