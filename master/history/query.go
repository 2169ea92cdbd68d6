package history

import (
	"container/heap"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strings"
	"time"
)

// Bounds of a query.
const (
	maxLimit     = 10_000
	defaultLimit = 100
	// pageBytes is how many bytes of returns end a page.
	pageBytes = 32 << 20
	// maxReaders is how many queries run at once; others wait until their contexts end.
	maxReaders = 8
)

// Cursor is a place in the list of runs. Its text has no blanks and fits into a URL.
type Cursor string

// ErrCursor means that a text is not a cursor that Query returned.
var ErrCursor = errors.New("history: bad cursor")

// Page is a part of a list of runs.
type Page struct {
	Runs []Run
	Next Cursor // where the next page begins; "" at the end
}

// position is the place of a run in the list of all runs: the latest first; those of one moment by
// job id, the highest first, then by minion. It is the same on all nodes.
type position struct {
	time        int64
	jid, minion string
}

func (p position) before(q position) bool {
	if p.time != q.time {
		return p.time > q.time
	}
	if p.jid != q.jid {
		return p.jid > q.jid
	}
	return p.minion < q.minion
}

func (p position) cursor() Cursor {
	b := binary.BigEndian.AppendUint64(nil, uint64(p.time))
	return Cursor(base64.RawURLEncoding.EncodeToString(append(b, p.jid+"\x00"+p.minion...)))
}

// After returns the cursor of the page that begins after a run.
func After(run *Run) Cursor {
	return position{nanoseconds(run.Time), run.JID, run.Minion}.cursor()
}

// Place returns the time, the job and the minion of the run after which the page of a cursor begins.
func (c Cursor) Place() (at time.Time, jid, minion string, err error) {
	p, err := parseCursor(c)
	return time.Unix(0, p.time).UTC(), p.jid, p.minion, err
}

// Compare orders runs as Query lists them: it is negative if a comes before b, and 0 for the same run.
func Compare(a, b *Run) int {
	p := position{nanoseconds(a.Time), a.JID, a.Minion}
	q := position{nanoseconds(b.Time), b.JID, b.Minion}
	switch {
	case p == q:
		return 0
	case p.before(q):
		return -1
	}
	return 1
}

func parseCursor(c Cursor) (p position, err error) {
	const maxCursor = (8 + maxJID + 1 + maxText) * 4 / 3
	if len(c) > maxCursor+4 {
		return p, ErrCursor
	}
	b, err := base64.RawURLEncoding.DecodeString(string(c))
	if err != nil || len(b) < 8 {
		return p, ErrCursor
	}
	jid, minion, ok := strings.Cut(string(b[8:]), "\x00")
	if !ok {
		return p, ErrCursor
	}
	return position{int64(binary.BigEndian.Uint64(b)), jid, minion}, nil
}

// Query returns the runs that the filter selects, the latest first: at most limit of them (0: 100, at
// most 10,000), beginning after the page whose Next is from. A page with returns may be shorter: it
// ends with the run whose return completes 32 MiB. Runs that are appended or removed between two
// pages make no other run appear twice or be left out.
func (s *Store) Query(ctx context.Context, filter Filter, limit int, from Cursor) (Page, error) {
	if limit <= 0 {
		limit = defaultLimit
	}

	q := &query{
		store:    s,
		filter:   &filter,
		sets:     filter.terms(),
		limit:    min(limit, maxLimit),
		earliest: math.MinInt64,
		latest:   math.MaxInt64,
	}
	if !filter.From.IsZero() {
		q.earliest = nanoseconds(filter.From)
	}
	if !filter.To.IsZero() {
		q.latest = nanoseconds(filter.To) - 1
	}
	if from != "" {
		after, err := parseCursor(from)
		if err != nil {
			return Page{}, err
		}
		q.after = &after
		q.latest = min(q.latest, after.time)
	}

	if err := s.readers.Acquire(ctx, 1); err != nil {
		return Page{}, fmt.Errorf("history: too many queries: %w", err)
	}
	defer s.readers.Release(1)
	defer q.file.close()

	if !q.begin() {
		return Page{}, ErrClosed
	}
	return q.page(ctx)
}

