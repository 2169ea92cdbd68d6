package history

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"saltern/internal/control"
	"saltern/internal/durable"
	"saltern/internal/room"
)

// A restore puts the segments of a backup beside those of this node, under names that begin with
// control.RestoredHistory. Open adopts a segment whose job ids are all outside of those of this node: the
// file gets a number, and nothing is read but its footer. Other segments are merged later: what this node
// has already is left out.
//
// The number of an adopted segment does not tell its age. So load sorts the segments by their latest run.

// mergeDir is the folder in which a merge makes the segment of the runs that this node lacks.
const mergeDir = "merging"

// HasRestored reports whether there are restored segments whose runs the history has not taken in yet.
func (s *Store) HasRestored() bool {
	paths, err := s.restoredPaths()
	return err != nil || len(paths) > 0
}

func (s *Store) restoredPaths() ([]string, error) {
	return filepath.Glob(filepath.Join(s.cfg.Dir, control.RestoredHistory+"*"+segmentSuffix))
}

// adoptRestored adopts the restored segments that have no run of this node, and puts the others into
// s.overlapping. It is called by load.
func (s *Store) adoptRestored() error {
	if err := os.RemoveAll(filepath.Join(s.cfg.Dir, mergeDir)); err != nil { // of a merge that was interrupted
		return err
	}

	paths, err := s.restoredPaths()
	if err != nil {
		return err
	}

	for _, path := range paths {
		g, err := s.loadRestored(path)
		if err != nil {
			s.counters.Damaged++
			s.log.Error("history: a restored segment cannot be read and is left out", "path", path, "error", err)
			continue
		}

		switch {
		case s.hasWhole(g):
			err = os.Remove(path)
		case s.overlaps(g):
			s.overlapping = append(s.overlapping, g)
		default:
			err = s.adopt(g)
		}
		if err != nil {
			s.log.Error("history: a restored segment is taken in at a later start", "path", path, "error", err)
		}
	}
	return nil
}

// loadRestored opens a restored segment and seals it if it is not sealed.
func (s *Store) loadRestored(path string) (*segment, error) {
	g := &segment{path: path}
	if err := s.loadSegment(g); err != nil {
		return nil, err
	}
	if g.unreadable || g.mark == (mark{}) || g.runs == 0 {
		return nil, errDamaged
	}
	if g.memory != nil {
		g = s.sealAgain(g)
	}
	if g.memory != nil {
		return nil, errors.New("its index cannot be written")
	}
	return g, nil
}

// hasWhole reports whether a segment of this node is a second name of the same file. A copy does not count,
// because it may be whole where the segment of this node is damaged.
func (s *Store) hasWhole(g *segment) bool {
	restored, err := os.Lstat(g.path)
	return err == nil && slices.ContainsFunc(s.sealed, func(own *segment) bool {
		if own.mark != g.mark {
			return false
		}
		file, err := os.Lstat(own.path)
		return err == nil && os.SameFile(file, restored)
	})
}

// overlaps reports whether this node may have runs of a restored segment.
func (s *Store) overlaps(g *segment) bool {
	return slices.ContainsFunc(s.segmentsLocked(), func(own *segment) bool {
		return own.minJID <= g.maxJID && g.minJID <= own.maxJID
	})
}

// adopt makes a sealed file a segment of this history. The caller holds s.writing, or is load.
func (s *Store) adopt(g *segment) error {
	from := g.path
	for {
		g.number = s.nextNumber
		g.path = s.segmentPath(g.number)
		err := os.Link(from, g.path)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			g.path = from
			return err
		}
		s.nextNumber++
		if err == nil {
			break
		}
	}

	s.mu.Lock()
	sealed := append(slices.Clone(s.sealed), g)
	s.sortByAge(sealed)
	s.sealed = sealed
	s.counters.Restored += uint64(g.runs)
	s.mu.Unlock()
	s.log.Info("history: restored runs are taken in", "path", g.path, "runs", g.runs)

	// A crash here leaves two names of one file: see hasWhole.
	if err := errors.Join(durable.SyncDir(s.cfg.Dir), os.Remove(from)); err != nil {
		s.log.Warn("history: the first name of a restored segment stays", "path", from, "error", err)
	}
	return nil
}

// sortByAge sorts segments by their latest run. Among segments that a wrong clock has dated into the future
// the number decides.
func (s *Store) sortByAge(list []*segment) {
	now := s.cfg.Now().UnixNano()
	slices.SortStableFunc(list, func(a, b *segment) int {
		return int(max(-1, min(1, min(a.to, now)-min(b.to, now))))
	})
}

// mergeOverlapping merges the restored segments that Open has not adopted, until ctx ends. The next Open
// goes on with the rest.
func (s *Store) mergeOverlapping(ctx context.Context) {
	for _, g := range s.overlapping {
		if ctx.Err() != nil {
			return
		}
		if err := s.merge(ctx, g); err != nil && ctx.Err() == nil {
			s.log.Error("history: a restored segment is taken in at a later start", "path", g.path, "error", err)
		}
	}
	s.overlapping = nil
}

// mergeRounds bounds how often a merge begins again because runs of the segment arrive meanwhile.
const mergeRounds = 5

// merge adopts what this node lacks of a restored segment.
func (s *Store) merge(ctx context.Context, g *segment) error {
	for range mergeRounds {
		done, err := s.mergeOnce(ctx, g)
		if done || err != nil {
			return err
		}
	}
	return errors.New("minions return the same runs at the same time")
}

