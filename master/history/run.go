package history

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"saltern/master/history/summary"
)

// Run is one return of a minion.
type Run struct {
	Minion, JID, User, Function string
	Time                        time.Time // when a master took the return
	Summary                     summary.Summary
	// Return is the content of return.p (package jobs). It may be empty: the run has none, Query was
	// not asked for it, or it is lost.
	Return []byte
	// ReturnBytes is the size of Return when the run was appended.
	ReturnBytes int
}

// Filter selects runs. Empty fields select all.
type Filter struct {
	Minion, JID, User, Function string
	State                       string // id of a state that failed or changed something
	Results                     []summary.Result
	From, To                    time.Time // From is included, To is not
	// Returns means that Query reads the content of the returns as well.
	Returns bool
}

// Bounds of the texts of a run, in bytes. Longer ids are refused, other texts are cut.
const (
	maxJID  = 64
	maxText = 255
)

// ErrRun means that a run cannot be stored because of its ids.
var ErrRun = errors.New("history: bad run")

func checkRun(run *Run) error {
	if run.JID == "" || len(run.JID) > maxJID || strings.Contains(run.JID, "\x00") {
		return fmt.Errorf("%w: job id %.80q", ErrRun, run.JID)
	}
	if run.Minion == "" || len(run.Minion) > maxText || strings.Contains(run.Minion, "\x00") {
		return fmt.Errorf("%w: minion %.80q", ErrRun, run.Minion)
	}
	return nil
}

// row is a run as the rows of a chunk have it. Its texts share the memory of the rows.
type row struct {
	time                        int64 // Unix nanoseconds
	jid, minion, user, function []byte
	summary                     []byte
	returnBytes                 int // size of the return when it was appended
	bodyAt, bodyBytes           int // its place in the body of the chunk; bodyBytes 0: it is not there
}

// appendRow appends a row to the rows of a chunk. before is the time of the row before it.
func appendRow(dst []byte, r *row, before int64) []byte {
	dst = binary.AppendVarint(dst, r.time-before)
	for _, text := range [][]byte{r.jid, r.minion, r.user, r.function} {
		dst = binary.AppendUvarint(dst, uint64(len(text)))
		dst = append(dst, text...)
	}

	dst = binary.AppendUvarint(dst, uint64(len(r.summary)))
	dst = append(dst, r.summary...)
	dst = binary.AppendUvarint(dst, uint64(r.returnBytes))
	return binary.AppendUvarint(dst, uint64(r.bodyBytes))
}

// rowsReader reads the rows of a chunk. After a fault next returns false, and failed is set.
type rowsReader struct {
	reader
	row row
}

func readRows(rows []byte) *rowsReader { return &rowsReader{reader: reader{rest: rows}} }

// next reads the next row into r.row.
func (r *rowsReader) next() bool {
	if len(r.rest) == 0 {
		return false
	}

	w := &r.row
	w.time += r.varint()
	w.jid = r.bytes(maxJID)
	w.minion = r.bytes(maxText)
	w.user = r.bytes(maxText)
	w.function = r.bytes(maxText)
	w.summary = r.bytes(maxRows)
	w.returnBytes = r.size(1 << 40)
	w.bodyAt += w.bodyBytes
	w.bodyBytes = r.size(MaxReturn)
	return !r.failed
}

// run returns the row as a run, without its return.
func (w *row) run() (Run, error) {
	s, err := summary.Parse(w.summary)
	if err != nil {
		return Run{}, fmt.Errorf("%w: %w", errDamaged, err)
	}
	return Run{
		Minion:      string(w.minion),
		JID:         string(w.jid),
		User:        string(w.user),
		Function:    string(w.function),
		Time:        time.Unix(0, w.time).UTC(),
		Summary:     s,
		ReturnBytes: w.returnBytes,
	}, nil
}

// matches reports whether the filter selects the row, apart from its time.
func (f *Filter) matches(w *row) bool {
	differs := func(want string, text []byte) bool { return want != "" && want != string(text) }
	if differs(f.Minion, w.minion) || differs(f.JID, w.jid) || differs(f.User, w.user) ||
		differs(f.Function, w.function) && !hasFunction(w.function, f.Function) {
		return false
	}
	if f.State == "" && len(f.Results) == 0 {
		return true
	}

	s, err := summary.Parse(w.summary)
	if err != nil {
		return true // the reader of the run counts the damage
	}
	if len(f.Results) > 0 && !slices.Contains(f.Results, s.Result) {
		return false
	}
	return f.State == "" || slices.Contains(statesOf(&s), f.State)
}

// hasFunction reports whether one of several functions is the wanted one.
func hasFunction(functions []byte, wanted string) bool {
	return bytes.IndexByte(functions, ',') >= 0 &&
		summary.AnyFunction(string(functions), func(one string) bool { return one == wanted })
}

// statesOf returns the ids of the states by which a run is found.
func statesOf(s *summary.Summary) []string {
	var ids []string
	for _, list := range [][]summary.State{s.FailedStates, s.ChangedStates} {
		for i := range list {
			ids = append(ids, list[i].ID)
		}
	}
	return ids
}

// reader reads numbers and texts. After a fault it returns zero values, and failed is set.
type reader struct {
	rest   []byte
	failed bool
}

func (r *reader) fail() {
	r.failed = true
	r.rest = nil
}

func (r *reader) uvarint() uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 {
		r.fail()
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *reader) varint() int64 {
	n, size := binary.Varint(r.rest)
	if size <= 0 {
		r.fail()
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

// size reads a number, which may be most at most.
func (r *reader) size(most int64) int {
	n := r.uvarint()
	if n > uint64(most) {
		r.fail()
		return 0
	}
	return int(n)
}

// bytes reads a text, which may have most bytes at most. It shares the memory of the reader.
func (r *reader) bytes(most int64) []byte {
	n := r.size(most)
	if n > len(r.rest) {
		r.fail()
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}
