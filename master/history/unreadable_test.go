package history

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"syscall"
	"testing"
	"time"

	"saltern/test/check"
)

// unreadableFile is a file of which all reads fail with EIO.
const unreadableFile = "/proc/self/mem"

// skipWithout skips a test where that file does not do so.
func skipWithout(t *testing.T) {
	t.Helper()
	file, err := os.Open(unreadableFile)
	if err == nil {
		defer file.Close()
		_, err = file.ReadAt(make([]byte, 10), 100)
	}
	if !isUnreadable(err) {
		t.Skipf("LOUD: %s: %v", unreadableFile, err)
	}
}

// TestSegmentThatTheDiskCannotRead: queries leave its runs out, and runs are appended nevertheless.
func TestSegmentThatTheDiskCannotRead(t *testing.T) {
	skipWithout(t)
	dir := t.TempDir()
	s := open(t, Config{Dir: dir, segmentRuns: 10, chunkRows: 1})
	for i := range 50 {
		check.Must(t, s.Append(plainRun(fmt.Sprint("m", i), begin.Add(time.Duration(i)*time.Second))))
	}
	check.Must(t, s.Close())

	s = open(t, Config{Dir: dir, segmentRuns: 10, chunkRows: 1})
	path := s.segmentPath(2)
	check.Must(t, os.Remove(path))
	check.Must(t, os.Symlink(unreadableFile, path))
	if got := all(t, s, Filter{Returns: true}, 7); len(got) != 40 {
		t.Errorf("%d runs, want 40", len(got))
	}
	check.Must(t, s.Append(plainRun("late", begin.Add(15*time.Second))))
	if got := all(t, s, Filter{Minion: "late"}, 7); len(got) != 1 {
		t.Error("the run that was appended is not found")
	}
	if s.Stats().Damaged == 0 {
		t.Error("the damage is not counted")
	}
}

// TestStartWithASegmentThatTheDiskCannotRead: the history is opened without it, and leaves its file.
func TestStartWithASegmentThatTheDiskCannotRead(t *testing.T) {
	for _, number := range []int{2, 5} { // a sealed one, and the last
		t.Run(fmt.Sprint(number), func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, Config{Dir: dir, segmentRuns: 10, chunkRows: 1})
			for i := range 50 {
				check.Must(t, s.Append(plainRun(fmt.Sprint("m", i), begin.Add(time.Duration(i)*time.Second))))
			}
			check.Must(t, s.Close())
			before, err := os.ReadFile(s.segmentPath(uint64(number)))
			check.Must(t, err)

			segments := 0
			s = open(t, Config{Dir: dir, segmentRuns: 10, chunkRows: 1, fault: func(op string) error {
				if op == "load" {
					segments++
				}
				if op == "load" && segments == number {
					return &os.PathError{Op: "read", Err: syscall.EIO}
				}
				return nil
			}})
			check.Must(t, s.Append(plainRun("new", begin.Add(time.Hour))))
			check.Must(t, s.Sync())
			if st := s.Stats(); len(all(t, s, Filter{}, 7)) != 41 || st.Damaged != 1 {
				t.Errorf("%+v", st)
			}
			after, err := os.ReadFile(s.segmentPath(uint64(number)))
			if err != nil || !bytes.Equal(before, after) {
				t.Errorf("the file was changed: %v", err)
			}
		})
	}
}

// badBlock is a file with a block that cannot be read.
type badBlock struct {
	io.ReaderAt
	from, to int64
}

func (b badBlock) ReadAt(p []byte, at int64) (int, error) {
	switch end := at + int64(len(p)); {
	case at >= b.to || end <= b.from:
		return b.ReaderAt.ReadAt(p, at)
	case at >= b.from:
		return 0, syscall.EIO
	}
	n, _ := b.ReaderAt.ReadAt(p[:b.from-at], at)
	return n, syscall.EIO
}

// TestBlockThatTheDiskCannotRead: a segment without a footer is read but for one block, wherever that is.
func TestBlockThatTheDiskCannotRead(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir, segmentRuns: 1000, chunkRows: 1})
	for i := range 100 {
		run := plainRun(fmt.Sprint("m", i), begin.Add(time.Duration(i)*time.Second))
		run.Return = noise(300)
		check.Must(t, s.Append(run))
	}
	check.Must(t, s.Sync())
	packed, err := os.ReadFile(s.segmentPath(1))
	check.Must(t, err)

	const block = 4096
	for from := int64(0); from < int64(len(packed)); from += block {
		g := &segment{number: 1, mark: s.newest.mark, bytes: int64(len(packed))}
		file := &watchedFile{file: badBlock{bytes.NewReader(packed), max(from, int64(segmentHead)), from + block}}
		check.Must(t, s.scan(g, file))
		if !g.unreadable || g.runs < 80 || g.runs > 99 {
			t.Errorf("block at %d of %d: %d runs, unreadable %v", from, len(packed), g.runs, g.unreadable)
		}
	}
}

// TestNumberOfAnotherFile: a segment gets the next number that no file has.
func TestNumberOfAnotherFile(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	for number := range uint64(3) {
		check.Must(t, os.WriteFile(s.segmentPath(number+1), nil, 0o600))
	}
	check.Must(t, s.Append(plainRun("m", begin)))
	check.Must(t, s.Sync())
	if s.newest.number != 4 {
		t.Errorf("segment %d", s.newest.number)
	}
}
