package audit

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"saltern/internal/durable"
)

// Verified is the outcome of [Verify] for one book.
type Verified struct {
	Folder string `json:"folder"`
	Book   string `json:"book"`
	Files  int    `json:"files"`
	// Records counts the records with a link, including those that begin a file.
	Records uint64 `json:"records"`
	// First and Last are the numbers of the oldest and the newest record.
	First uint64    `json:"first,omitempty"`
	Last  uint64    `json:"last,omitempty"`
	Since time.Time `json:"since,omitzero"`
	Till  time.Time `json:"till,omitzero"`
	// Unchained counts records of versions that wrote no chain.
	Unchained uint64 `json:"unchained,omitempty"`
	// Torn counts incomplete lines, which a cut-short write leaves.
	Torn uint64 `json:"torn,omitempty"`
	// Faults lists records that are missing or changed. Warnings lists suspicious facts that prove
	// nothing.
	Faults     []Fault `json:"faults,omitempty"`
	Warnings   []Fault `json:"warnings,omitempty"`
	MoreFaults int     `json:"moreFaults,omitempty"` // faults beyond maxFaults
	// Told is the newest recorded head that equals the chain's record of that number: up to it the
	// chain is verified. It may be nil: there is no such head.
	Told *Head `json:"told,omitempty"`
}

// Fault is something that is wrong in a book.
type Fault struct {
	File string `json:"file,omitempty"` // "": the fault concerns the whole book
	Line int    `json:"line,omitempty"`
	Text string `json:"text"`
}

// String describes the fault for an administrator.
func (f Fault) String() string {
	switch {
	case f.File == "":
		return f.Text
	case f.Line == 0:
		return f.File + ": " + f.Text
	}
	return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Text)
}

// Whole reports whether nothing is missing or changed.
func (v Verified) Whole() bool { return len(v.Faults) == 0 }

const (
	// maxFaults bounds the faults of one book.
	maxFaults = 50
	// verifyTries is how many times Verify opens the files of a book when another program renames
	// them meanwhile.
	verifyTries = 5
)

// Verify checks the chains of a folder. recorded holds the heads that other nodes have recorded, of
// this folder and of others. A missing folder is a fault only if recorded has a head of it.
// Programs may write to the folder during the call.
func Verify(ctx context.Context, folder Folder, recorded []Head) ([]Verified, error) {
	var out []Verified
	for _, b := range booksOf(folder.Dir) {
		var heads []Head
		for _, h := range recorded {
			if h.Folder == folder.Name && h.Book == b.name {
				heads = append(heads, h)
			}
		}

		v, err := b.verify(ctx, heads)
		if err != nil {
			return nil, fmt.Errorf("verify the audit records in %s: %w", folder.Dir, err)
		}

		v.Folder, v.Book = folder.Name, b.name
		out = append(out, v)
	}

	return out, nil
}

// openFile is an open file of a book. It stays readable if another program renames it.
type openFile struct {
	path string
	f    *os.File
}

func closeAll(files []openFile) {
	for _, o := range files {
		_ = o.f.Close()
	}
}

// openAll opens all files of a book in a consistent state, and returns them, the oldest first.
func (b book) openAll() ([]openFile, error) {
	for range verifyTries {
		files, err := b.fileNames()
		if err != nil {
			return nil, err
		}

		out, err := openFiles(files)
		if err != nil {
			return nil, err
		}

		now, err := b.fileNames()
		// the list has not changed, so no file was begun or renamed while they were opened
		if err == nil && slices.Equal(files, now) {
			return out, nil
		}

		closeAll(out)
		if err != nil {
			return nil, err
		}
	}

	return nil, errors.New("new files are begun all the time")
}

// openFiles opens files. It skips files that have been removed.
func openFiles(files []string) (out []openFile, err error) {
	for _, path := range files {
		f, _, err := durable.Open(path, durable.Refuse)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			closeAll(out)
			return nil, err
		}
		out = append(out, openFile{path, f})
	}
	return out, nil
}

// verify reads all files of a book.
func (b book) verify(ctx context.Context, recorded []Head) (Verified, error) {
	files, err := b.openAll()
	if err != nil {
		return Verified{}, err
	}
	defer closeAll(files)

	c := &checker{heads: map[uint64][]Head{}}
	for _, h := range recorded {
		c.heads[h.Seq] = append(c.heads[h.Seq], h)
	}

	for _, o := range files {
		c.file = filepath.Base(o.path)
		if err := c.scanFile(ctx, o.f); err != nil {
			return Verified{}, err
		}
		c.v.Files++
	}

	c.finish(recorded)
	return c.v, nil
}

// checker follows the chain of one book.
type checker struct {
	v     Verified
	at    link   // link of the newest record read
	kept  uint64 // number of the oldest kept record, from the newest file head so far
	file  string
	line  int
	heads map[uint64][]Head // recorded heads, by number
	anew  bool              // whether a fault already says that the chain was computed again
}

