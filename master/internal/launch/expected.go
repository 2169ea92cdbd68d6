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

// Bounds of expected, in jobs and in ids of minions.
const (
	maxExpectedJobs = 16384
	maxExpectedIDs  = 1 << 20 // ids of all jobs together
)

// expected knows which minions may return for a job. A job of a caller with all rights has no list:
// each minion decides for itself whether it is targeted. Overflow policy: the oldest jobs are
// forgotten. For those, and for jobs from before the master's start, the job cache is asked.
type expected struct {
	mu      sync.RWMutex
	jobs    map[string]map[string]bool // set of minions by job id; nil: any minion
	order   []string                   // job ids in order of arrival
	ids     int
	evicted string // the newest job id that was forgotten; "": none
}

func newExpected() *expected { return &expected{jobs: map[string]map[string]bool{}} }

// addJob records the minions of a job. only means that no other minions get it. If a job is published
// in several parts (a batch), their minions add up.
func (e *expected) addJob(jid string, only bool, minions []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	ids, there := e.jobs[jid]
	switch {
	case !there:
		e.order = append(e.order, jid)
		if only {
			ids = make(map[string]bool, len(minions))
		}
	case ids == nil:
		return
	case !only:
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

// forgetJob removes a job.
func (e *expected) forgetJob(jid string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ids -= len(e.jobs[jid])
	delete(e.jobs, jid)
	e.order = slices.DeleteFunc(e.order, func(known string) bool { return known == jid })
}

// mayReturn reports whether a minion may return for a job. known is false if expected cannot tell.
// before is a job id from the time of the master's start: older jobs are unknown.
func (e *expected) mayReturn(jid, id, before string) (may, known bool) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	ids, ok := e.jobs[jid]
	if !ok {
		return true, jid > before && jid > e.evicted
	}
	return ids == nil || ids[id], true
}

// MayReturn reports whether a minion may return for a job. It counts and logs returns for which it
// returns false.
func (l *Launcher) MayReturn(ctx context.Context, jid, id string) bool {
	if l.mayReturn(ctx, jid, id) {
		return true
	}
	l.unlisted.Add(1)
	l.cfg.Quiet.Warn("return refused: the job was not sent to this minion", "minion", id, "jid", jid)
	return false
}

// mayReturn works like MayReturn, but counts nothing. For a job that it cannot find it returns
// true: the job's load may be on its way from another master, and minions also run jobs of their
// own.
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

// Expect records which minions may return for a job of a peer, from the event of its start.
func (l *Launcher) Expect(jid string, started *value.Map) {
	l.expected.addJob(jid, started.Bool(jobs.OnlyField), started.Texts("minions"))
}

// errNames means that these minions cannot be put into a list target: Salt's list matcher takes a
// name that begins and ends with a comma for several names (salt/matchers/list_match.py).
var errNames = errors.New("the name of a minion begins and ends with a comma")

// Restrict limits a job to the minions that were found, so that nobody resolves its target again with
// another result.
func (j *Job) Restrict() error {
	for _, id := range j.Minions {
		if strings.HasPrefix(id, ",") && strings.HasSuffix(id, ",") {
			return fmt.Errorf("list the minions of a job: %w: %.40q", errNames, id)
		}
	}
	j.only = true
	return nil
}

// setTarget writes the target into the load for minions: the one that was asked for, or for a
// restricted job the list of minions.
func (j *Job) setTarget(pub *value.Map) {
	if !j.only {
		return
	}
	pub.Set("tgt", value.List(j.Minions))
	pub.Set("tgt_type", "list")
	pub.Delete("delimiter")
}
