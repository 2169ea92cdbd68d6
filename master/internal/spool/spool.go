// Package spool stores records on disk for readers that may be unreachable for hours.
//
// Promises:
//   - Append writes the record before it returns, so that it survives the end of the process.
//     With Config.Durable it also syncs the record; one sync serves all waiting callers.
//   - Every reader gets all records in order, from the position to which it was last
//     advanced. If the process ends between Read and Advance, the reader gets them once more.
//   - The size of the spool is bounded. Overflow policy: the oldest segment is dropped, and
//     each reader counts what it lost (Reader.Lost). Append never waits for a reader.
//
// A record consists of a big-endian length, a CRC-32C of the length and the bytes, and the bytes. A
// segment is a file whose name is the number of its first record; the numbers continue from segment
// to segment. The position of a reader is the number of its next record, stored in a separate file.
package spool

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"saltern/internal/durable"
)

// ErrTooLarge means that a record is larger than the spool accepts.
var ErrTooLarge = errors.New("it is too large for the spool")

var errRecord = errors.New("it is damaged")

const (
	headSize = 8
	// segments is the least number of segments in a full spool. So a full spool loses about one in
	// segments of its records when the oldest segment is dropped.
	segments       = 16
	largestSegment = 8 << 20
	segmentSuffix  = ".records"
	placeSuffix    = ".place"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Config configures a Spool.
type Config struct {
	Dir     string // created if it does not exist
	Bytes   int64  // bound of the total size of all segments
	Durable bool   // Append syncs the record to the disk
}

// Spool is an open spool. All methods may be called concurrently.
type Spool struct {
	cfg     Config
	syncing sync.Mutex // lock this before mu

	mu       sync.Mutex
	segments []*segment // oldest first; active is the file of the last one
	active   *os.File   // nil: the next Append begins a segment
	next     uint64     // number of the next record
	synced   uint64     // records before this number were synced to disk
	bytes    int64
	readers  []*Reader
	closed   bool
}

type segment struct {
	first   uint64
	offsets []uint32 // position of each record in the file
	size    int64
}

// endNumber returns the number that follows the segment's last record.
func (g *segment) endNumber() uint64 { return g.first + uint64(len(g.offsets)) }

// addRecord records that a record was added. size is the size of the record including its head.
func (g *segment) addRecord(size int64) {
	g.offsets = append(g.offsets, uint32(g.size))
	g.size += size
}

// Open opens the spool in cfg.Dir. No other process may have the spool open.
func Open(cfg Config) (*Spool, error) {
	s := &Spool{cfg: cfg}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the folder of the spool: %w", err)
	}

	entries, err := os.ReadDir(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("list the spool: %w", err)
	}

	for _, entry := range entries { // entries are sorted by name, and therefore by number
		number, ok := strings.CutSuffix(entry.Name(), segmentSuffix)
		first, err := strconv.ParseUint(number, 10, 64)
		if !ok || err != nil {
			continue
		}

		g, err := scanSegment(s.segmentPath(first), first)
		if err != nil {
			return nil, fmt.Errorf("read the spool: %w", err)
		}

		s.segments = append(s.segments, g)
		s.bytes += g.size
		s.next = max(s.next, g.endNumber())
	}

	s.synced = s.next
	return s, nil
}

// scanSegment reads a segment and finds its complete records.
func scanSegment(path string, first uint64) (*segment, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()

	g := &segment{first: first}
	for {
		record, err := readRecord(file, g.size, largestRecord)
		switch {
		case err == nil:
		case errors.Is(err, errRecord), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return g, nil // the last write to the segment was interrupted
		default:
			return nil, err
		}

		g.addRecord(headSize + int64(len(record)))
	}
}

// largestRecord bounds the size of a record, in bytes.
const largestRecord = 64 << 20

func readRecord(file io.ReaderAt, offset, maxBytes int64) ([]byte, error) {
	var head [headSize]byte
	if _, err := file.ReadAt(head[:], offset); err != nil {
		return nil, err
	}

	size := int64(binary.BigEndian.Uint32(head[:4]))
	if size > maxBytes {
		return nil, errRecord
	}

	record := make([]byte, size)
	if _, err := file.ReadAt(record, offset+headSize); err != nil && size > 0 {
		return nil, err
	}
	if checksum(head[:4], record) != binary.BigEndian.Uint32(head[4:]) {
		return nil, errRecord
	}

	return record, nil
}

// checksum returns the checksum of a record. It covers the length, because otherwise zeros, which a
// power cut can leave at the end of a file, would be a valid empty record.
func checksum(length, record []byte) uint32 {
	return crc32.Update(crc32.Checksum(length, castagnoli), castagnoli, record)
}

// FileName returns a file or directory name for a reader, or for anything else that an
// administrator named. Different names give different file names of at most 120 bytes; none is "."
// or "..", or leads to another directory. (A comma is always escaped in a name.)
func FileName(name string) string {
	escaped := strings.ReplaceAll(url.PathEscape(name), ".", "%2E")
	if escaped == "" {
		return ","
	}
	if len(escaped) <= 120 {
		return escaped
	}
	return fmt.Sprintf("%.48s,%x", escaped, sha256.Sum256([]byte(name)))
}

func (s *Spool) segmentPath(first uint64) string {
	return filepath.Join(s.cfg.Dir, fmt.Sprintf("%020d%s", first, segmentSuffix))
}

