package history

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"saltern/internal/durable"
	"saltern/internal/room"
	"saltern/master/history/summary"
)

// A chunk is written to disk when it has this many bytes of rows or of returns. Small chunks make
// queries of few runs cheap; large ones compress better.
const (
	chunkRows = 16 << 10
	chunkBody = 256 << 10
)

// chunk gathers runs for a frame. Bytes are only appended to rows and body, so that readers may
// keep slices of them.
type chunk struct {
	rows, body     []byte
	runs           int
	began          time.Time // when the first run was added
	last           int64     // time of the last row
	from, to       int64
	minJID, maxJID string
	terms          map[string]struct{}
}

func newChunk() *chunk { return &chunk{terms: map[string]struct{}{}} }

// add appends a run.
func (c *chunk) add(run *Run, oversized bool, now time.Time) {
	w := row{
		time:        run.Time.UnixNano(),
		jid:         []byte(run.JID),
		minion:      []byte(run.Minion),
		user:        []byte(run.User[:min(len(run.User), maxText)]),
		function:    []byte(run.Function[:min(len(run.Function), maxText)]),
		summary:     summary.Append(nil, run.Summary),
		returnBytes: cmp.Or(len(run.Return), run.ReturnBytes),
		bodyBytes:   len(run.Return),
	}
	if oversized {
		w.bodyBytes = 0
	}

	c.rows = appendRow(c.rows, &w, c.last)
	c.body = append(c.body, run.Return[:w.bodyBytes]...)
	if c.runs == 0 {
		c.began = now
		c.from, c.to = w.time, w.time
		c.minJID, c.maxJID = run.JID, run.JID
	}
	c.runs++
	c.last = w.time
	c.from, c.to = min(c.from, w.time), max(c.to, w.time)
	c.minJID, c.maxJID = min(c.minJID, run.JID), max(c.maxJID, run.JID)
	termsOf(&w, &run.Summary, func(term string) { c.terms[term] = struct{}{} })
}

// Append stores a run, unless it has a run of this minion for this job already. Query finds the run
// at once; the run is durable when Sync has returned nil. After an error the run is not stored. The
// caller may try again, except after ErrRun and ErrClosed: the disk may be full, for instance, with
// no segment left to remove.
func (s *Store) Append(run Run) error { return s.put(run, false) }

// Amend stores a run again that Append has stored, with another user, function or summary. From then on Query returns
// this one instead, unless its filter matches only the former one: that stays in the history, and a crash before Sync may
// bring it back. The time must be the same, and Amend does not look whether there is such a run.
func (s *Store) Amend(run Run) error { return s.put(run, true) }

// put stores a run, unless there is one of its minion and job already. again means that it replaces that one.
func (s *Store) put(run Run, again bool) error {
	if err := checkRun(&run); err != nil {
		return err
	}

	s.writing.Lock()
	defer s.writing.Unlock()
	if s.isClosed() {
		return ErrClosed
	}

	known := false
	if !again {
		var err error
		if known, err = s.contains(run.JID, run.Minion); err != nil {
			return fmt.Errorf("history: look for the run: %w", err)
		}
	}

	full := len(s.chunk.rows) >= s.cfg.chunkRows || len(s.chunk.body) >= chunkBody
	if full && !known {
		if err := s.flush(); err != nil {
			return fmt.Errorf("history: %w", err)
		}
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	if known {
		s.counters.Duplicates++
		return nil
	}

	oversized := len(run.Return) > MaxReturn
	if oversized {
		s.counters.Oversized++
		s.log.Warn("history: a return is too large, its summary is kept", "jid", run.JID, "minion", run.Minion,
			"bytes", len(run.Return))
	}

	s.chunk.add(&run, oversized, s.cfg.Now())
	s.recent[s.hash(run.JID, run.Minion)] = struct{}{}
	s.counters.Appended++
	return nil
}

// Sync makes the appended runs durable.
func (s *Store) Sync() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.isClosed() {
		return ErrClosed
	}
	if err := s.sync(); err != nil {
		return fmt.Errorf("history: %w", err)
	}
	return nil
}

func (s *Store) isClosed() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.closed
}

// Contains reports whether there is a run of this minion for this job. If a part of the history
// cannot be read, a run in it does not count.
func (s *Store) Contains(jid, minion string) bool {
	found, _ := s.contains(jid, minion)
	return found
}

// contains works like Contains, but returns disk errors that may be transient.
func (s *Store) contains(jid, minion string) (bool, error) {
	s.mu.RLock()
	key := s.hash(jid, minion)
	_, found := s.recent[key]
	if !found {
		_, found = s.former[key]
	}
	others, formerOf := s.sealed, s.formerOf
	s.mu.RUnlock()
	if found {
		return true, nil
	}

	for i := len(others) - 1; i >= 0; i-- {
		g := others[i]
		if g.number == formerOf || jid < g.minJID || jid > g.maxJID {
			continue
		}
		found, err := s.segmentContains(g, jid, minion)
		if found || err != nil {
			return found, err
		}
	}

	return false, nil
}

// Misses reports whether the history lacks a run that it would keep. It misses no run that is too old, or that it may have
// removed for its size.
func (s *Store) Misses(run *Run) (bool, error) {
	if s.cfg.Now().Sub(run.Time) > s.cfg.Keep || checkRun(run) != nil {
		return false, nil
	}

	s.writing.Lock()
	defer s.writing.Unlock()
	if s.isClosed() {
		return false, ErrClosed
	}
	known, err := s.contains(run.JID, run.Minion)
	if err != nil {
		return false, fmt.Errorf("history: look for the run: %w", err)
	}
	return !known && !s.mayHaveRemoved(run), nil
}

