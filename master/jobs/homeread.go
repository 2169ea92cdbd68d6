package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"saltern/master/msgpack"
	"saltern/master/value"
)

// keptLoad holds what segments have of the load of a job.
type keptLoad struct {
	load    *record   // the latest; nil: there is none
	minions []*record // lists of expected minions
	err     error     // a part cannot be read
}

func (c *Local) keptLoad(jid string) (k keptLoad) {
	k.err = c.home.each(jid, loadRecords, func(r *record) {
		if r.kind == kindLoad {
			k.load = r
		} else {
			k.minions = append(k.minions, r)
		}
	})
	return k
}

// isFirst reports whether what segments say of a job comes before a file. When segments no longer get records,
// the file is newer.
func (c *Local) isFirst(path string) bool { return c.home.takes() || !exists(path) }

// facts returns what segments say about a job. A load that cannot be read counts. It returns an error if it does
// not know whether the job stores returns, unless the record of that is damaged, which no later call would mend.
func (h *home) facts(jid string) (f jobFacts, err error) {
	err = h.each(jid, prepHeads, func(*record) { f.nocache = true }) // only Prep with nocache makes such a record
	if err != nil && !errors.Is(err, errDamagedRecord) {
		return jobFacts{}, fmt.Errorf("look whether job %s stores returns: %w", jid, err)
	}

	if err := h.each(jid, loadHeads, func(*record) { f.load = true }); err != nil {
		f.load = f.load || h.holdsLoad(jid)
	}
	return f, nil
}

// keptEnd returns the end time of a job that segments have, or "".
func (c *Local) keptEnd(jid string) (end string) {
	var last int64
	_ = c.home.each(jid, endRecords, func(r *record) { // it has logged the error
		end = string(r.a)
		last = r.time
	})
	if !c.cfg.Endtimes {
		return end
	}
	_ = c.home.each(jid, returnHeads, func(r *record) {
		if r.time >= last {
			end = endtimeOf(r)
			last = r.time
		}
	})
	return end
}

// eachKept calls visit for the jobs of segments that are not open.
func (c *Local) eachKept(ctx context.Context, open map[string][]byte, visit func(Job) error) (err error) {
	before := ""
	c.home.eachLoad(func(jid string) bool {
		_, isOpen := open[jid]
		if isOpen || jid == before {
			return true
		}
		before = jid
		if job, ok := c.readKept(jid, &Query{}); ok {
			err = visit(job)
		}
		err = cmp.Or(err, ctx.Err())
		return err == nil
	})
	return err
}

// readKept returns the job of an id from the segments. It returns false if they have no load, or if it knows that
// q leaves the job out.
func (c *Local) readKept(jid string, q *Query) (Job, bool) {
	if l, ok := c.home.kinds.get(jid); ok && (q.NoFindJob && l.findJob || q.NoRuns && l.isRun) {
		return Job{}, false
	}

	packed := c.keptLoad(jid).load
	if packed == nil {
		return Job{}, false
	}
	v, err := msgpack.Decode(packed.a, msgpack.DefaultLimits)
	load, isMap := v.(*value.Map)
	if err != nil || !isMap {
		c.log.Warn("job cache: job left out", "jid", jid, "error", err)
		return Job{}, false
	}
	job := Job{jid, load}
	c.home.kinds.put(jid, listedOf(job))
	return job, true
}
