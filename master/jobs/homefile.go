package jobs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"saltern/internal/durable"
)

// A segment that the journal keeps gets the suffix keptSuffix once the archive has its returns, and then an
// index behind its records:
//
//	kind(1) offset time length jid length id …    the numbers are varints, offset and time relative
//	crc32c(4) length(4) indexMagic
//
// A job id of no length is the same as before. Without the index, the segment is scanned. Releases that have
// no home ignore such files.
const (
	keptSuffix = ".kept"
	indexMagic = "SALTJIX1"
	// archivedMagic takes the place of indexMagic if the archive has all returns of the segment.
	archivedMagic = "SALTJIX2"
	indexTrailer  = 8 + len(indexMagic)
	maxKept       = 1 << 30 // bytes of a segment
)

// appendEntry appends a record to an index. before is the record before it, which may be nil.
func appendEntry(index []byte, r, before *record) []byte {
	if before == nil {
		before = &record{}
	}
	index = append(index, byte(r.kind))
	index = binary.AppendUvarint(index, uint64(r.at-before.at))
	index = binary.AppendVarint(index, r.time-before.time)
	jid := r.jid
	if jid == before.jid {
		jid = ""
	}
	for _, text := range []string{jid, r.id} {
		index = binary.AppendUvarint(index, uint64(len(text)))
		index = append(index, text...)
	}
	return index
}

// parseIndex calls yield for each record of an index. The records lack their content. It returns false if the
// index is damaged.
func parseIndex(index []byte, size int64, yield func(*record)) bool {
	number := func() (n uint64, ok bool) {
		n, length := binary.Uvarint(index)
		if length <= 0 {
			return 0, false
		}
		index = index[length:]
		return n, true
	}
	text := func() (string, bool) {
		n, ok := number()
		if !ok || n > uint64(len(index)) {
			return "", false
		}
		s := string(index[:n])
		index = index[n:]
		return s, true
	}

	var at uint64
	var time int64
	var jid string
	for len(index) > 0 {
		k := kind(index[0])
		index = index[1:]
		forward, ok := number()
		later, length := binary.Varint(index)
		if !ok || length <= 0 || forward > uint64(size) {
			return false
		}
		index = index[length:]

		nextJID, ok := text()
		id, ok2 := text()
		at += forward
		time += later
		if nextJID != "" {
			jid = nextJID
		}
		r := &record{
			kind: k,
			time: time,
			jid:  jid,
			id:   id,
			at:   uint32(at),
		}
		if !ok || !ok2 || at > uint64(size) || checkRecord(r) != nil {
			return false
		}
		yield(r)
	}
	return true
}

// loadKept adds the segments that earlier runs have kept. It returns the number of the next segment. It leaves out
// segments that cannot be read, see badSegments.
func (h *home) loadKept(dir string) (next uint64, err error) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return 0, fmt.Errorf("open job journal: %w", err)
	}

	for _, e := range list {
		digits, ok := strings.CutSuffix(e.Name(), keptSuffix)
		n, err := strconv.ParseUint(digits, 10, 63)
		if !ok || err != nil {
			continue
		}

		next = max(next, n+1)
		path := filepath.Join(dir, e.Name())
		err = errNoRegularFile
		if e.Type().IsRegular() {
			err = h.loadSegment(n, path)
		}
		if isOutOfMeans(err) {
			return 0, fmt.Errorf("open job journal: %w", err)
		}
		if err != nil {
			h.bad.add(path, err)
		}
	}
	return next, nil
}