// Append adds a record. If it returns an error, the record may or may not have been added.
func (s *Spool) Append(record []byte) error {
	end, err := s.Write(record)
	if err != nil {
		return err
	}
	return s.Sync(end)
}

// Write appends records in this order, without a sync. The caller passes end to Sync; end is the
// number that the next record will get. If Write returns an error, some of the records may have
// been added.
func (s *Spool) Write(records ...[]byte) (end uint64, err error) {
	for _, record := range records {
		if int64(len(record)) > min(largestRecord, s.cfg.Bytes/2) {
			return 0, fmt.Errorf("%w: %d bytes", ErrTooLarge, len(record))
		}
	}

	for _, record := range records {
		packed := make([]byte, headSize, headSize+len(record))
		binary.BigEndian.PutUint32(packed[:4], uint32(len(record)))
		binary.BigEndian.PutUint32(packed[4:], checksum(packed[:4], record))
		packed = append(packed, record...)

		number, err := s.writeRecord(packed)
		if err != nil {
			return 0, fmt.Errorf("write to the spool: %w", err)
		}
		end = number + 1
	}

	return end, nil
}

// Sync returns when all records before the number end are synced to disk. Without Config.Durable it
// returns at once.
func (s *Spool) Sync(end uint64) error {
	if !s.cfg.Durable {
		return nil
	}
	if err := s.syncTo(end); err != nil {
		return fmt.Errorf("sync the spool: %w", err)
	}
	return nil
}

func (s *Spool) writeRecord(packed []byte) (number uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, os.ErrClosed
	}

	size := min(largestSegment, s.cfg.Bytes/segments)
	if s.active != nil && s.lastSegment().size > 0 && s.lastSegment().size+int64(len(packed)) > size {
		if err := s.endSegment(); err != nil {
			return 0, err
		}
	}

	if s.active == nil {
		if err := s.beginSegment(); err != nil {
			return 0, err
		}
	}

	g := s.lastSegment()
	if _, err := s.active.WriteAt(packed, g.size); err != nil {
		// If Truncate fails, an incomplete record remains, which readers ignore.
		_ = s.active.Truncate(g.size)
		return 0, err
	}

	number = s.next
	s.next++
	g.addRecord(int64(len(packed)))
	s.bytes += int64(len(packed))
	for s.bytes > s.cfg.Bytes && len(s.segments) > 1 {
		s.dropOldest(true)
	}

	for _, r := range s.readers {
		r.signalReady()
	}

	return number, nil
}

func (s *Spool) lastSegment() *segment { return s.segments[len(s.segments)-1] }

// beginSegment creates a segment. The caller holds mu.
func (s *Spool) beginSegment() error {
	file, err := os.OpenFile(s.segmentPath(s.next), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}

	if s.cfg.Durable {
		if err := durable.SyncDir(s.cfg.Dir); err != nil {
			file.Close()
			return err
		}
	}

	s.active = file
	// The last segment is empty: the new segment uses its file.
	if n := len(s.segments); n > 0 && s.segments[n-1].first == s.next {
		s.segments = s.segments[:n-1]
	}

	s.segments = append(s.segments, &segment{first: s.next})
	return nil
}

// endSegment closes the active segment. The caller holds mu.
func (s *Spool) endSegment() error {
	if s.cfg.Durable {
		if err := s.active.Sync(); err != nil {
			return err
		}
		s.synced = max(s.synced, s.next)
	}
	err := s.active.Close()
	s.active = nil
	return err
}

// syncTo returns when all records before this number are synced to disk.
func (s *Spool) syncTo(number uint64) error {
	s.syncing.Lock()
	defer s.syncing.Unlock()
	s.mu.Lock()
	if s.synced >= number || s.active == nil {
		s.mu.Unlock()
		return nil
	}

	upto, first := s.next, s.lastSegment().first
	s.mu.Unlock()

	// Open the file a second time: during the sync another Append may end the segment and close
	// active.
	file, err := os.OpenFile(s.segmentPath(first), os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil // the segment was dropped, or all readers have read it
	}
	if err != nil {
		return err
	}
	defer file.Close()

	if err := file.Sync(); err != nil {
		return err
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.synced = max(s.synced, upto)
	return nil
}

// dropOldest removes the oldest segment. overflow means that each reader counts the records of the
// segment that it has not read as lost. The caller holds mu.
func (s *Spool) dropOldest(overflow bool) {
	g := s.segments[0]
	s.segments = s.segments[1:]
	s.bytes -= g.size
	// If Remove fails, the file is removed after the next start, when all readers have read it.
	_ = os.Remove(s.segmentPath(g.first))
	for _, r := range s.readers {
		if overflow && r.next < g.endNumber() {
			r.lost += g.endNumber() - r.next
			r.next = g.endNumber()
		}
	}
}

// dropRead removes the segments that all readers have read. The caller holds mu.
func (s *Spool) dropRead() {
	for len(s.segments) > 1 {
		end := s.segments[0].endNumber()
		if slices.ContainsFunc(s.readers, func(r *Reader) bool { return r.next < end }) {
			return
		}
		s.dropOldest(false)
	}
}

// Size returns the total size of all segments, in bytes.
func (s *Spool) Size() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes
}

// Close closes the spool. The positions of the readers remain on disk.
func (s *Spool) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}

	s.closed = true
	for _, r := range s.readers {
		if r.file != nil {
			r.file.Close()
		}
	}

	if s.active == nil {
		return nil
	}

	return s.endSegment()
}
