package spool

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Reader reads the records of a spool in order. Only one goroutine may use it; Waiting and Lost may
// be called concurrently.
type Reader struct {
	spool *Spool
	path  string // file with the reader's position
	ready chan struct{}

	// next and the fields after it are guarded by the lock of the spool.
	next uint64 // number of the next record to read
	lost uint64
	file *os.File // the file at path; nil: not opened yet
}

// Reader opens the reader with this name. If the reader existed before, it continues at its stored
// position. Otherwise it begins with the next record that is appended.
func (s *Spool) Reader(name string) (*Reader, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &Reader{
		spool: s,
		path:  filepath.Join(s.cfg.Dir, FileName(name)+placeSuffix),
		ready: make(chan struct{}, 1),
	}

	text, err := os.ReadFile(r.path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		r.next = s.next
		if err := r.writePlace(); err != nil {
			return nil, fmt.Errorf("note the place of a reader of the spool: %w", errors.Join(err, r.removePlace()))
		}
	case err != nil:
		return nil, fmt.Errorf("read the place of a reader of the spool: %w", err)
	default:
		// If the position was not written completely, parsePlace returns 0, and the reader reads
		// all records again.
		r.next = parsePlace(string(text))
	}

	if len(s.segments) > 0 {
		r.next = max(r.next, s.segments[0].first)
	}

	// A power cut may have destroyed records that were already read.
	s.next = max(s.next, r.next)
	s.readers = append(s.readers, r)
	r.signalReady()
	return r, nil
}

// Forget removes the positions of all readers that are not open, and the records that no other
// reader needs. The caller must know that these readers will never be opened again.
func (s *Spool) Forget() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	places, err := filepath.Glob(filepath.Join(s.cfg.Dir, "*"+placeSuffix))
	if err != nil {
		return err
	}
	for _, path := range places {
		if !slices.ContainsFunc(s.readers, func(r *Reader) bool { return r.path == path }) {
			err = errors.Join(err, os.Remove(path))
		}
	}
	s.dropRead()
	return err
}

// formatPlace returns a position as text. The text has a fixed length, so that one write replaces
// all of it.
func formatPlace(number uint64) string {
	text := fmt.Sprintf("%020d", number)
	return fmt.Sprintf("%s %08x\n", text, crc32.Checksum([]byte(text), castagnoli))
}

func parsePlace(text string) (number uint64) {
	if _, err := fmt.Sscanf(text, "%020d", &number); err != nil || !strings.HasPrefix(text, formatPlace(number)) {
		return 0
	}
	return number
}

