package history

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"saltern/internal/durable"
	"saltern/master/history/summary"
)

const segmentSuffix = ".seg"

// Bounds of a segment that is scanned: bytes, chunks, and chunks in a row whose returns are damaged.
const (
	maxSegment = 256 << 20
	maxChunks  = 1 << 18
	maxLame    = 1000
)

// The last bytes of a sealed segment: the offset of its footer, and trailerMagic.
const (
	trailerMagic = "SALTHSTE"
	trailerSize  = 8 + len(trailerMagic)
)

// segment is a file of runs. Only the newest segment changes, under Store.mu.
type segment struct {
	number         uint64
	path           string
	mark           mark
	bytes          int64
	runs           int
	from, to       int64 // times of the oldest and the latest run
	minJID, maxJID string

	// Of a sealed segment: the offsets of two frames of its index.
	directory, sparse int64

	// Of a segment that is not sealed: its index, which is nil for a sealed one, its chunks, and
	// when it began.
	memory *memoryIndex
	chunks []chunkPlace
	began  time.Time
	// unreadable means that the disk could not read all of a segment that is not sealed. The file stays
	// as it is, for the disk may be able to at the next start.
	unreadable bool
}

func (g *segment) addChunk(c chunkPlace, runs int, minJID, maxJID string) {
	if g.runs == 0 {
		g.from, g.to = c.from, c.to
		g.minJID, g.maxJID = minJID, maxJID
	}
	g.chunks = append(g.chunks, c)
	g.runs += runs
	g.from, g.to = min(g.from, c.from), max(g.to, c.to)
	g.minJID, g.maxJID = min(g.minJID, minJID), max(g.maxJID, maxJID)
}

func (g *segment) memoryBytes() int {
	const sealedBytes = 300
	if g.memory == nil {
		return sealedBytes
	}
	return sealedBytes + g.memory.bytes + 24*len(g.chunks)
}

func (s *Store) segmentPath(number uint64) string {
	return filepath.Join(s.cfg.Dir, fmt.Sprintf("%016d%s", number, segmentSuffix))
}

// load opens the segments of earlier runs of the program.
func (s *Store) load() error {
	list, err := os.ReadDir(s.cfg.Dir)
	if err != nil {
		return err
	}

	var numbers []uint64
	for _, e := range list {
		digits, ok := strings.CutSuffix(e.Name(), segmentSuffix)
		if n, err := strconv.ParseUint(digits, 10, 63); ok && err == nil && e.Type().IsRegular() &&
			e.Name() == filepath.Base(s.segmentPath(n)) {
			numbers = append(numbers, n)
		}
	}

	slices.Sort(numbers)
	for i, n := range numbers {
		s.nextNumber = n + 1
		g := &segment{number: n, path: s.segmentPath(n)}
		err := s.loadSegment(g)
		if isUnreadable(err) {
			s.counters.Damaged++
			s.log.Error("history: a segment cannot be read and is left out", "path", s.segmentPath(n), "error", err)
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.segmentPath(n), err)
		}

		last := i == len(numbers)-1
		unsealed := g.memory != nil && g.mark != (mark{}) && !g.unreadable
		switch {
		case unsealed && last:
			if err := s.resume(g); err != nil {
				return err
			}
		case unsealed:
			s.sealed = append(s.sealed, s.sealAgain(g))
		default:
			s.sealed = append(s.sealed, g)
		}
	}

	if err := s.adoptRestored(); err != nil {
		return err
	}
	s.sortByAge(s.sealed)
	s.noteRemoved()
	return s.rememberLast()
}

// noteRemoved notes that an earlier run may have removed segments: those of the lowest numbers are missing. What they
// had was made before the latest run of the oldest segment.
func (s *Store) noteRemoved() {
	list := s.segmentsLocked()
	isFirst := func(g *segment) bool { return g.number == 1 }
	if len(list) > 0 && !slices.ContainsFunc(list, isFirst) {
		s.removedUntil = list[0].to
	}
}

