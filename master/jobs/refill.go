package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
)

// Refiller is an Archive that may have lost what it took: with its folder, or because that is an older copy.
type Refiller interface {
	Archive
	// Holds reports whether the archive has a return, whose content may be missing.
	Holds(a Archived) (Holding, error)
	// Refill takes a return again that the archive has lost. It is no news.
	Refill(a Archived) error
	// AddMissing says that the archive lacks returns which are still to come, from one source more (1) or less (-1).
	AddMissing(sources int)
}

// Holding says whether an archive has a return.
type Holding int

// The values of a Holding.
const (
	Held    Holding = iota
	Lost            // it has not got the return, or not any more
	NotKept         // it keeps no such returns
)

// refill passes the returns of segments to the archive that the archive has lost. Segments are passed in full, in order,
// so that a crash in the middle leaves the last return of a segment to be seen as lost at the next start.
type refill struct {
	cache   *Local
	archive Refiller
	lost    []*homeSegment // oldest first
}

// newRefill finds the segments whose latest returns the archive has lost. It returns nil if there are none.
func (c *Local) newRefill() *refill {
	archive, ok := c.cfg.Archive.(Refiller)
	if !ok {
		return nil
	}
	f := &refill{cache: c, archive: archive}
	c.home.mu.RLock()
	segments := c.home.segments
	c.home.mu.RUnlock()
	for _, g := range segments {
		if f.isLost(g) {
			f.lost = append(f.lost, g)
		}
	}
	if len(f.lost) == 0 {
		return nil
	}

	archive.AddMissing(1)
	c.log.Warn("the history lacks returns that this node's job cache has: its folder is new, or an older copy. It takes them again",
		"segments", len(f.lost))
	return f
}

// mostLooked bounds the returns at the end of a segment that isLost looks at, since polls are in no archive.
const mostLooked = 2000

// isLost reports whether the archive has lost the latest return of a segment that it would keep.
func (f *refill) isLost(g *homeSegment) bool {
	r := homeReader{home: f.cache.home}
	defer r.close()
	looked := 0
	for _, at := range slices.Backward(f.cache.home.refsOf(g)) {
		if at.what < isReturn {
			continue
		}
		looked++
		if looked > mostLooked {
			return false
		}

		rec, err := r.read(place{g, at}, true)
		if err != nil || checkRecord(rec) != nil {
			continue
		}

		holding, err := f.archive.Holds(f.cache.archivedOf(rec))
		if err != nil {
			f.cache.log.Warn("it is not known whether the history has lost returns", "path", f.cache.home.pathOf(g), "error", err)
			return false
		}
		if holding != NotKept {
			return holding == Lost
		}
	}
	return false
}

// run passes the lost returns, until ctx ends.
func (f *refill) run(ctx context.Context) {
	runs := 0
	var failed error
	for _, g := range f.lost {
		n, err := f.passSegment(ctx, g)
		runs += n
		if failed = err; failed != nil {
			break
		}
	}
	if err := f.archive.Sync(); err != nil {
		failed = cmp.Or(failed, err)
	}

	if ctx.Err() != nil {
		return // the next start goes on
	}
	if failed != nil {
		f.cache.log.Error("the history stays incomplete until the next start: it does not take returns that it has lost",
			"runs", runs, "error", failed)
		return
	}
	f.archive.AddMissing(-1)
	f.cache.log.Info("the history has the returns of the job cache again", "runs", runs)
}

// passSegment passes the lost returns of a segment, and returns how many.
func (f *refill) passSegment(ctx context.Context, g *homeSegment) (passed int, err error) {
	h := f.cache.home
	r := homeReader{home: h}
	defer r.close()
	for _, at := range h.refsOf(g) {
		if at.what < isReturn {
			continue
		}
		if err := ctx.Err(); err != nil {
			return passed, err
		}
		rec, err := r.read(place{g, at}, false)
		if errors.Is(err, fs.ErrNotExist) && h.isRemoved(g) {
			return passed, nil
		}
		if err != nil {
			h.noteUnreadable(g, fmt.Errorf("read %s: %w", h.pathOf(g), err))
			continue
		}
		if checkRecord(rec) != nil {
			continue
		}

		a := f.cache.archivedOf(rec)
		holding, err := f.archive.Holds(a)
		if err == nil && holding == Lost {
			err = f.archive.Refill(a)
			passed++
		}
		if err != nil && !errors.Is(err, ErrLeftOut) {
			return passed, err
		}
	}
	return passed, nil
}
