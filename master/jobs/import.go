package jobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"saltern/internal/durable"
)

// Import reads the new records in the shared folder.
func (c *Cluster) Import(ctx context.Context) error {
	names, err := c.volume.listSegments()
	if err != nil {
		return err
	}

	var errs []error
	c.importLoads(ctx, names)
	changed := false
	whole := true
	for _, name := range names {
		if ctx.Err() != nil {
			whole = false
			break
		}

		s, unread, err := c.unreadOf(name)
		if !unread {
			continue
		}

		n := 0
		waits := false // a record of the segment must be read again
		if err == nil {
			n, err = c.readUnread(s, func(r *record) error {
				if c.lacksLoad(r) {
					waits = true
					return nil
				}
				return c.cacheRecord(ctx, r)
			})
		}

		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err) // the next Import reads the segment again
			}
			continue
		}
		if waits { // the next Import reads the segment again
			whole = false
			continue
		}

		changed = true
		c.mu.Lock()
		c.imported[name], c.records[name] = s.size, n
		delete(c.rereadFrom, name)

		if !s.again {
			c.count += uint64(max(n-s.imported, 0))
		}
		c.mu.Unlock()
	}

	if whole { // a segment that cannot be read is logged, and may never be
		c.caughtUp()
	}
	return errors.Join(append(errs, c.saveImported(names, changed))...)
}

// loadComes is how long after a return the load of its job may come: another master hands it over, which takes
// it ten seconds, or some more when the folder is slow.
const loadComes = 90 * time.Second

// lacksLoad reports whether a record is a return whose load is still to come. The archive takes each return
// only once, and would not know what was run.
func (c *Cluster) lacksLoad(r *record) bool {
	age := c.Local.cfg.Now().Sub(time.Unix(0, r.time))
	if r.kind != kindReturn || checkRecord(r) != nil || age.Abs() > loadComes {
		return false
	}
	facts, err := c.knownFacts(r.jid)
	return err == nil && !facts.load
}

// importLoads imports the loads of jobs in the unread segments. A return may stand in the segment of
// another master than the load of its job, and the archive takes each return only once, with what the
// load says. Import reads segments that importLoads could not read again, and reports the error.
func (c *Cluster) importLoads(ctx context.Context, names []string) {
	var unread []unreadSegment
	for _, name := range names {
		if s, ok, err := c.unreadOf(name); ok && err == nil && !s.again {
			unread = append(unread, s)
		}
	}
	if len(unread) < 2 { // within one segment loads stand before returns
		return
	}

	for _, s := range unread {
		if ctx.Err() != nil {
			return
		}
		_, _ = c.readUnread(s, func(r *record) error {
			if r.kind != kindLoad && r.kind != kindMinions {
				return nil
			}
			return c.cacheRecord(ctx, r)
		})
	}
}

// unreadSegment is a segment of another master that has grown since it was read.
type unreadSegment struct {
	name     string
	size     int64 // bytes
	imported int   // records that were read
	again    bool  // an earlier run has imported the records of this segment
}

// unreadOf returns what is to be read of a segment, and false if there is nothing. If the size of the
// segment cannot be read, it returns true and the error.
func (c *Cluster) unreadOf(name string) (s unreadSegment, unread bool, err error) {
	c.mu.Lock()
	read, imported := c.imported[name], c.records[name]
	before, again := c.rereadFrom[name]
	c.mu.Unlock()

	if read == ownSegment {
		return unreadSegment{}, false, nil
	}

	size, err := c.volume.segmentSize(name)
	if err != nil || size == read {
		return unreadSegment{}, err != nil, err
	}
	return unreadSegment{
		name:     name,
		size:     size,
		imported: imported,
		again:    again && (size == before || before == ownSegment),
	}, true, nil
}

// readUnread calls take for each record of a segment that was not read before, and returns the number
// of all its records.
func (c *Cluster) readUnread(s unreadSegment, take func(*record) error) (n int, err error) {
	err = c.volume.readSegment(s.name, func(r *record) error {
		n++
		if n <= s.imported {
			return nil // already read completely, because a segment only grows
		}
		if s.again {
			c.held.dropSeen(r)
			return nil
		}
		return take(r)
	})
	return n, err
}

// saveImported writes to disk, for each existing segment, how many bytes were read.
func (c *Cluster) saveImported(names []string, changed bool) error {
	there := map[string]bool{}
	for _, n := range names {
		there[n] = true
	}

	c.mu.Lock()
	before := len(c.imported)

	// names may lack a segment that this master has just begun.
	hourAgo := fmt.Sprintf("%019d", c.Local.cfg.Now().Add(-time.Hour).UnixNano())
	maps.DeleteFunc(c.imported,
		func(n string, size int64) bool { return !there[n] && (size != ownSegment || madeAt(n) < hourAgo) })
	maps.DeleteFunc(c.records, func(n string, _ int) bool { return !there[n] })
	maps.DeleteFunc(c.rereadFrom, func(n string, _ int64) bool { return !there[n] })
	var b bytes.Buffer
	for _, n := range slices.Sorted(maps.Keys(c.imported)) {
		fmt.Fprintf(&b, "%d %s\n", c.imported[n], n)
	}

	changed = changed || before != len(c.imported)
	c.mu.Unlock()
	if !changed {
		return nil
	}

	if err := durable.Replace(c.importedFile(), b.Bytes(), 0o600); err != nil {
		return fmt.Errorf("note which segments were imported: %w", err)
	}

	return nil
}