// loadSegment reads the footer of a sealed segment, whose path is g.path, or else scans the segment.
func (s *Store) loadSegment(g *segment) error {
	if err := s.injectFault("load"); err != nil {
		return err
	}

	file, st, err := durable.Open(g.path, durable.Refuse)
	if err != nil {
		return err
	}
	defer file.Close()

	g.bytes = st.Size()
	head := make([]byte, segmentHead)
	if _, err := file.ReadAt(head, 0); isUnreadable(err) || err != nil && !errors.Is(damageOf(err), errDamaged) {
		return err
	}

	if string(head[:len(segmentMagic)]) == segmentMagic {
		g.mark = mark(head[len(segmentMagic):])
		if s.readFooter(g, file) {
			return nil
		}
	}

	return s.scan(g, &watchedFile{file: file})
}

// watchedFile is a file that notes whether the disk could not read a part of it.
type watchedFile struct {
	file       io.ReaderAt
	unreadable bool
}

func (w *watchedFile) ReadAt(b []byte, offset int64) (int, error) {
	n, err := w.file.ReadAt(b, offset)
	w.unreadable = w.unreadable || isUnreadable(err)
	return n, err
}

// readFooter reads the footer of a sealed segment into g. It returns false if the segment is not
// sealed, or its footer is damaged.
func (s *Store) readFooter(g *segment, file *os.File) bool {
	trailer := make([]byte, trailerSize)
	if _, err := file.ReadAt(trailer, g.bytes-int64(trailerSize)); err != nil ||
		string(trailer[8:]) != trailerMagic {
		return false
	}

	offset := int64(binary.BigEndian.Uint64(trailer) & (1<<62 - 1))
	f, err := readFrame(file, g.mark, offset)
	if err != nil || f.kind != kindFooter {
		return false
	}
	footer, err := s.packer.readRows(file, &f)
	if err != nil {
		return false
	}

	r := reader{rest: footer}
	g.runs = r.size(1 << 40)
	g.from = r.varint()
	g.to = r.varint()
	g.minJID = string(r.bytes(maxJID))
	g.maxJID = string(r.bytes(maxJID))
	g.directory = int64(r.size(1 << 40))
	g.sparse = int64(r.size(1 << 40))
	return !r.failed && g.directory > 0 && g.sparse > 0
}

func (g *segment) footer() []byte {
	b := binary.AppendUvarint(nil, uint64(g.runs))
	b = binary.AppendVarint(b, g.from)
	b = binary.AppendVarint(b, g.to)
	for _, jid := range []string{g.minJID, g.maxJID} {
		b = binary.AppendUvarint(b, uint64(len(jid)))
		b = append(b, jid...)
	}
	b = binary.AppendUvarint(b, uint64(g.directory))
	return binary.AppendUvarint(b, uint64(g.sparse))
}

// scan makes the index of a segment without a footer from its chunks. It ends the segment after the
// last chunk that it can read. It notes if there is something that the disk cannot read.
func (s *Store) scan(g *segment, file *watchedFile) error {
	g.memory = newMemoryIndex()
	g.runs = 0
	g.directory, g.sparse = 0, 0
	end := int64(segmentHead)
	size := g.bytes
	if size > maxSegment || g.mark == (mark{}) {
		size = 0
	}
	var lame []frame // chunks with damaged returns, after end: torn, unless a whole chunk follows
	gaps, err := scanFrames(file, g.mark, size, func(f *frame) error {
		if f.kind != kindChunk {
			return nil
		}

		err := checkBody(file, f)
		if len(lame) >= maxLame || len(g.chunks) >= maxChunks {
			return errDamaged
		}
		if errors.Is(err, errDamaged) {
			lame = append(lame, *f)
			return nil
		}
		for _, f := range append(lame, *f) {
			if err == nil {
				err = s.indexChunk(g, file, &f)
			}
		}
		lame = lame[:0]
		if err == nil {
			end = f.offset + f.size()
		}
		return err
	})
	if err != nil {
		return err
	}

	g.unreadable = file.unreadable
	g.began = s.cfg.Now()
	if len(g.chunks) > 0 {
		g.began = time.Unix(0, min(g.chunks[0].to, g.began.UnixNano()))
	}
	if size == 0 && g.bytes > 0 {
		s.counters.Damaged++
		s.log.Error("history: a segment cannot be read", "path", g.path, "bytes", g.bytes)
		return nil
	}

	if gaps > 0 {
		s.counters.Damaged += uint64(gaps)
		s.log.Error("history: a segment is damaged", "path", g.path, "places", gaps, "runs", g.runs)
	}
	if g.unreadable {
		s.counters.Damaged++
		s.log.Error("history: the disk cannot read all of a segment, which stays as it is", "path", g.path,
			"runs", g.runs)
		g.bytes = end
		return nil
	}

	torn := max(g.bytes-end, 0)
	s.counters.TornBytes += uint64(torn)
	if torn > 0 {
		s.log.Warn("history: the end of a segment is torn and left out", "path", g.path, "bytes", torn, "runs", g.runs)
	}

	g.bytes = end
	return nil
}