// nanoseconds returns a time as Unix nanoseconds. If a time is too far away for that, it returns
// the nearest number.
func nanoseconds(t time.Time) int64 {
	const most = math.MaxInt64/1_000_000_000 - 1 // seconds
	switch seconds := t.Unix(); {
	case seconds < -most:
		return math.MinInt64 + 1
	case seconds > most:
		return math.MaxInt64
	}
	return t.UnixNano()
}

// query is one call of Query. It opens segments and chunks in the order of their latest runs, so that
// it reads no more than a page needs.
type query struct {
	store            *Store
	filter           *Filter
	sets             [][]string // terms of the filter
	limit            int
	after            *position // the run before the page; may be nil: the page is the first
	earliest, latest int64     // times of runs that can be selected

	file   openFile
	pieces pieces // parts of the history that were not read yet
	found  found  // rows that were read
	// dropped means that found lacks rows that are behind the page.
	dropped bool
}

// piece is a part of the history: a segment, or a chunk of one.
type piece struct {
	to      int64 // it has no later run
	segment *segment
	chunk   *chunkPlace // nil: the whole segment
}

// foundRow is a row that the filter selects.
type foundRow struct {
	row
	position position
	segment  *segment // nil: the row is in memory
	offset   int64    // of its chunk in the segment
	number   int      // of the row in its chunk
	body     []byte   // of its chunk, if that is in memory
}

// isLater reports whether a row was stored after another one.
func (r *foundRow) isLater(other *foundRow) bool {
	switch {
	case r.segment == nil || other.segment == nil:
		return r.segment == nil && (other.segment != nil || r.number > other.number)
	case r.segment.number != other.segment.number:
		return r.segment.number > other.segment.number
	case r.offset != other.offset:
		return r.offset > other.offset
	}
	return r.number > other.number
}

// begin takes a snapshot of what Append may change: the list of segments, the chunks of the newest
// one, and the runs that are in no segment yet. It returns false if the history is closed.
func (q *query) begin() bool {
	s := q.store
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return false
	}

	jid := q.filter.JID
	for _, g := range s.sealed {
		if jid == "" || g.minJID <= jid && jid <= g.maxJID {
			q.addPiece(g.from, piece{to: g.to, segment: g})
		}
	}

	if g := s.newest; g != nil {
		frozen := &segment{number: g.number, path: g.path, mark: g.mark}
		for _, number := range g.memory.candidates(q.sets, len(g.chunks)) {
			c := g.chunks[number]
			q.addPiece(c.from, piece{to: c.to, segment: frozen, chunk: &c})
		}
	}

	_ = q.addRows(s.chunk.rows, foundRow{body: s.chunk.body}) // rows in memory are never damaged
	return true
}

// addPiece adds a part with runs between the times from and p.to, if the page can have some of them.
func (q *query) addPiece(from int64, p piece) {
	if from <= q.latest && p.to >= q.earliest {
		heap.Push(&q.pieces, p)
	}
}

// addRows adds the rows that the filter selects. where has the place of their chunk. addRows
// returns errDamaged if it cannot read the rows to their end.
func (q *query) addRows(rows []byte, where foundRow) error {
	r := readRows(rows)
	for number := 0; r.next(); number++ {
		if r.row.time < q.earliest || r.row.time > q.latest || !q.filter.matches(&r.row) {
			continue
		}
		found := where
		found.row = r.row
		found.number = number
		found.position = position{r.row.time, string(r.row.jid), string(r.row.minion)}
		if q.after == nil || q.after.before(found.position) {
			q.addFound(found)
		}
	}
	if r.failed {
		return errDamaged
	}
	return nil
}

// addFound adds a row. It drops rows that are behind the page when there are many.
func (q *query) addFound(r foundRow) {
	heap.Push(&q.found, r)
	if len(q.found) > 2*q.limit+1000 {
		var first found
		for range q.limit + 1 {
			first = append(first, heap.Pop(&q.found).(foundRow))
		}
		q.found = first
		q.dropped = true
	}
}

