package launch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"saltern/master/jobs"
	"saltern/master/value"
)

// Bounds of expected: the number of jobs, and the number of minion ids.
const (
	maxExpectedJobs = 16384
	maxExpectedIDs  = 1 << 20 // minion ids of all jobs together
)

// expected records which minions may return for each job. The job of a caller with all rights has
// no list of minions, because each minion decides for itself whether it is targeted. Overflow
// policy: the oldest jobs are dropped. The Launcher looks up dropped jobs, and jobs from before the
// master's start, in the job cache.
type expected struct {
	mu      sync.RWMutex
	jobs    map[string]map[string]bool // set of minions by job id; nil: any minion
	order   []string                   // job ids in order of arrival
	ids     int
	evicted string // the newest job id that was dropped; "": none
}

func newExpected() *expected { return &expected{jobs: map[string]map[string]bool{}} }

// addJob records the minions of a job. exclusive means that no other minions get the job. If a job
// is published in several parts (a batch), addJob joins their minions.
func (e *expected) addJob(jid string, exclusive bool, minions []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	ids, there := e.jobs[jid]
	switch {
	case !there:
		e.order = append(e.order, jid)
		if exclusive {
			ids = make(map[string]bool, len(minions))
		}
	case ids == nil:
		return
	case !exclusive:
		e.ids -= len(ids)
		ids = nil
	}

	if ids != nil {
		e.ids -= len(ids)
		for _, id := range minions {
			ids[id] = true
		}
		e.ids += len(ids)
	}

	e.jobs[jid] = ids
	for len(e.order) > 1 && (len(e.order) > maxExpectedJobs || e.ids > maxExpectedIDs) {
		oldest := e.order[0]
		e.order = e.order[1:]
		e.ids -= len(e.jobs[oldest])
		delete(e.jobs, oldest)
		e.evicted = max(e.evicted, oldest)
	}
}

// knows reports whether expected has a record of the job.
func (e *expected) knows(jid string) bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	_, there := e.jobs[jid]
	return there
}

// forgetJob removes a job.
func (e *expected) forgetJob(jid string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ids -= len(e.jobs[jid])
	delete(e.jobs, jid)
	e.order = slices.DeleteFunc(e.order, func(known string) bool { return known == jid })
}

// mayReturn reports whether a minion may return for a job. sure is false if expected has no record
// of the job but may have missed or dropped the record; then may is true. startJID is a job id from
// the time of the master's start: expected may have missed jobs with smaller ids.
func (e *expected) mayReturn(jid, id, startJID string) (may, sure bool) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	ids, ok := e.jobs[jid]
	if !ok {
		return true, jid > startJID && jid > e.evicted
	}
	return ids == nil || ids[id], true
}

// MayReturn reports whether a minion may return for a job. If not, it counts and logs the refused
// return.
func (l *Launcher) MayReturn(ctx context.Context, jid, id string) bool {
	if l.mayReturn(ctx, jid, id) {
		return true
	}
	l.unlisted.Add(1)
	l.cfg.Quiet.Warn("return refused: the job was not sent to this minion", "minion", id, "jid", jid)
	return false
}

// mayReturn works like MayReturn, but does not count or log. For a job that it cannot find it
// returns true, because the load of the job may still be on its way from another master, and
// because minions also run jobs that no master started.
func (l *Launcher) mayReturn(ctx context.Context, jid, id string) bool {
	may, known := l.expected.mayReturn(jid, id, l.started)
	if known {
		return may
	}
	load, err := l.cfg.Jobs.Load(ctx, jid)
	if err != nil || load == nil {
		return true
	}
	l.expected.addJob(jid, load.Bool(jobs.OnlyField), load.Texts("Minions"))
	may, _ = l.expected.mayReturn(jid, id, "")
	return may
}

// Expect records which minions may return for a job of a peer. started is the event of the job's
// start.
func (l *Launcher) Expect(jid string, started *value.Map) {
	l.expected.addJob(jid, started.Bool(jobs.OnlyField), started.Texts("minions"))
}

// errNames means that a list target cannot contain the minion. Salt's list matcher splits a name
// that begins and ends with a comma into several names (salt/matchers/list_match.py).
var errNames = errors.New("the name of a minion begins and ends with a comma")

// isSeveral reports whether a list target takes a name for several.
func isSeveral(id string) bool { return strings.HasPrefix(id, ",") && strings.HasSuffix(id, ",") }

// Restrict limits a job to the minions in j.Minions. Afterwards nobody resolves the job's target
// again, with perhaps another result.
func (j *Job) Restrict() error {
	for _, id := range j.Minions {
		if isSeveral(id) {
			return fmt.Errorf("list the minions of a job: %w: %.40q", errNames, id)
		}
	}
	j.only = true
	return nil
}

// setTarget writes the target into pub, the load for minions: for a restricted job the list of its
// minions, otherwise the target that the caller sent, with the words of saved targets.
func (j *Job) setTarget(pub *value.Map) {
	if !j.only && j.spelled != nil {
		pub.Set("tgt", j.spelled)
		pub.Set("tgt_type", "compound")
		pub.Delete("delimiter")
	}
	if !j.only {
		return
	}
	pub.Set("tgt", value.List(j.Minions))
	pub.Set("tgt_type", "list")
	pub.Delete("delimiter")
}