// indexChunk adds a chunk to the index of a segment that is not sealed.
func (s *Store) indexChunk(g *segment, file io.ReaderAt, f *frame) error {
	rows, err := s.packer.readRows(file, f)
	if err != nil {
		return err
	}

	c := newChunk()
	r := readRows(rows)
	for r.next() {
		// A summary of a later release counts as empty here. Query leaves that run out.
		sum, _ := summary.Parse(r.row.summary)

		w := &r.row
		jid := string(w.jid)
		if c.runs == 0 {
			c.from, c.to = w.time, w.time
			c.minJID, c.maxJID = jid, jid
		}
		c.runs++
		c.from, c.to = min(c.from, w.time), max(c.to, w.time)
		c.minJID, c.maxJID = min(c.minJID, jid), max(c.maxJID, jid)
		termsOf(w, &sum, func(term string) { c.terms[term] = struct{}{} })
	}

	if r.failed || c.runs == 0 {
		return errDamaged
	}

	number := uint32(len(g.chunks))
	g.addChunk(chunkPlace{f.offset, c.from, c.to}, c.runs, c.minJID, c.maxJID)
	for term := range c.terms {
		g.memory.add(term, number)
	}
	return nil
}

// resume continues a segment of an earlier run of the program.
func (s *Store) resume(g *segment) error {
	file, err := os.OpenFile(g.path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := file.Truncate(g.bytes); err != nil {
		_ = file.Close()
		return err
	}
	s.newest = g
	s.file = file
	s.syncedSize = 0
	s.syncFailed = true // nobody knows whether the earlier run has synced it
	return nil
}

// rememberLast fills recent and former with the runs of the newest segments.
func (s *Store) rememberLast() error {
	if s.newest != nil {
		if err := s.leaveOut(s.remember(s.newest, s.recent), s.newest, 0); err != nil {
			return err
		}
	}
	if n := len(s.sealed); n > 0 {
		s.formerOf = s.sealed[n-1].number
		return s.leaveOut(s.remember(s.sealed[n-1], s.former), s.sealed[n-1], 0)
	}
	return nil
}

// remember adds the hashes of a segment's runs.
func (s *Store) remember(g *segment, hashes map[uint64]struct{}) error {
	return s.eachRow(g, func(w *row, _ *frame) error {
		hashes[s.hashRow(w)] = struct{}{}
		return nil
	})
}

// eachRow calls visit with the rows of a segment, and the frames of their chunks. It leaves out damaged
// chunks.
func (s *Store) eachRow(g *segment, visit func(w *row, f *frame) error) error {
	file, err := os.Open(g.path)
	if err != nil {
		return err
	}
	defer file.Close()

	_, err = scanFrames(file, g.mark, g.bytes, func(f *frame) error {
		if f.kind != kindChunk {
			return nil
		}
		rows, err := s.packer.readRows(file, f)
		if err != nil {
			return err
		}
		for r := readRows(rows); r.next(); {
			if err := visit(&r.row, f); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}
