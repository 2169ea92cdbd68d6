package jobs

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"saltern/internal/durable"
)

// badSegments are the files in the folder of the journal that have the name of a segment and cannot be read: the disk has
// damaged them, a later version has written them, or something else has taken the name. The others are served. A bad
// segment stays where it is, as a later start may be able to read it, until its time of modification says that all its
// records are old.
type badSegments struct {
	log *slog.Logger

	mu   sync.Mutex
	list []*badSegment
}

type badSegment struct {
	path  string
	err   error
	stuck bool // the log says that it cannot be removed
}

var (
	errNoSegment     = errors.New("it is no segment of jobs and returns, or one of a later version")
	errDamagedHead   = errors.New("its head is damaged")
	errNothingInside = errors.New("it is empty, or none of its records can be read")
	errNoRegularFile = errors.New("it is no regular file")
)

func (b *badSegments) add(path string, err error) {
	b.log.Error("jobs and returns of a segment cannot be read and are left out", "path", path, "error", err)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.list = append(b.list, &badSegment{path: path, err: err})
}

// removeOld removes those that were modified before a time. It removes no folder with something inside.
func (b *badSegments) removeOld(before time.Time) {
	b.mu.Lock()
	list := slices.Clone(b.list)
	b.mu.Unlock()

	var gone []*badSegment
	for _, bad := range list {
		st, err := os.Lstat(bad.path)
		if err == nil && !st.ModTime().Before(before) {
			continue
		}
		if err == nil {
			err = os.Remove(bad.path)
		}
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			gone = append(gone, bad)
			continue
		}
		if !bad.stuck { // removeOld alone uses the field
			b.log.Error("a segment of old jobs and returns cannot be removed", "path", bad.path, "error", err)
		}
		bad.stuck = true
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	b.list = slices.DeleteFunc(b.list, func(bad *badSegment) bool { return slices.Contains(gone, bad) })
}

// SegmentFault returns an error while jobs and returns cannot be read from the disk, otherwise nil.
func (c *Local) SegmentFault() error {
	type fault struct {
		path string
		err  error
	}

	var faults []fault
	c.home.bad.mu.Lock()
	for _, bad := range c.home.bad.list {
		faults = append(faults, fault{bad.path, bad.err})
	}
	c.home.bad.mu.Unlock()
	c.home.mu.RLock()
	for _, g := range c.home.segments {
		if g.damaged || g.lossy {
			faults = append(faults, fault{g.path, errDamagedRecord})
		}
	}
	c.home.mu.RUnlock()

	if len(faults) == 0 {
		return nil
	}
	first := slices.MinFunc(faults, func(a, b fault) int { return cmp.Compare(a.path, b.path) })
	return fmt.Errorf("%d segments of jobs and returns cannot be read or have gaps: %s: %w; the others are served, "+
		"the history of runs and the other masters may have the rest; look for faults of the disk; "+
		"the file is removed when its jobs are old", len(faults), first.path, first.err)
}

// readLeft returns the content of a segment of an earlier run. It returns an error of badContent, too.
func readLeft(path string) ([]byte, error) {
	b, err := durable.Read(path, maxKept)
	if err != nil {
		return nil, err
	}
	return b, badContent(b)
}

// badContent returns an error for a segment of which nothing can be read although it is not empty. After a crash
// the head may be missing, and the first batch of records may be torn: both are no faults.
func badContent(b []byte) error {
	if tornBytes(b) == 0 {
		return nil
	}
	if len(b) < segmentHead || string(b[:len(segmentMagic)]) != segmentMagic {
		return errNoSegment
	}

	m := b[len(segmentMagic):segmentHead]
	first := b[segmentHead:min(len(b), segmentHead+markSize)]
	isForeign := len(first) == markSize && tornBytes(first) > 0 && string(first) != string(m)
	if isForeign && resync(b[segmentHead:], mark(m)) < 0 { // else the first record alone is damaged
		return errDamagedHead
	}
	return nil
}

// isOutOfMeans reports whether a file could not be read because the process or the system has too little of something.
func isOutOfMeans(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM)
}

// noteUnreadable logs, once for each segment, that a part of it cannot be read.
func (h *home) noteUnreadable(g *homeSegment, err error) {
	h.mu.Lock()
	said := g.unreadable
	g.unreadable = true
	g.lossy = g.lossy || !isOutOfMeans(err)
	h.mu.Unlock()
	if !said {
		h.log.Error("records of jobs cannot be read and are left out", "error", err)
	}
}

// noteStuck logs, once, that a segment cannot be removed.
func (h *home) noteStuck(g *homeSegment, err error) {
	h.mu.Lock()
	said := g.stuck
	g.stuck = true
	path := g.path
	h.mu.Unlock()
	if !said {
		h.log.Error("a segment of old jobs and returns cannot be removed", "path", path, "error", err)
	}
}
