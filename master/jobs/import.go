package jobs

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"saltern/internal/durable"
	"saltern/master/msgpack"
	"saltern/master/value"
)

// Import reads the new records in the shared folder.
func (c *Cluster) Import(ctx context.Context) error {
	names, err := c.volume.listSegments()
	if err != nil {
		return err
	}

	var errs []error
	lost := c.importLoads(ctx, names)
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
			flight := inFlight{lost: lost}
			n, err = c.readUnread(s, func(r *record) error {
				written, err := c.cacheRecord(ctx, r, lost)
				if errors.Is(err, errLoadComes) {
					waits = true
					return nil
				}
				if err != nil {
					return err
				}
				return flight.add(ctx, written...)
			})
			stored := flight.land(ctx)
			whole = whole && stored == nil
			err = cmp.Or(err, stored)
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

	if whole { // a segment that cannot be read is logged, and may never be; this node's disk may take it later
		c.caughtUp()
	}
	return errors.Join(append(errs, c.saveImported(names, changed))...)
}

// loadComes is how long after a return the load of its job may come: another master hands it over, which takes
// it ten seconds, heldFor after a crash, or some more when the folder is slow. Until then the return waits: the archive
// takes it only once, and would not know what was run.
const loadComes = heldFor + 30*time.Second

// Bounds of the imported records that are submitted to the journal and not yet durable. Returns of minions share the
// journal, and wait for what is in flight. A single record may be larger.
const (
	mostInFlight  = 1000
	bytesInFlight = 1 << 20
)

// inFlight holds imported records that were submitted to the journal. With a wait for each, a master with a new disk
// would need minutes for the jobs of its peers. The journal keeps their order, and a return fails with the load that it
// needs.
type inFlight struct {
	recs  []*record
	bytes int
	lost  map[string]bool // gets the jobs of the records that fail
	err   error           // of the first of them
}

// add adds records, and waits for all if there are too many. It returns the error of the first record that has failed.
func (f *inFlight) add(ctx context.Context, recs ...*record) error {
	for _, r := range recs {
		f.recs = append(f.recs, r)
		f.bytes += r.size()
	}
	if len(f.recs) < mostInFlight && f.bytes < bytesInFlight {
		return f.err
	}
	return f.land(ctx)
}

// land waits until all records are durable or have failed, and returns the error of the first that has.
func (f *inFlight) land(ctx context.Context) error {
	for _, r := range f.recs {
		if err := r.wait(ctx); err != nil {
			f.err = cmp.Or(f.err, err)
			f.lost[r.jid] = true
		}
	}
	f.recs = nil
	f.bytes = 0
	return f.err
}

// importLoads imports the loads of jobs in the unread segments. A return may stand in the segment of
// another master than the load of its job, and the archive takes each return only once, with what the
// load says. Import reads segments that importLoads could not read again, and reports the error. importLoads returns the
// jobs with loads that could not be stored.
func (c *Cluster) importLoads(ctx context.Context, names []string) (lost map[string]bool) {
	lost = map[string]bool{}
	var unread []unreadSegment
	for _, name := range names {
		if s, ok, err := c.unreadOf(name); ok && err == nil && !s.again {
			unread = append(unread, s)
		}
	}
	if len(unread) < 2 { // within one segment loads stand before returns
		return lost
	}

	flight := inFlight{lost: lost}
	for _, s := range unread {
		if ctx.Err() != nil {
			break
		}
		_, _ = c.readUnread(s, func(r *record) error {
			if r.kind != kindLoad && r.kind != kindMinions {
				return nil
			}
			written, err := c.cacheRecord(ctx, r, lost)
			if err != nil {
				lost[r.jid] = true
			}
			_ = flight.add(ctx, written...) // one that fails keeps no other from being stored
			return ctx.Err()
		})
	}
	_ = flight.land(ctx)
	return lost
}

// errLoadComes says that a return waits for the load of its job, see lacksLoad.
var errLoadComes = errors.New("the load of the job is still to come")

