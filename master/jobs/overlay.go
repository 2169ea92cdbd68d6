package jobs

import (
	"maps"
	"sync"
)

// overlay holds the records that are not yet files. They are in the journal, or are about to be
// written to it. Readers look at the overlay before the files. A record leaves the overlay only
// after its files exist.
type overlay struct {
	mu   sync.RWMutex
	jobs map[string]*openJob
}

// openJob holds the records of a job that are not yet files.
type openJob struct {
	records int // number of open records; at zero the job leaves the overlay
	prep    *record
	load    *record
	endtime *record
	minions []*record
	returns map[string]*record
}

func newOverlay() *overlay { return &overlay{jobs: map[string]*openJob{}} }

func (o *overlay) ensureJob(jid string) *openJob {
	j := o.jobs[jid]
	if j == nil {
		j = &openJob{returns: map[string]*record{}}
		o.jobs[jid] = j
	}
	return j
}

// add makes a record visible to readers. A return is the exception: it becomes visible when it is
// committed; until then add only reserves its minion's slot. If the overlay has a return of this
// minion for the job already, add returns that record and adds nothing.
func (o *overlay) add(r *record) (other *record) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.addLocked(r)
}

func (o *overlay) addLocked(r *record) *record {
	j := o.ensureJob(r.jid)
	switch r.kind {
	case kindPrep:
		j.prep = r
	case kindLoad:
		j.load = r
	case kindEndtime:
		j.endtime = r
	case kindMinions:
		j.minions = append(j.minions, r)
	case kindReturn:
		if other := j.returns[r.id]; other != nil {
			return other
		}
		j.returns[r.id] = r
	}

	j.records++
	return nil
}

// addFirstLoad adds a load. If the overlay has a load of its job already, addFirstLoad returns that one and adds nothing.
func (o *overlay) addFirstLoad(r *record) (other *record) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if j := o.jobs[r.jid]; j != nil && j.load != nil {
		return j.load
	}
	return o.addLocked(r)
}

// remove removes a record from the overlay once its files exist, or after the record has failed.
func (o *overlay) remove(r *record) {
	o.mu.Lock()
	defer o.mu.Unlock()
	j := o.jobs[r.jid]
	if j == nil {
		return
	}

	switch r.kind {
	case kindPrep:
		if j.prep == r {
			j.prep = nil
		}
	case kindLoad:
		if j.load == r {
			j.load = nil
		}
	case kindEndtime:
		if j.endtime == r {
			j.endtime = nil
		}
	case kindMinions:
		for i, m := range j.minions {
			if m == r {
				j.minions = append(j.minions[:i:i], j.minions[i+1:]...)
				break
			}
		}
	case kindReturn:
		if j.returns[r.id] == r {
			delete(j.returns, r.id)
		}
	}

	j.records--
	if j.records <= 0 {
		delete(o.jobs, r.jid)
	}
}

func (o *overlay) committed(recs []*record) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range recs {
		r.committed = true
	}
}

// snapshot returns a copy of the open records of a job, except returns that are not committed. If
// the job has no open records, it returns the zero openJob.
func (o *overlay) snapshot(jid string) openJob {
	o.mu.RLock()
	defer o.mu.RUnlock()
	j := o.jobs[jid]
	if j == nil {
		return openJob{}
	}
	c := *j
	c.minions = append([]*record(nil), j.minions...)
	c.returns = maps.Clone(j.returns)
	maps.DeleteFunc(c.returns, func(_ string, r *record) bool { return !r.committed })
	return c
}

// pending returns those records of the load of a job that are not durable yet: the load and lists of minions.
func (o *overlay) pending(jid string) (recs []*record) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	j := o.jobs[jid]
	if j == nil {
		return nil
	}
	for _, r := range append([]*record{j.load}, j.minions...) {
		if r != nil && !r.committed {
			recs = append(recs, r)
		}
	}
	return recs
}

// hasJob reports whether a job has open records.
func (o *overlay) hasJob(jid string) bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.jobs[jid] != nil
}

// holdsReturn reports whether the overlay has a return of a minion for a job.
func (o *overlay) holdsReturn(jid, minion string) bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	j := o.jobs[jid]
	return j != nil && j.returns[minion] != nil
}

// openLoads returns the packed open loads by job id.
func (o *overlay) openLoads() map[string][]byte {
	o.mu.RLock()
	defer o.mu.RUnlock()
	out := map[string][]byte{}
	for jid, j := range o.jobs {
		if j.load != nil {
			out[jid] = j.load.a
		}
	}
	return out
}
