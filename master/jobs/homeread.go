package jobs

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"os"

	"saltern/internal/durable"
	"saltern/master/msgpack"
	"saltern/master/value"
)

// keptLoad holds what segments have of the load of a job.
type keptLoad struct {
	load    *record   // the latest, even if it is a file; nil: segments have none
	minions []*record // lists of expected minions
	err     error     // a part cannot be read
}

// loadCopies knows the loads that segments have of a job. Each slice of a batch has one, so it keeps the latest only, and
// hashes of all.
type loadCopies struct {
	seed   maphash.Seed
	latest *record
	sums   map[uint64]struct{}
}

func (l *loadCopies) add(r *record) {
	if l.sums == nil {
		l.sums = map[uint64]struct{}{}
	}
	l.sums[maphash.Bytes(l.seed, r.a)] = struct{}{}
	l.latest = r
}

// has reports whether one of the loads has this content.
func (l *loadCopies) has(content []byte) bool {
	_, found := l.sums[maphash.Bytes(l.seed, content)]
	return found
}

func (c *Local) keptLoad(jid string) (k keptLoad) {
	loads := loadCopies{seed: c.home.seed}
	k.err = c.home.each(jid, loadRecords, func(r *record) {
		if r.kind == kindLoad {
			loads.add(r)
		} else {
			k.minions = append(k.minions, r)
		}
	})
	k.load = loads.latest
	if k.load == nil {
		return k
	}

	if later := c.laterFile(jid, loadFile, k.load.time); later != nil && !loads.has(later.a) && isLoad(later.a) {
		later.kind = kindLoad
		k.load = later
	}
	return k
}

// laterFile returns the content of a file of a job, if it was written later than at in Unix nanoseconds, otherwise
// nil. While segments take no records, what is new becomes files; it stays the latest when segments take records again.
func (c *Local) laterFile(jid, name string, at int64) *record {
	path := c.files.jobDir(jid) + "/" + name
	st, err := os.Stat(path)
	if err != nil || st.ModTime().UnixNano() <= at {
		return nil
	}
	content, err := durable.Read(path, maxFile)
	if err != nil {
		return nil
	}
	return &record{time: st.ModTime().UnixNano(), jid: jid, a: content}
}

// isLoad reports whether a file has a load: a crash may leave it empty.
func isLoad(packed []byte) bool {
	v, err := msgpack.Decode(packed, msgpack.DefaultLimits)
	_, isMap := v.(*value.Map)
	return err == nil && isMap
}

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

// keptEnd returns the end time of a job of which segments have one, even if the latest is a file. It returns nil if
// they have none.
func (c *Local) keptEnd(jid string) *record {
	end := c.endInSegments(jid)
	if end == nil {
		return nil
	}
	if later := c.laterFile(jid, endtimeFile, end.time); later != nil && len(bytes.Trim(later.a, "\x00\n")) > 0 {
		later.kind = kindEndtime
		return later
	}
	return end
}

// endInSegments returns the latest end time of a job in segments, or nil.
func (c *Local) endInSegments(jid string) (end *record) {
	_ = c.home.each(jid, endRecords, func(r *record) { end = r }) // it has logged the error
	if c.cfg.Endtimes {
		_ = c.home.each(jid, returnHeads, func(r *record) {
			if end == nil || r.time >= end.time {
				end = &record{kind: kindEndtime, time: r.time, jid: jid, a: []byte(endtimeOf(r))}
			}
		})
	}
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

// eachWithoutLoad calls visit for the jobs that have records here, but no load, until visit returns false. A job may come
// once for each segment. It reads the heads of all records, and holds no lock meanwhile. It goes on after a record that
// cannot be read, and returns the error of the first one.
func (h *home) eachWithoutLoad(ctx context.Context, visit func(jid string) bool) (unread error) {
	r := homeReader{home: h}
	defer r.close()
	h.mu.RLock()
	segments := h.segments
	h.mu.RUnlock()
	for _, g := range segments {
		seen := map[string]bool{}
		for _, at := range h.refsOf(g) {
			rec, err := r.read(place{g, at}, true)
			if errors.Is(err, fs.ErrNotExist) && h.isRemoved(g) || ctx.Err() != nil {
				break
			}
			if err != nil {
				err = fmt.Errorf("read %s: %w", h.pathOf(g), err)
				h.noteUnreadable(g, err)
				unread = cmp.Or(unread, err)
				continue
			}

			jid := rec.jid
			if seen[jid] || h.jobHash(jid) != at.job || checkJID(jid) != nil {
				continue
			}
			seen[jid] = true
			if !h.holdsLoad(jid) && !visit(jid) {
				return unread
			}
		}
	}
	return unread
}

// isYoung reads the head of a record, and reports whether the record is not too old.
func (h *home) isYoung(p place) bool {
	r := homeReader{home: h}
	defer r.close()
	rec, err := r.read(p, true)
	if errors.Is(err, fs.ErrNotExist) && h.isRemoved(p.segment) {
		return false
	}
	return err != nil || rec.time >= h.oldest()
}
