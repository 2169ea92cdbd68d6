package jobs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"saltern/internal/durable"
	"saltern/master/msgpack"
)

// A running master keeps the list of records that are in the shared folder only in memory. For use
// after a restart, a file beside the journal lists the jobs whose records may be missing in the
// folder. The master writes this file durably before it removes a segment of the journal:
//
//	Open         the file and the records of the journal → leftover
//	OpenCluster  leftover → held, until seen in the folder or due
//	checkpoint   held, waiting, and the segments to remove → the file
const (
	unhandedFile = "unhanded"
	// maxUnhanded bounds the jobs in the file. Overflow policy: the oldest are dropped; the records
	// of the dropped jobs remain on the disks of the masters that have them.
	maxUnhanded = 1 << 16
)

// leftover describes the records that an earlier run may not have handed over to the shared folder.
type leftover struct {
	jids  map[string]bool
	since time.Time // no record of these jobs that may be missing was made before since
}

func (c *Local) unhandedPath() string { return filepath.Join(c.journal.dir, unhandedFile) }

// readUnhanded reads the job ids that an earlier run wrote to the file. It skips invalid ids.
func (c *Local) readUnhanded() leftover {
	l := leftover{jids: map[string]bool{}, since: c.cfg.Now()}
	b, err := durable.Read(c.unhandedPath(), maxFile)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			c.log.Warn("it is not known which jobs were not handed over", "error", err)
		}
		return l
	}

	if st, err := os.Lstat(c.unhandedPath()); err == nil {
		l.since = st.ModTime()
	}

	for line := range strings.Lines(string(b)) {
		if jid := strings.TrimSpace(line); checkJID(jid) == nil && len(l.jids) < maxUnhanded {
			l.jids[jid] = true
		}
	}

	return l
}

// addRecord adds the job of a journal's record to l.
func (l *leftover) addRecord(r *record) {
	l.jids[r.jid] = true
	if at := time.Unix(0, r.time); at.Before(l.since) {
		l.since = at
	}
}

// noteUnhanded writes the list of jobs to the file. The list includes the jobs of segs, the
// segments that are about to be removed.
func (c *Local) noteUnhanded(segs []*segment) error {
	if !c.cfg.Shared {
		return nil
	}
	var jids map[string]bool
	if f := c.unhanded.Load(); f != nil {
		jids = (*f)()
	} else {
		jids = maps.Clone(c.leftover.jids)
	}
	for _, s := range segs {
		maps.Copy(jids, s.jids)
	}
	return c.writeUnhanded(jids)
}

func (c *Local) writeUnhanded(jids map[string]bool) error {
	list := slices.Sorted(maps.Keys(jids))
	if over := len(list) - maxUnhanded; over > 0 {
		c.log.Warn("too many jobs wait for the shared folder; after a restart the oldest stay with the masters that have them",
			"jobs", over)
		list = list[over:]
	}

	var b bytes.Buffer
	for _, jid := range list {
		b.WriteString(jid + "\n")
	}

	if err := durable.Replace(c.unhandedPath(), b.Bytes(), 0o600); err != nil {
		return fmt.Errorf("note which jobs are not handed over: %w", err)
	}

	return nil
}

// recordsOf returns the records of a job: those in segments, and those that its files make up otherwise.
func (c *Local) recordsOf(jid string) []*record {
	dir := c.files.jobDir(jid)
	var out []*record
	kept := map[heldKey]*record{}
	if load := c.keptLoad(jid).load; load != nil {
		out = append(out, load)
		kept[keyOf(load)] = load
	}
	_ = c.home.each(jid, allRecords, func(r *record) { // it has logged the error
		before := kept[keyOf(r)]
		switch {
		case r.kind == kindPrep || r.kind == kindEndtime || r.kind == kindLoad: // other masters do not need the first two
		case r.kind == kindMinions && before != nil:
			c.addList(before, r.a)
		default:
			out = append(out, r)
			kept[keyOf(r)] = r
		}
	})
	add := func(k kind, id, path string) *record {
		before := kept[heldKey{k, jid, id}]
		if before != nil && k != kindMinions {
			return nil
		}
		b, st, err := durable.ReadFile(path, maxFile, durable.Refuse)
		if err != nil || len(b) == 0 {
			if err != nil && !missing(err) {
				c.log.Warn("a part of a job cannot be handed over", "jid", jid, "path", path, "error", err)
			}
			return nil
		}

		if before != nil {
			c.addList(before, b)
			return nil
		}
		out = append(out, &record{
			kind: k,
			time: st.ModTime().UnixNano(),
			jid:  jid,
			id:   id,
			a:    b,
		})

		return out[len(out)-1]
	}

	names, err := readNames(dir)
	if err != nil {
		c.log.Warn("a job cannot be handed over", "jid", jid, "error", err)
		return nil
	}

	for _, e := range names {
		name := e.Name()
		syndic, isList := strings.CutPrefix(name, ".minions.")
		switch {
		case name == minionsFile:
			add(kindMinions, "", dir+"/"+name)
		case isList && strings.HasSuffix(syndic, ".p"):
			add(kindMinions, strings.TrimSuffix(syndic, ".p"), dir+"/"+name)
		case name == loadFile:
			add(kindLoad, "", dir+"/"+name)
		case e.IsDir() && !strings.HasPrefix(name, ".") && checkID(name) == nil:
			if r := add(kindReturn, name, dir+"/"+name+"/"+returnFile); r != nil {
				r.b, _ = durable.Read(dir+"/"+name+"/"+outFile, maxFile)
			}
		}
	}

	return out
}

// addList adds the minions of a packed list to the list of r: a peer holds one list of each sender.
func (c *Local) addList(r *record, packed []byte) {
	var lists []any
	for _, b := range [][]byte{r.a, packed} {
		if list, err := msgpack.Decode(b, msgpack.DefaultLimits); err == nil {
			lists = append(lists, list)
		}
	}
	all, err := c.packBounded("minion list", unionTexts(lists...))
	if err != nil {
		c.log.Warn("minions of a job are not handed over", "jid", r.jid, "error", err)
		return
	}
	r.a = all
}

// unhandedNow returns the jobs for the list: jobs with held copies, jobs with records that wait for
// the folder, and jobs of an earlier run.
func (c *Cluster) unhandedNow() map[string]bool {
	jids := map[string]bool{}
	c.held.addJobsTo(jids)
	c.volume.addJobsTo(jids)
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.Copy(jids, c.filling)
	return jids
}

// forgetImported selects segments that Import must read again: those in which another master may
// have handed over records of an earlier run.
func (c *Cluster) forgetImported() {
	c.filling = maps.Clone(c.leftover.jids)
	if len(c.filling) == 0 {
		return
	}
	since := fmt.Sprintf("%019d", c.leftover.since.Add(-heldFor-handSegmentT).UnixNano())
	for name, size := range c.imported {
		if madeAt(name) >= since {
			c.rereadFrom[name] = size
			delete(c.imported, name)
		}
	}
}

// holdLeftover puts the records of leftover into held.
func (c *Cluster) holdLeftover() {
	n := 0
	for _, jid := range slices.Sorted(maps.Keys(c.leftover.jids)) {
		recs := c.recordsOf(jid)
		for _, r := range recs {
			c.holdRecord("", r)
		}

		n += len(recs)
		c.mu.Lock()
		delete(c.filling, jid)
		c.mu.Unlock()
	}

	if n > 0 {
		c.cfg.Log.Info("looking whether the shared folder has what was taken before the restart", "jobs",
			len(c.leftover.jids), "records", n)
	}
}