// loadSegment adds a kept segment. If it has no index that can be read, loadSegment scans it and writes one.
func (h *home) loadSegment(number uint64, path string) error {
	file, st, err := durable.Open(path, durable.Refuse)
	if err != nil {
		return err
	}
	defer file.Close()
	if st.Size() > maxKept {
		return fmt.Errorf("%w: %d bytes", ErrTooLarge, st.Size())
	}
	m, err := readMark(file)
	if err != nil {
		return err
	}

	if index, archived := readIndex(file, st.Size()); index != nil {
		var recs []*record
		if parseIndex(index, st.Size(), func(r *record) { recs = append(recs, r) }) {
			g := h.begin(number, path, m)
			if !archived {
				h.noteUnarchived(g)
			}
			h.addRecords(g, recs...)
			h.seal(g)
			return nil
		}
	}

	b, err := io.ReadAll(io.NewSectionReader(file, 0, st.Size()))
	if err != nil {
		return err
	}
	if err := badContent(b); err != nil {
		return err
	}
	var recs []*record
	damaged, _, _ := scanSegment(b, func(r *record) error {
		if checkRecord(r) == nil {
			recs = append(recs, r)
		}
		return nil
	})
	if len(recs) == 0 { // one without records is not kept
		return errNothingInside
	}

	g := h.begin(number, path, m)
	h.noteUnarchived(g) // it is not known
	h.addRecords(g, recs...)
	h.seal(g)
	if damaged > 0 {
		h.noteDamaged(g)
		h.log.Error("a segment of jobs and returns is damaged", "path", path, "places", damaged)
		return nil
	}
	err = writeIndex(path, true, false)
	if errors.Is(err, errDamagedSegment) {
		h.noteDamaged(g)
	}
	if err != nil {
		h.log.Warn("a segment of jobs and returns has no index, the next start takes longer", "path", path, "error", err)
	}
	return nil
}

func readMark(r io.ReaderAt) (m mark, err error) {
	head := make([]byte, segmentHead)
	n, err := r.ReadAt(head, 0)
	if errors.Is(err, io.EOF) && n < len(head) {
		return m, errNothingInside
	}
	if err != nil && n < len(head) {
		return m, err
	}
	if string(head[:len(segmentMagic)]) != segmentMagic {
		return m, errNoSegment
	}
	return mark(head[len(segmentMagic):]), nil
}

// readIndex returns the index of a segment of so many bytes, or nil if it has none, and whether the archive has the
// returns of the segment.
func readIndex(r io.ReaderAt, size int64) (index []byte, archived bool) {
	trailer := make([]byte, indexTrailer)
	at := size - int64(indexTrailer)
	if at < int64(segmentHead) {
		return nil, false
	}
	_, err := r.ReadAt(trailer, at)
	magic := string(trailer[8:])
	if err != nil || magic != indexMagic && magic != archivedMagic {
		return nil, false
	}
	length := int64(binary.BigEndian.Uint32(trailer[4:]))
	if length > at-int64(segmentHead) {
		return nil, false
	}
	index = make([]byte, length)
	if _, err := r.ReadAt(index, at-length); err != nil {
		return nil, false
	}
	if crc32.Checksum(index, castagnoli) != binary.BigEndian.Uint32(trailer) {
		return nil, false
	}
	return index, magic == archivedMagic
}

// errDamagedSegment says that a segment has records that cannot be read. It gets no index, which would leave them out.
var errDamagedSegment = errors.New("the segment is damaged")

// writeIndex appends the index to a segment. With again set, a part of an index may be there: writeIndex replaces it.
// If records cannot be read, or are torn, it changes nothing and returns errDamagedSegment.
func writeIndex(path string, again, archived bool) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	b, err := io.ReadAll(file)
	if err != nil {
		return err
	}

	var index []byte
	var before *record
	end := int64(segmentHead)
	damaged, tail, err := scanSegment(b, func(r *record) error {
		end = int64(r.at) + int64(r.size())
		if checkRecord(r) == nil {
			index = appendEntry(index, r, before)
			before = r
		}
		return nil
	})
	if err != nil {
		return err
	}
	m, err := readMark(bytes.NewReader(b))
	if err != nil {
		return err
	}
	torn := tail > 0 && (!again || bytes.HasPrefix(b[end:], m[:]))
	if damaged > 0 || torn {
		return errDamagedSegment
	}

	be := binary.BigEndian
	sum := crc32.Checksum(index, castagnoli)
	length := len(index)
	index = be.AppendUint32(index, sum)
	index = be.AppendUint32(index, uint32(length))
	if archived {
		index = append(index, archivedMagic...)
	} else {
		index = append(index, indexMagic...)
	}
	if err := file.Truncate(end); err != nil {
		return err
	}
	if _, err := file.WriteAt(index, end); err != nil {
		_ = file.Truncate(end)
		return err
	}
	return nil
}

// homeReader reads records of a home. The caller must call close.
type homeReader struct {
	home    *home
	segment *homeSegment
	file    *os.File
}

func (r *homeReader) close() {
	if r.file != nil {
		_ = r.file.Close()
		r.file = nil
	}
}

// open opens the file of a segment, unless it is open.
func (r *homeReader) open(g *homeSegment) error {
	if r.file != nil && r.segment == g {
		return nil
	}
	r.close()

	file, err := r.home.openFile(g)
	if err != nil {
		return err
	}
	r.segment = g
	r.file = file
	return nil
}