// mayHaveRemoved reports whether a run is older than all others, and the history is so large, or its disk so full, that it
// may have removed it. Taken again, such a run could cost a newer one.
func (s *Store) mayHaveRemoved(run *Run) bool {
	stats := s.Stats()
	if !run.Time.Before(stats.Oldest) {
		return false
	}
	keep := room.Keep{Bytes: room.Usual().Bytes}
	full := room.Check(s.cfg.Dir, 4*s.cfg.segmentBytes, 0, keep)
	return stats.Bytes > s.cfg.MaxBytes/2 || errors.Is(full, room.ErrFull)
}

// hash returns the hash of a run. Two runs collide with a probability of 2^-64. The seed is random,
// so that nobody can construct a collision.
func (s *Store) hash(jid, minion string) uint64 {
	return maphash.String(s.seed, jid+"\x00"+minion)
}

func (s *Store) hashRow(w *row) uint64 { return s.hash(string(w.jid), string(w.minion)) }

// flush writes the gathered runs to the newest segment, or to a new one if that is full. The caller
// holds s.writing.
func (s *Store) flush() error {
	c := s.chunk
	if c.runs == 0 {
		return nil
	}

	if s.newest != nil && s.full(s.newest) {
		if err := s.seal(); err != nil {
			return err
		}
	}
	if s.newest == nil {
		if err := s.withRoom(segmentHead, s.begin); err != nil {
			return fmt.Errorf("begin a segment: %w", err)
		}
	}

	g := s.newest
	b := s.packer.appendFrame(nil, g.mark, kindChunk, c.rows, c.body)
	if err := s.write(b, g.bytes); err != nil {
		return err
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	number := uint32(len(g.chunks))
	g.addChunk(chunkPlace{g.bytes, c.from, c.to}, c.runs, c.minJID, c.maxJID)
	g.bytes += int64(len(b))
	for term := range c.terms {
		g.memory.add(term, number)
	}
	s.chunk = newChunk()
	return nil
}

// full reports whether the next chunk belongs into a new segment.
func (s *Store) full(g *segment) bool {
	if s.cfg.oneSegment {
		return false
	}
	return g.runs >= s.cfg.segmentRuns || g.bytes >= s.cfg.segmentBytes ||
		g.memory.bytes >= maxIndexBytes || s.cfg.Now().Sub(g.began) >= s.cfg.segmentAge()
}

// create creates the file of the next segment. It leaves out numbers of files that exist.
func (s *Store) create() (path string, file *os.File, err error) {
	for {
		path = s.segmentPath(s.nextNumber)
		file, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
		if !errors.Is(err, fs.ErrExist) {
			return path, file, err
		}
		s.nextNumber++
	}
}

// begin creates a segment.
func (s *Store) begin() error {
	if err := s.injectFault("create"); err != nil {
		return err
	}

	path, file, err := s.create()
	if err != nil {
		return err
	}

	g := &segment{
		number: s.nextNumber,
		path:   path,
		bytes:  int64(segmentHead),
		began:  s.chunk.began,
		memory: newMemoryIndex(),
	}
	rand.Read(g.mark[:])
	_, err = file.WriteAt(append([]byte(segmentMagic), g.mark[:]...), 0)
	if err == nil {
		err = durable.SyncDir(s.cfg.Dir)
	}
	if err != nil {
		_ = file.Close()
		_ = os.Remove(path)
		return err
	}

	s.nextNumber++
	s.file = file
	s.syncedSize = 0
	s.mu.Lock()
	s.newest = g
	s.mu.Unlock()
	return nil
}

// write writes bytes at the end of the newest segment. After an error the segment has its former
// size.
func (s *Store) write(b []byte, offset int64) error {
	return s.withRoom(len(b), func() error {
		err := s.injectFault("write")
		if err == nil {
			_, err = s.file.WriteAt(b, offset)
		}
		if err != nil {
			_ = s.file.Truncate(offset) // best effort: the next write overwrites these bytes
			return fmt.Errorf("write: %w", err)
		}
		return nil
	})
}

// sync writes the gathered runs and syncs the newest segment. The caller holds s.writing.
func (s *Store) sync() error {
	if err := s.flush(); err != nil {
		return err
	}
	if s.file == nil || s.syncedSize == s.newest.bytes && !s.syncFailed {
		return nil
	}

	if s.syncFailed {
		if err := s.writeAgain(); err != nil {
			return fmt.Errorf("write again what could not be synced: %w", err)
		}
	}

	err := s.injectFault("sync")
	if err == nil {
		err = unix.Fdatasync(int(s.file.Fd()))
	}
	if err != nil {
		s.syncFailed = true
		return fmt.Errorf("sync: %w", err)
	}

	s.syncFailed = false
	s.syncedSize = s.newest.bytes
	return nil
}

// writeAgain writes again what a failed sync may have lost: the kernel reports such an error once,
// and afterwards counts the pages as written (fsync(2)).
func (s *Store) writeAgain() error {
	b := make([]byte, 1<<20)
	for at := s.syncedSize; at < s.newest.bytes; {
		n, err := s.file.ReadAt(b[:min(int64(len(b)), s.newest.bytes-at)], at)
		if n == 0 {
			return err
		}
		if _, err := s.file.WriteAt(b[:n], at); err != nil {
			return err
		}
		at += int64(n)
	}
	return nil
}