// writePlace writes the reader's position to its file. The caller holds the lock of the spool.
func (r *Reader) writePlace() error {
	if r.file == nil {
		file, err := os.OpenFile(r.path, os.O_WRONLY|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		r.file = file
	}
	_, err := r.file.WriteAt([]byte(formatPlace(r.next)), 0)
	return err
}

// removePlace removes the file of a new reader whose position could not be written, as on a full disk.
// The reader would later take the empty file for a position that was lost, and read all records.
func (r *Reader) removePlace() error {
	if r.file == nil {
		return nil // it was not made
	}
	err := r.file.Close()
	r.file = nil
	return errors.Join(err, os.Remove(r.path))
}

func (r *Reader) signalReady() {
	select {
	case r.ready <- struct{}{}:
	default:
	}
}

// Ready returns a channel that receives a value when there may be new records since the last Read.
func (r *Reader) Ready() <-chan struct{} { return r.ready }

// Waiting returns the number of unread records.
func (r *Reader) Waiting() uint64 {
	r.spool.mu.Lock()
	defer r.spool.mu.Unlock()
	return r.spool.next - r.next
}

// Past reports whether this reader has finished or lost all records before this number.
func (r *Reader) Past(number uint64) bool {
	r.spool.mu.Lock()
	defer r.spool.mu.Unlock()
	return r.next >= number
}

// Lost returns how many records this reader has lost since the spool was opened, because they were
// dropped before it read them, or were damaged.
func (r *Reader) Lost() uint64 {
	r.spool.mu.Lock()
	defer r.spool.mu.Unlock()
	return r.lost
}

// Enough reports whether the unread records should be read now: whether there are at least this
// many records or bytes, or whether they take half of the spool's bound. Waiting longer could lose
// the oldest records.
func (r *Reader) Enough(records int, bytes int64) bool {
	s := r.spool
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.next-r.next >= uint64(records) {
		return true
	}

	var waiting int64
	for _, g := range s.segments {
		if r.next >= g.endNumber() {
			continue
		}
		waiting += g.size
		if r.next > g.first {
			waiting -= int64(g.offsets[r.next-g.first])
		}
	}

	return waiting >= min(bytes, s.cfg.Bytes/2)
}

// Read returns the next unread records, at most maxRecords. It stops after the record with which
// their total size reaches maxBytes. When the records are done, the caller passes end to Advance.
// Read returns no records if none are unread, and fewer records if lost records follow.
func (r *Reader) Read(maxRecords int, maxBytes int64) (records [][]byte, end uint64, err error) {
	return r.ReadFrom(0, maxRecords, maxBytes)
}

// ReadFrom works like Read, but begins with the record of this number. If Advance has already
// passed that record, ReadFrom begins with the next unread record.
func (r *Reader) ReadFrom(number uint64, maxRecords int, maxBytes int64) (records [][]byte, end uint64, err error) {
	s := r.spool
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.closed {
		return nil, 0, os.ErrClosed
	}

	at := max(number, r.next)
	for at < s.next && len(records) < maxRecords && maxBytes > 0 {
		g := s.segmentAt(at)
		if g == nil || g.first > at {
			if len(records) > 0 {
				break // the next call skips the missing records
			}
			at = r.skipMissing(at, g)
			continue
		}

		found, err := s.readSegment(g, at, maxRecords-len(records), maxBytes)
		for _, record := range found {
			maxBytes -= int64(len(record))
		}

		records = append(records, found...)
		at += uint64(len(found))
		switch {
		case err == nil:
		case len(records) > 0:
			return records, at, nil
		case errors.Is(err, errRecord):
			if err := s.cutDamaged(g, at); err != nil {
				return nil, 0, fmt.Errorf("leave out what is damaged: %w", err)
			}
		default:
			return nil, 0, fmt.Errorf("read the spool: %w", err)
		}
	}

	return records, at, nil
}

// skipMissing skips records, beginning with the one of this number, that are in no segment because
// a power cut destroyed them. It returns the number after the missing records. g is the segment
// that follows the missing records; it may be nil: none follows. The missing records are counted as
// lost; if records before them are unread, Advance counts them later. The caller holds the lock of
// the spool.
func (r *Reader) skipMissing(number uint64, g *segment) (next uint64) {
	next = r.spool.next
	if g != nil {
		next = g.first
	}
	if number == r.next {
		r.lost += next - number
		r.next = next
	}
	return next
}

// cutDamaged removes all records from this number on from a segment, because they are damaged. The
// caller holds the lock of the spool.
func (s *Spool) cutDamaged(g *segment, number uint64) error {
	if g == s.lastSegment() && s.active != nil { // the next record must be written to a new segment
		if err := s.endSegment(); err != nil {
			return err
		}
	}
	g.offsets = g.offsets[:number-g.first]
	return nil
}

// missing returns how many of the records from first up to, but not including, end are in no
// segment. The caller holds the lock of the spool.
func (s *Spool) missing(first, end uint64) uint64 {
	missing := end - first
	for _, g := range s.segments {
		if low, high := max(first, g.first), min(end, g.endNumber()); low < high {
			missing -= high - low
		}
	}
	return missing
}

// segmentAt returns the segment that contains the record with this number. If no segment contains
// it, segmentAt returns the first later segment, or nil if there is none. The caller holds the lock
// of the spool.
func (s *Spool) segmentAt(number uint64) *segment {
	i := slices.IndexFunc(s.segments, func(g *segment) bool { return number < g.endNumber() })
	if i < 0 {
		return nil
	}
	return s.segments[i]
}

// readSegment reads records of one segment, beginning with the record of this number. It reads at
// least one record. If it returns an error, the records that it returns with the error are valid.
func (s *Spool) readSegment(g *segment, number uint64, maxRecords int, maxBytes int64) (records [][]byte, err error) {
	file, err := os.Open(s.segmentPath(g.first))
	if errors.Is(err, os.ErrNotExist) {
		return nil, errRecord
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()

	for _, offset := range g.offsets[number-g.first:] {
		record, err := readRecord(file, int64(offset), largestRecord)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = errRecord
		}

		if err != nil {
			return records, err
		}

		records = append(records, record)
		maxBytes -= int64(len(record))
		if len(records) == maxRecords || maxBytes <= 0 {
			break
		}
	}

	return records, nil
}

// Advance records that all records before the number end are done.
func (r *Reader) Advance(end uint64) error {
	s := r.spool
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.closed {
		return os.ErrClosed
	}
	if end <= r.next {
		return nil // the records were dropped since Read returned them
	}

	r.lost += s.missing(r.next, end)
	r.next = end
	s.dropRead()
	if err := r.writePlace(); err != nil {
		return fmt.Errorf("note the place of a reader of the spool: %w", err)
	}

	return nil
}