// page reads until the page is full or nothing is left.
func (q *query) page(ctx context.Context) (Page, error) {
	var page Page
	var bytes int
	var last position
	for {
		if err := ctx.Err(); err != nil {
			return Page{}, fmt.Errorf("history: %w", err)
		}

		if len(q.pieces) > 0 && (len(q.found) == 0 || q.pieces[0].to >= q.found[0].time) {
			if err := q.open(heap.Pop(&q.pieces).(piece)); err != nil {
				return Page{}, fmt.Errorf("history: %w", err)
			}
			continue
		}

		if len(q.found) > 0 && q.found[0].position == last { // the same run, amended since, or in a restored file
			heap.Pop(&q.found)
			continue
		}
		if len(q.found) == 0 && !q.dropped {
			return page, nil
		}
		if len(q.found) == 0 || len(page.Runs) == q.limit || bytes >= pageBytes {
			page.Next = last.cursor()
			return page, nil
		}

		r := heap.Pop(&q.found).(foundRow)
		last = r.position
		run, err := q.run(&r)
		if err != nil {
			return Page{}, fmt.Errorf("history: %w", err)
		}
		if run != nil {
			page.Runs = append(page.Runs, *run)
			bytes += len(run.Return)
		}
	}
}

// open replaces a segment by its chunks, and a chunk by its rows. It leaves out what is damaged or
// was removed meanwhile.
func (q *query) open(p piece) error {
	s := q.store
	if p.chunk != nil {
		rows, err := s.chunkRows(&q.file, p.segment, p.chunk.offset)
		if err == nil {
			err = q.addRows(rows, foundRow{segment: p.segment, offset: p.chunk.offset})
		}
		return s.leaveOut(err, p.segment, p.chunk.offset)
	}

	places, err := s.candidates(&q.file, p.segment, q.sets)
	for i := range places {
		q.addPiece(places[i].from, piece{to: places[i].to, segment: p.segment, chunk: &places[i]})
	}
	return s.leaveOut(err, p.segment, 0)
}

// leaveOut returns nil if the error means that a query leaves out this part of the segment, and
// counts damage. It returns all other errors.
func (s *Store) leaveOut(err error, g *segment, offset int64) error {
	if errors.Is(err, errDamaged) || isUnreadable(err) {
		s.countDamage(g, offset, err)
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil // retention has removed the segment
	}
	return err
}

// run returns a row as a run. It returns nil if the row is damaged.
func (q *query) run(r *foundRow) (*Run, error) {
	run, err := r.row.run()
	if err != nil {
		return nil, q.store.leaveOut(err, r.segment, r.offset)
	}
	if !q.filter.Returns || r.bodyBytes == 0 {
		return &run, nil
	}

	body := r.body
	if r.segment != nil {
		body, err = q.store.chunkBody(&q.file, r.segment, r.offset)
	}
	if err == nil && r.bodyAt+r.bodyBytes > len(body) {
		err = errDamaged
	}
	if err == nil {
		run.Return = append([]byte(nil), body[r.bodyAt:r.bodyAt+r.bodyBytes]...)
		return &run, nil
	}
	return &run, q.store.leaveOut(err, r.segment, r.offset)
}

// pieces is a heap, the piece with the latest run first.
type pieces []piece

func (h pieces) Len() int           { return len(h) }
func (h pieces) Less(i, j int) bool { return h[i].to > h[j].to }
func (h pieces) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *pieces) Push(x any)        { *h = append(*h, x.(piece)) }
func (h *pieces) Pop() any          { return pop((*[]piece)(h)) }

// found is a heap of rows in the order of the list. Of the same run the row comes first that was stored last.
type found []foundRow

func (h found) Len() int      { return len(h) }
func (h found) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *found) Push(x any)   { *h = append(*h, x.(foundRow)) }
func (h *found) Pop() any     { return pop((*[]foundRow)(h)) }
func (h found) Less(i, j int) bool {
	if h[i].position == h[j].position {
		return h[i].isLater(&h[j])
	}
	return h[i].position.before(h[j].position)
}

func pop[T any](list *[]T) T {
	var zero T
	last := len(*list) - 1
	x := (*list)[last]
	(*list)[last] = zero
	*list = (*list)[:last]
	return x
}
