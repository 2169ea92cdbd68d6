package schedule

import (
	"sync/atomic"
	"time"

	"saltern/master/jobs"
	"saltern/master/value"
)

// tally counts the runs of an entry. It outlives changes of the entry.
type tally struct {
	running atomic.Int64           // number of runs that are waiting or executing
	waiting atomic.Int64           // number of runs that are recorded and have not begun
	missed  atomic.Uint64          // number of runs skipped because of maxrunning since the last log line
	lastJob atomic.Pointer[string] // id of the latest job on minions that a run has started; nil: none
	// recordedJob is the one in the record. Only takeDue uses it.
	recordedJob string
}

// noteJob notes the job that a run has started, as saved.run names it in its result.
func (t *tally) noteJob(result any) {
	m, _ := result.(*value.Map)
	if jid := m.Str("jid"); jobs.Valid(jid) {
		t.lastJob.Store(&jid)
	}
}

// knownJob returns the id of the latest job that a run has started, or "".
func (t *tally) knownJob() string {
	if jid := t.lastJob.Load(); jid != nil {
		return *jid
	}
	return ""
}

// adoptJob notes the job that the owner before has recorded, unless a later one is known.
func (t *tally) adoptJob(jid string, now time.Time) {
	known := t.knownJob()
	if !isOfNow(jid, now) || isOfNow(known, now) && jid <= known {
		return
	}
	t.lastJob.Store(&jid)
}

// isOfNow reports whether a job was not started by a clock that was ahead.
func isOfNow(jid string, now time.Time) bool {
	const differ = time.Hour // clocks of masters may differ a little
	at, err := jobs.Time(jid)
	return err == nil && !at.After(now.Add(differ))
}

// jobSince returns jid, the latest job that a run has started, if it was started between begin and now, or "". A
// later run has started none that is known.
func jobSince(jid string, begin, now time.Time) string {
	if at, err := jobs.Time(jid); err != nil || at.Before(begin) || !isOfNow(jid, now) {
		return ""
	}
	return jid
}