// openFile opens the file of a segment. The journal may be renaming it: the file has the new name before the home
// knows it.
func (h *home) openFile(g *homeSegment) (*os.File, error) {
	path := h.pathOf(g)
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		file, err = os.Open(keptPath(path))
	}
	if now := h.pathOf(g); errors.Is(err, fs.ErrNotExist) && now != path {
		file, err = os.Open(now)
	}
	return file, err
}

// keptPath returns the path that a segment has when it is kept.
func keptPath(path string) string {
	return strings.TrimSuffix(strings.TrimSuffix(path, segmentSuffix), keptSuffix) + keptSuffix
}

// read reads a record. With headOnly set it reads no content, and does not check it.
func (r *homeReader) read(p place, headOnly bool) (*record, error) {
	if err := r.open(p.segment); err != nil {
		return nil, err
	}
	const usual = 4096
	const longestHead = recordHead + payloadHead + maxJIDLength + maxIDLength
	b := make([]byte, usual)
	if headOnly {
		b = b[:longestHead]
	}
	n, err := r.file.ReadAt(b, int64(p.at))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	b = b[:n]
	if n < recordHead+payloadHead || mark(b[:markSize]) != p.segment.mark {
		return nil, errDamagedRecord
	}
	if headOnly {
		return parseHead(b)
	}

	length := int(binary.BigEndian.Uint32(b[markSize:])) + recordHead
	if length > maxKept {
		return nil, errDamagedRecord
	}
	if length > n {
		b = make([]byte, length)
		if _, err := r.file.ReadAt(b, int64(p.at)); err != nil {
			return nil, err
		}
	}
	out, _, ok := parseRecord(b, p.segment.mark)
	if !ok {
		return nil, errDamagedRecord
	}
	return out, nil
}

const (
	maxJIDLength = 64
	maxIDLength  = 255
)

var errDamagedRecord = errors.New("the record is damaged")

// parseHead returns the kind, the time and the ids of a record.
func parseHead(b []byte) (*record, error) {
	p := b[recordHead:]
	be := binary.BigEndian
	jid := int(be.Uint16(p[9:]))
	id := int(be.Uint16(p[11:]))
	if jid+id > len(p)-payloadHead {
		return nil, errDamagedRecord
	}
	p = p[:payloadHead+jid+id]
	return &record{
		kind: kind(p[0]),
		time: int64(be.Uint64(p[1:])),
		jid:  string(p[payloadHead : payloadHead+jid]),
		id:   string(p[payloadHead+jid:]),
	}, nil
}

// part says which records of a job are read.
type part struct {
	wanted   func(what uint64) bool // gets [ref.what]
	headOnly bool                   // records lack their content
}

var (
	allRecords    = part{wanted: func(uint64) bool { return true }}
	loadRecords   = part{wanted: func(what uint64) bool { return what == uint64(kindLoad) || what == uint64(kindMinions) }}
	loadHeads     = part{wanted: func(what uint64) bool { return what == uint64(kindLoad) }, headOnly: true}
	prepHeads     = part{wanted: func(what uint64) bool { return what == uint64(kindPrep) }, headOnly: true}
	returnRecords = part{wanted: func(what uint64) bool { return what >= isReturn }}
	returnHeads   = part{wanted: returnRecords.wanted, headOnly: true}
	endRecords    = part{wanted: func(what uint64) bool { return what == uint64(kindEndtime) }}
	endHeads      = part{wanted: endRecords.wanted, headOnly: true}
)

// each calls visit for records of a job, oldest first. It logs a segment that cannot be read, once,
// and returns an error for it after the other records.
func (h *home) each(jid string, p part, visit func(*record)) error {
	r := homeReader{home: h}
	defer r.close()
	oldest := h.oldest()
	var failed error
	for _, at := range h.find(jid, p) {
		rec, err := r.read(at, p.headOnly)
		if errors.Is(err, fs.ErrNotExist) && h.isRemoved(at.segment) {
			continue
		}
		if err != nil {
			failed = fmt.Errorf("read %s: %w", h.pathOf(at.segment), err)
			h.noteUnreadable(at.segment, failed)
			continue
		}
		if rec.jid == jid && rec.time >= oldest {
			visit(rec)
		}
	}
	return failed
}