func (c *checker) addFault(line int, format string, args ...any) {
	if len(c.v.Faults) >= maxFaults {
		c.v.MoreFaults++
		return
	}
	c.v.Faults = append(c.v.Faults, Fault{c.file, line, fmt.Sprintf(format, args...)})
}

func (c *checker) addWarning(format string, args ...any) {
	if len(c.v.Warnings) < maxFaults {
		c.v.Warnings = append(c.v.Warnings, Fault{c.file, c.line, fmt.Sprintf(format, args...)})
	}
}

// scanFile reads the lines of a file, up to twice the largest size of a file.
func (c *checker) scanFile(ctx context.Context, f *os.File) error {
	lines := bufio.NewReaderSize(&bounded{f, 2 * largestPart}, 64<<10)
	for c.line = 1; ; c.line++ {
		if c.line%1000 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}

		line, err := lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = lines.ReadSlice('\n')
			}
			line = []byte("too long")
		}

		if len(bytes.TrimSpace(line)) > 0 {
			c.followLine(line)
		}

		if err != nil { // the end of the file, or the bound on reading
			return nil
		}
	}
}

// followLine checks the next line of the chain.
func (c *checker) followLine(line []byte) {
	r := decode(line)
	hashed, l, chained := readLink(line)
	switch {
	case r.Action == "":
		c.v.Torn++
		c.addWarning("this line is no record: a write that was cut short, unless somebody put it there")
		return
	case !chained && c.v.Records == 0:
		c.v.Unchained++
		return
	case !chained:
		c.v.Unchained++
		c.addWarning("a record without a place in the chain, which proves nothing: " +
			"of a program of a version before, unless somebody put it there")
		return
	}

	if r.Action == fileAction {
		c.kept = max(c.kept, r.First)
	}

	c.follow(hashed, l, r)
	c.at = l
	c.v.Records++
	c.v.Last, c.v.Till = l.seq, r.Time

	if c.v.Records == 1 {
		c.v.First, c.v.Since = l.seq, r.Time
	}

	for _, h := range c.heads[l.seq] {
		c.compare(h)
	}
}

// follow checks whether a record continues the chain, and adds a fault if not.
func (c *checker) follow(hashed []byte, l link, r Record) {
	before := c.at.hash()
	if c.v.Records == 0 && l.seq > 1 { // older records were removed; the file's head states the position in the chain
		before = r.Prev
	}

	next := c.at.seq + 1
	if c.v.Records == 0 {
		next = l.seq
	}

	switch {
	case l.seq > next:
		c.addFault(c.line, "%s missing before this line", numbers(next, l.seq-1))
	case l.seq < next:
		c.addFault(c.line, "record %d stands after record %d: it was put in, or the chain was begun anew here",
			l.seq, c.at.seq)
	case chainHash(before, hashed) == l.chain:
	case r.Action == fileAction && r.Prev != before && chainHash(r.Prev, hashed) == l.chain:
		c.addFault(c.line, "the end of the file before was changed: this file continues another record %d", l.seq-1)
	case c.v.Records == 0:
		c.addFault(c.line, "record %d was changed, or its file does not begin with it", l.seq)
	default:
		c.addFault(c.line, "record %d was changed, or the one before it", l.seq)
	}
}

// numbers returns a range of records as the subject of "missing".
func numbers(from, to uint64) string {
	if from == to {
		return fmt.Sprintf("record %d is", from)
	}
	return fmt.Sprintf("records %d to %d are", from, to)
}

// compare compares the newest record read with a recorded head of that number, and adds a fault if
// they differ.
func (c *checker) compare(h Head) {
	if h.Chain != c.at.chain {
		if !c.anew { // report the first difference only: all later heads differ as well
			c.addFault(c.line, "record %d is not the one that %s was told of at %s: the chain was made anew",
				h.Seq, h.By, formatTime(h.Time))
		}
		c.anew = true
		return
	}
	if c.v.Told == nil || h.Seq > c.v.Told.Seq {
		c.v.Told = &h
	}
}

func formatTime(t time.Time) string {
	if t.IsZero() {
		return "some time"
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

// finish reports records missing at the beginning or at the end of the chain.
func (c *checker) finish(recorded []Head) {
	c.file, c.line = "", 0
	if c.v.First > c.kept && c.kept > 0 {
		c.addFault(0, "%s missing at the beginning: they did not go by age or for want of room",
			numbers(c.kept, c.v.First-1))
	}

	recorded = slices.Clone(recorded)
	slices.SortFunc(recorded, func(a, b Head) int { return b.Time.Compare(a.Time) })
	for _, h := range recorded {
		if h.Seq > c.v.Last {
			c.addFault(0, "%s missing at the end: %s was told of record %d at %s", numbers(c.v.Last+1, h.Seq),
				h.By, h.Seq, formatTime(h.Time))
			return // older heads could show no other fault
		}
	}
}
