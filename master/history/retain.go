package history

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"

	"saltern/internal/room"
)

// retainEvery is the time between two searches for a segment that is too old. A search removes at
// most one segment for its age, and so does the sealing of a segment. So a clock that is wrong for
// a while does not cost the whole history.
const retainEvery = 10 * time.Minute

// Why a segment is removed, as the log says it.
const (
	tooOld   = "its runs are older than saltern_history_days"
	tooLarge = "the history has reached saltern_history_bytes"
	diskFull = "the disk is full"
)

// retain merges what a restore has brought, and then removes old segments until ctx ends.
func (s *Store) retain(ctx context.Context) {
	defer close(s.done)
	s.mergeOverlapping(ctx)
	ticker := time.NewTicker(retainEvery)
	defer ticker.Stop()
	for {
		s.writing.Lock()
		s.tidy()
		s.writing.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// tidy seals the newest segment when it is old, and removes a segment that must go. The caller holds
// s.writing.
func (s *Store) tidy() {
	s.yieldRoom(0)
	began := s.chunk.began
	if s.newest != nil {
		began = s.newest.began
	}
	if began.IsZero() || s.cfg.Now().Sub(began) < s.cfg.segmentAge() {
		s.removeOld()
		return
	}

	err := s.flush()
	if err == nil && s.newest != nil && s.full(s.newest) {
		err = s.seal()
	}
	if err != nil {
		s.log.Warn("history: a segment cannot be ended, trying again", "error", err)
	}
}

// removeOld removes one segment that is too old, and the oldest segments while all together are too
// large.
func (s *Store) removeOld() {
	cutoff := s.cfg.Now().Add(-s.cfg.Keep).UnixNano()
	for _, g := range s.sealed {
		if g.to < cutoff {
			s.remove(g, tooOld)
			break
		}
	}

	for s.totalBytes() > s.cfg.MaxBytes {
		if !s.removeOldest(tooLarge) {
			return
		}
	}
}

func (s *Store) totalBytes() (sum int64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, g := range s.segmentsLocked() {
		sum += g.bytes
	}
	return sum
}

// withRoom calls write. While write fails because the disk is full, withRoom removes the oldest
// segment and calls write again. The caller holds s.writing.
func (s *Store) withRoom(bytes int, write func() error) error {
	s.yieldRoom(int64(bytes))
	for {
		err := write()
		if !room.IsFull(err) || !s.removeOldest(diskFull) {
			return err
		}
	}
}

// yieldRoom removes the oldest segment if the disk has less room left than a node needs to go on. A lack
// of inodes does not count: a segment is one file.
func (s *Store) yieldRoom(bytes int64) {
	keep := room.Keep{Bytes: room.Usual().Bytes}
	if errors.Is(room.Check(s.cfg.Dir, bytes, 0, keep), room.ErrFull) {
		s.removeOldest(diskFull)
	}
}

// removeOldest removes the oldest segment, unless it is the newest one. It reports whether it did.
func (s *Store) removeOldest(why string) bool {
	if len(s.sealed) == 0 || len(s.sealed) == 1 && s.newest == nil {
		return false
	}
	return s.remove(s.sealed[0], why)
}

// remove removes a sealed segment. It reports whether it did. The caller holds s.writing.
func (s *Store) remove(g *segment, why string) bool {
	err := s.injectFault("remove")
	if err == nil {
		err = os.Remove(g.path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Error("history: a segment cannot be removed", "path", g.path, "why", why, "error", err)
		return false
	}

	s.mu.Lock()
	s.sealed = slices.DeleteFunc(slices.Clone(s.sealed), func(x *segment) bool { return x == g })
	s.removedUntil = max(s.removedUntil, g.to)
	if g.number == s.formerOf {
		s.former = map[uint64]struct{}{}
		s.formerOf = 0
	}
	switch why {
	case tooOld:
		s.counters.DroppedOld += uint64(g.runs)
	case tooLarge:
		s.counters.DroppedLarge += uint64(g.runs)
	default:
		s.counters.DroppedFull += uint64(g.runs)
	}
	s.mu.Unlock()

	s.log.Warn("history: the oldest runs are removed", "why", why, "path", g.path, "runs", g.runs, "bytes", g.bytes,
		"until", time.Unix(0, g.to).UTC())
	return true
}