// mergeOnce does the work of merge. It returns false if the node has taken runs of the segment meanwhile.
func (s *Store) mergeOnce(ctx context.Context, g *segment) (done bool, err error) {
	lack, err := s.missingOf(ctx, g)
	if err != nil {
		return false, err
	}

	if len(lack.hashes) == 0 {
		s.log.Info("history: this node has all runs of a restored segment", "path", g.path, "runs", lack.rows)
		return true, s.removeMerged(g, lack)
	}

	rest := g
	if len(lack.hashes) < g.runs {
		// Otherwise runs of this node, which are newer, would make room for these.
		if err := room.Check(s.cfg.Dir, g.bytes, 1, room.Keep{Bytes: room.Usual().Bytes}); err != nil {
			return false, err
		}
		defer os.RemoveAll(filepath.Join(s.cfg.Dir, mergeDir))
		if rest, err = s.writeMissing(ctx, g, lack.hashes); err != nil {
			return false, err
		}
	}
	if err := s.injectFault("merge"); err != nil {
		return false, err
	}

	s.writing.Lock()
	defer s.writing.Unlock()
	if s.hasTaken(lack) {
		return false, nil
	}
	if err := s.adopt(rest); err != nil {
		return false, err
	}
	if rest == g {
		return true, nil
	}
	return true, s.removeMerged(g, lack)
}

// removeMerged removes a restored segment whose runs this node has. A segment that cannot be read in full
// stays, because the disk may be able to read it at a later start.
func (s *Store) removeMerged(g *segment, lack *lacking) error {
	if lack.rows < g.runs {
		s.mu.Lock()
		s.counters.Damaged++
		s.mu.Unlock()
		s.log.Error("history: a part of a restored segment cannot be read; its file stays for the next start: restore "+
			"it again, or remove it", "path", g.path, "runs", g.runs, "unreadable", g.runs-lack.rows)
		return nil
	}
	return os.Remove(g.path)
}

// lacking holds what this node lacks of a restored segment.
type lacking struct {
	rows       int                 // runs of the segment that could be read
	hashes     map[uint64]struct{} // those that this node lacks
	nextNumber uint64              // Store.nextNumber when the search began
}

// missingOf returns the runs of a segment that this node lacks.
func (s *Store) missingOf(ctx context.Context, g *segment) (*lacking, error) {
	s.writing.Lock()
	lack := &lacking{hashes: map[uint64]struct{}{}, nextNumber: s.nextNumber}
	s.writing.Unlock()

	err := s.eachRow(g, func(w *row, _ *frame) error {
		lack.rows++
		lack.hashes[s.hashRow(w)] = struct{}{}
		return ctx.Err()
	})
	if err != nil {
		return nil, err
	}

	s.mu.RLock()
	for hash := range lack.hashes {
		if _, found := s.recent[hash]; found {
			delete(lack.hashes, hash)
		}
	}
	sealed := s.sealed
	s.mu.RUnlock()

	for _, own := range sealed {
		if own.minJID > g.maxJID || own.maxJID < g.minJID {
			continue
		}
		err := s.eachRow(own, func(w *row, _ *frame) error {
			delete(lack.hashes, s.hashRow(w))
			return ctx.Err()
		})
		if err := s.leaveOut(err, own, 0); err != nil {
			return nil, err
		}
	}
	return lack, nil
}

// hasTaken reports whether the node may have taken one of the runs since the search for them. Later runs are in
// recent or former, unless two segments have begun meanwhile. The caller holds s.writing.
func (s *Store) hasTaken(lack *lacking) bool {
	if s.nextNumber > lack.nextNumber+1 {
		return true
	}

	s.mu.RLock()
	defer s.mu.RUnlock()
	for hash := range lack.hashes {
		_, recent := s.recent[hash]
		_, former := s.former[hash]
		if recent || former {
			return true
		}
	}
	return false
}

// writeMissing writes the runs of a segment that this node lacks into a sealed segment below mergeDir. It
// fails for a run of a later release, which only that release can copy.
func (s *Store) writeMissing(ctx context.Context, g *segment, missing map[uint64]struct{}) (*segment, error) {
	dir := filepath.Join(s.cfg.Dir, mergeDir)
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}

	const forEver = 200 * 365 * 24 * time.Hour
	rest, err := Open(Config{
		Dir:        dir,
		Keep:       forEver,
		MaxBytes:   math.MaxInt64,
		Now:        s.cfg.Now,
		Log:        s.log,
		oneSegment: true,
	})
	if err != nil {
		return nil, err
	}

	var file openFile
	defer file.close()
	err = s.eachRow(g, func(w *row, f *frame) error {
		if _, lacks := missing[s.hashRow(w)]; !lacks {
			return ctx.Err()
		}
		run, err := w.run()
		if err != nil {
			return fmt.Errorf("a run of a later release: %s", err.Error())
		}

		body, err := s.chunkBody(&file, g, f.offset)
		if err := s.leaveOut(err, g, f.offset); err != nil {
			return err
		}
		if end := w.bodyAt + w.bodyBytes; end <= len(body) {
			run.Return = body[w.bodyAt:end]
		}
		return rest.Amend(run) // the segment may have an amended run twice, the later one last
	})
	if err := errors.Join(err, rest.Close()); err != nil {
		return nil, fmt.Errorf("write the runs that are missing: %w", err)
	}

	written, err := s.loadRestored(rest.segmentPath(1))
	if err != nil {
		return nil, fmt.Errorf("read the runs that were missing: %w", err)
	}
	if stored := rest.Stats().Runs; written.runs != stored {
		return nil, fmt.Errorf("of %d runs that are missing only %d are in one segment", stored, written.runs)
	}
	return written, nil
}
