package childlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"
)

// stamp is the format of the time at the beginning of each line of the file, in UTC. These times
// sort in order when they are compared as text.
const stamp = "2006-01-02T15:04:05.000Z"

// maxPage is the largest size of one Page, in bytes.
const maxPage = 1 << 20

// Page is a part of a child's output.
type Page struct {
	Lines []string // each line begins with its time, in UTC
	// Cursor says where the next page begins.
	Cursor string
	More   bool // whether the next page has lines already
}

// Query selects where a page begins: at Cursor if that is set, otherwise at a time, otherwise a
// number of lines before the end.
type Query struct {
	Cursor string
	Since  time.Time
	Last   int
}

// place is a position in the log: a file's inode number, and an offset in that file. The inode
// number stays the same when the file becomes the older one.
type place struct {
	inode  uint64
	offset int64
}

func (p place) String() string { return fmt.Sprintf("%d:%d", p.inode, p.offset) }

// Page returns the page that q requests. c may be nil: the service writes no log.
func (c *Log) Page(q Query) (Page, error) {
	switch {
	case c == nil:
		return Page{Lines: []string{}}, nil
	case q.Cursor != "":
		return c.After(q.Cursor)
	case q.Since.IsZero():
		return c.Last(q.Last)
	}

	cursor, err := c.Since(q.Since)
	if err != nil {
		return Page{}, err
	}
	return c.After(cursor)
}

// After returns the lines after the page with this cursor. If that part of the log was removed,
// After continues with the oldest lines.
func (c *Log) After(cursor string) (Page, error) {
	var from place
	if _, err := fmt.Sscanf(cursor, "%d:%d", &from.inode, &from.offset); err != nil || from.offset < 0 {
		return Page{}, fmt.Errorf("log of %s: %.40q is not a cursor", c.name, cursor)
	}

	var page Page
	size := 0
	end, err := c.scanLines(from, func(line string) bool {
		if size += len(line); size > maxPage {
			page.More = true
			return false
		}
		page.Lines = append(page.Lines, line)
		return true
	})

	page.Cursor = end.String()
	return page, err
}

// Since returns the cursor of the first line written at that time or later.
func (c *Log) Since(t time.Time) (string, error) {
	first := t.UTC().Format(stamp)
	end, err := c.scanLines(place{}, func(line string) bool { return line < first })
	return end.String(), err
}

// Last returns the last n lines.
func (c *Log) Last(n int) (Page, error) {
	var ring []string
	end, err := c.scanLines(place{}, func(line string) bool {
		if ring = append(ring, line); len(ring) > 2*n+100 {
			ring = append(ring[:0], ring[len(ring)-n:]...)
		}
		return true
	})
	return Page{Lines: ring[max(0, len(ring)-n):], Cursor: end.String()}, err
}

// scanLines passes complete lines to take, beginning at start, until the end of the log or until
// take returns false. It returns the place after the last line for which take returned true.
func (c *Log) scanLines(start place, take func(line string) bool) (place, error) {
	// Open the newest file first: a file that becomes the older one meanwhile is then read twice
	// rather than missed.
	var files []*os.File
	var inodes []uint64
	for _, path := range []string{c.path, c.path + ".1"} {
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return start, fmt.Errorf("log of %s: %w", c.name, err)
		}
		defer f.Close()

		fi, err := f.Stat()
		if err != nil {
			return start, fmt.Errorf("log of %s: %w", c.name, err)
		}

		st, ok := fi.Sys().(*syscall.Stat_t)
		if !ok || len(inodes) > 0 && inodes[0] == st.Ino {
			continue
		}

		files, inodes = append([]*os.File{f}, files...), append([]uint64{st.Ino}, inodes...)
	}

	at := start
	skip := 0
	for i, inode := range inodes {
		if inode == start.inode {
			skip = i
		}
	}

	for i, f := range files[skip:] {
		if inodes[skip+i] != at.inode {
			at = place{inode: inodes[skip+i]}
		}

		if fi, err := f.Stat(); err != nil || fi.Size() < at.offset {
			at.offset = 0 // another file now has this inode number
		}

		refused, err := scanFile(f, &at.offset, take)
		if err != nil {
			return at, fmt.Errorf("log of %s: %w", c.name, err)
		}
		if refused {
			break
		}
	}

	return at, nil
}

// scanFile reads complete lines from offset on and moves offset past each line that take accepts.
// refused reports whether take refused one.
func scanFile(f *os.File, offset *int64, take func(string) bool) (refused bool, err error) {
	if _, err := f.Seek(*offset, io.SeekStart); err != nil {
		return false, err
	}

	var rest []byte
	b := make([]byte, 64<<10)
	for {
		n, err := f.Read(b)
		rest = append(rest, b[:n]...)
		for {
			i := bytes.IndexByte(rest, '\n')
			if i < 0 {
				break
			}
			if !take(strings.ToValidUTF8(string(rest[:i]), "?")) {
				return true, nil
			}

			*offset += int64(i) + 1
			rest = rest[i+1:]
		}

		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
}