// cacheRecord stores a record that another master has handed over in the local cache, unless the
// cache has the record already. It does not wait until the record is durable, but returns the records that the caller
// must wait for: the record itself, or others that have the same. lost has the jobs whose loads could not be stored.
func (c *Cluster) cacheRecord(ctx context.Context, r *record, lost map[string]bool) (written []*record, err error) {
	if copied := c.held.dropSeen(r); copied != nil && copied.origin != nil {
		return []*record{copied.origin}, nil
	} else if copied != nil || checkRecord(r) != nil {
		return nil, nil
	}

	if at, err := Time(r.jid); err == nil && c.cfg.Keep > 0 && c.Local.cfg.Now().Sub(at) > c.cfg.Keep {
		return nil, nil // the job is too old: Clean would remove the record at once
	}

	const mostAhead = time.Hour
	age := c.Local.cfg.Now().Sub(time.Unix(0, r.time))
	if c.cfg.Keep > 0 && age > c.cfg.Keep {
		jobAt, err := Time(r.jid)
		isAhead := err != nil || c.Local.cfg.Now().Sub(jobAt) < -mostAhead
		if isAhead {
			return nil, nil // the record is too old: a master that was away hands it over
		}
		r.time = jobAt.UnixNano() // the job is younger than its record: the clock of a master is behind
	}
	if age < -mostAhead {
		r.time = 0 // the clock of a master is wrong
	}

	r.a, r.b = bytes.Clone(r.a), bytes.Clone(r.b) // otherwise the slices would keep the whole segment in memory
	switch r.kind {
	case kindReturn:
		// Another master has stored the return: an error here would end the import of the whole segment.
		facts, err := c.knownFacts(r.jid) // it has logged the error
		if facts.nocache {
			return nil, nil
		}
		if err == nil && !facts.load && (age.Abs() <= loadComes || lost[r.jid]) {
			return nil, errLoadComes
		}
		_, other, err := c.submitReturn(ctx, r, facts, Return{JID: r.jid, ID: r.id})
		if err != nil || other == nil {
			return nil, err
		}
		return []*record{other}, nil
	case kindLoad, kindMinions:
		pending := c.overlay.pending(r.jid) // it may fail while isKnown looks at it
		isKnown, err := c.isKnown(ctx, r)
		if err != nil {
			return nil, err
		}
		if isKnown {
			return append(pending, c.overlay.pending(r.jid)...), nil
		}
		if _, err := c.submit(ctx, r); err != nil {
			return nil, err
		}
		return []*record{r}, nil
	}

	return nil, nil
}

// isKnown reports whether the cache has no use for a load or a list of minions, because it has it, or a better one.
func (c *Cluster) isKnown(ctx context.Context, r *record) (bool, error) {
	load, err := c.Load(ctx, r.jid)
	if err != nil && !errors.Is(err, ErrBrokenLoad) {
		return false, err
	}
	if load == nil {
		return false, nil
	}

	if r.kind == kindMinions {
		return contained(r.a, load.List("Minions")), nil
	}
	if _, fromReturn := load.Get("return"); fromReturn {
		return isFromReturn(r.a), nil
	}
	return !outranks(r.a, load), nil
}

// decodeLoad returns a packed load, or nil if the bytes are none.
func decodeLoad(packed []byte) *value.Map {
	v, err := msgpack.Decode(packed, msgpack.DefaultLimits)
	load, isMap := v.(*value.Map)
	if err != nil || !isMap {
		return nil
	}
	return load
}

// isFromReturn reports whether a packed load was made of a return: the master that took it did not know the job.
func isFromReturn(packed []byte) bool {
	_, fromReturn := decodeLoad(packed).Get("return")
	return fromReturn
}

// outranks reports whether a packed load must replace the stored load, see Outranks. One that was made of a return
// replaces none: it does not say who has started the job.
func outranks(packed []byte, stored *value.Map) bool {
	if !stored.Bool(ChosenField) {
		return false // the usual case, which needs no decoding of the load
	}
	load := decodeLoad(packed)
	_, fromReturn := load.Get("return")
	return load != nil && !fromReturn && !Continues(load, stored) && Outranks(load, stored)
}

// contained reports whether all texts of a packed list are in present.
func contained(packed []byte, present []any) bool {
	v, err := msgpack.Decode(packed, msgpack.DefaultLimits)
	list, ok := v.([]any)
	if err != nil || !ok {
		return true // there is nothing to add from an unreadable list
	}
	return !slices.ContainsFunc(list, func(id any) bool { return !slices.Contains(present, id) })
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
