package jobs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// replay writes the files of an earlier run's records and removes the run's segments. It leaves out segments that cannot
// be read, see badSegments. If records
// cannot become files now, in most cases because the disk is full, it passes them to the background
// writer, because a master must start even on a full disk.
func (c *Local) replay() error {
	if c.cfg.Shared {
		c.leftover = c.readUnhanded()
	}

	paths, err := c.journal.leftSegments()
	if err != nil {
		return err
	}

	var segs []*segment
	var waiting int
	for _, path := range paths {
		content, err := readLeft(path)
		if isOutOfMeans(err) {
			return fmt.Errorf("replay job journal %s: %w", path, err)
		}
		if err != nil {
			c.home.bad.add(path, err)
			continue
		}

		seg := &segment{path: path, sealed: true}
		if c.journal.noteJobs {
			seg.jids = map[string]bool{}
		}
		if err := c.replaySegment(seg, content, &waiting); err != nil {
			return fmt.Errorf("replay job journal %s: %w", path, err)
		}
		segs = append(segs, seg)
	}

	if len(segs) == 0 {
		return nil
	}

	stay, done := splitSegments(segs)
	if len(done) > 0 {
		err = c.syncAll()
	}
	if err == nil {
		err = c.syncArchive(segs)
	}
	if err == nil {
		err = c.noteUnhanded(nil)
	}

	if err != nil || waiting > 0 { // the next checkpoint removes finished segments
		c.stalled.Store(true)
		c.log.Error("job cache cannot be written, trying again; the journal is kept", "waiting", waiting, "error", err)
		c.journal.segments = segs
		return nil
	}

	return errors.Join(c.journal.remove(done), c.journal.keep(stay))
}

// replaySegment writes the files of the records of a segment with content b, and adds to *waiting the number of
// records that must wait. After a record that must wait, all later records wait as well, to
// preserve the order.
func (c *Local) replaySegment(seg *segment, b []byte, waiting *int) error {
	c.adoptSegment(seg, b)
	n := 0
	damaged, tail, err := scanSegment(b, func(r *record) error {
		n++
		r.segment = seg
		if checkRecord(r) != nil {
			return nil
		}

		if c.cfg.Shared {
			c.leftover.addRecord(r)
		}

		var err error
		if seg.home != nil {
			c.home.addRecords(seg.home, r)
		} else if *waiting == 0 && (c.cfg.Endtimes || !c.files.holdsReturn(r)) { // each return sets the end time again
			err = c.files.applyRecord(r)
		}
		if *waiting == 0 && err == nil {
			err = c.archiveRecord(r)
		}

		switch {
		case *waiting > 0, err != nil && transient(err):
			if *waiting == 0 {
				c.log.Error("job record cannot be stored yet", "jid", r.jid, "minion", r.id, "error", err)
			}
			*waiting++
			c.adoptRecord(seg, r)
		case err != nil:
			c.log.Error("job record cannot be stored", "jid", r.jid, "minion", r.id, "error", err)
			c.quarantineRecord(r)
		}

		return nil
	})
	if err != nil {
		return err
	}

	if seg.home != nil {
		c.home.seal(seg.home)
		if damaged > 0 {
			c.home.noteDamaged(seg.home)
		}
	}

	c.log.Info("job journal replayed", "path", seg.path, "records", n, "torn_bytes", tail, "damaged", damaged)
	if damaged > 0 {
		c.log.Error("job journal is damaged, segment kept in quarantine", "path", seg.path, "places", damaged)
		c.quarantine(filepath.Base(seg.path), func(to string) error { return os.Link(seg.path, to) })
	}

	return nil
}

// adoptSegment adds a segment with this content to the home, if its records stay in it.
func (c *Local) adoptSegment(seg *segment, content []byte) {
	m, err := readMark(bytes.NewReader(content))
	digits := strings.TrimSuffix(filepath.Base(seg.path), segmentSuffix)
	number, numberErr := strconv.ParseUint(digits, 10, 64)
	if err != nil || numberErr != nil || !c.home.takes() {
		return
	}
	seg.home = c.home.begin(number, seg.path, m)
}

// adoptRecord passes a record of an earlier run to the background writer as if the record had just
// been committed. If the queue has room, adoptRecord reserves room for the record. If not, the
// record goes into the queue without a reservation.
func (c *Local) adoptRecord(seg *segment, r *record) {
	if c.overlay.add(r) != nil {
		return // the overlay has a return of the minion already
	}
	if r.cost = int64(r.size()) + recordCost; !c.queue.room.TryAcquire(r.cost) {
		r.cost = 0
	}
	r.segment = seg
	seg.pending++
	if seg.jids != nil {
		seg.jids[r.jid] = true
	}
	c.overlay.committed([]*record{r})
	c.queue.push([]*record{r})
}
