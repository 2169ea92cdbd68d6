package jobs

import (
	"maps"
	"sync"
)

// overlay holds what is in the journal, or on its way there, and not yet a
// file. Readers look at it before they look at the files: a record leaves it
// only after its files are there.
type overlay struct {
	mu   sync.RWMutex
	jobs map[string]*openJob
}

// openJob is the part of a job that is not yet files.
type openJob struct {
	records int // all records of this job, for removal of the entry
	prep    *record
	load    *record
	endtime *record
	minions []*record
	returns map[string]*record
}

func newOverlay() *overlay { return &overlay{jobs: map[string]*openJob{}} }

func (o *overlay) open(jid string) *openJob {
	j := o.jobs[jid]
	if j == nil {
		j = &openJob{returns: map[string]*record{}}
		o.jobs[jid] = j
	}
	return j
}

// add makes a record visible. Returns are only reserved: they show when they
// are committed. For a return of a minion that has one here already the other
// record is given back and nothing is added.
func (o *overlay) add(r *record) (other *record) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.addLocked(r)
}

func (o *overlay) addLocked(r *record) *record {
	j := o.open(r.jid)
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

// addFirstLoad adds a load if none is here and reports whether it did.
func (o *overlay) addFirstLoad(r *record) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if j := o.jobs[r.jid]; j != nil && j.load != nil {
		return false
	}
	o.addLocked(r)
	return true
}

// remove takes a record away, after it became files or failed.
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

// snapshot copies what is open of one job; the zero value if nothing is.
// Returns that are not committed are left out.
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

// has reports whether anything of a job is open.
func (o *overlay) has(jid string) bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.jobs[jid] != nil
}

// loads lists all open loads by job id.
func (o *overlay) loads() map[string][]byte {
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
