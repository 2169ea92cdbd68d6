package storage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"saltern/internal/durable"
	"saltern/internal/versioned"

	"golang.org/x/sys/unix"
)

// leaseChild serves questions for the lease: args are the mount point and this
// node's name.
func leaseChild(args []string, in io.Reader, out io.Writer) int {
	if len(args) != 2 {
		return 2
	}

	root := mountRoot{path: args[0]}
	h := leaseHolder{path: filepath.Join(args[0], leaseFile), self: args[1], now: time.Now, lock: flock}
	signal.Ignore(syscall.SIGPIPE) // a parent that was killed while it is answered
	defer h.end()

	return serve(in, out, func(line []byte) (any, error) {
		var q leaseQuestion
		if err := json.Unmarshal(line, &q); err != nil {
			return nil, err
		}

		if err := root.check(); err != nil {
			h.drop()
			return nil, err
		}

		return h.step(q)
	})
}

// leaseHolder takes part in the lease, one step for each question.
type leaseHolder struct {
	path, self string
	now        func() time.Time
	lock       func(*os.File) (bool, error)

	term  int       // of the file; see file
	found bool      // the newest term, at the start
	kept  *os.File  // held: the lock is ours
	last  time.Time // begin of the newest beat that was written
	beat  leaseBeat // ours, or the newest that was read
	since time.Time // when that was first read
	reads int       // how often it was read since
	tried leaseBeat // one that said free, and somebody else was quicker
	no    int       // how often the lock was refused beside the same beat
}

// file is that of a term: the first has no number.
func (h *leaseHolder) file(term int) string {
	if term == 0 {
		return h.path
	}
	return h.path + "." + strconv.Itoa(term)
}

// newest goes on to the newest term, and reports whether it is another one.
func (h *leaseHolder) newest() (moved bool, err error) {
	if !h.found {
		names, err := filepath.Glob(h.path + ".*")
		if err != nil {
			return false, err
		}

		for _, n := range names {
			if term, err := strconv.Atoi(strings.TrimPrefix(n, h.path+".")); err == nil {
				h.term = max(h.term, term)
			}
		}

		h.found = true
	}

	for {
		if _, err := os.Lstat(h.file(h.term + 1)); errors.Is(err, fs.ErrNotExist) {
			return moved, nil
		} else if err != nil {
			return moved, fmt.Errorf("look for a later term of the lease: %w", err)
		}
		h.term++
		moved = true
	}
}

// leaseBeat is the content of the file.
type leaseBeat struct {
	Holder string `json:"holder"`
	Beat   uint64 `json:"beat"`
	Files  uint64 `json:"files,omitempty"` // mark of the newest change of files
	Free   bool   `json:"free,omitempty"`  // its writer has given it back
}

func (h *leaseHolder) drop() {
	if h.kept != nil {
		h.kept.Close() // gives the lock back
	}
	h.kept = nil
}

// end gives the lease back and says so. Written after the lock is gone, so that
// who reads it gets the lock; should another have it by then, its next beat
// takes the word away again.
func (h *leaseHolder) end() {
	ours := h.kept != nil && h.now().Sub(h.last) <= leaseFor
	h.drop()
	if !ours {
		return
	}
	f, err := os.OpenFile(h.file(h.term), os.O_WRONLY, 0)
	if err != nil {
		return // the others take it after a silence
	}
	defer f.Close()
	_ = writeBeat(f, leaseBeat{Holder: h.self, Beat: h.beat.Beat + 1, Files: h.beat.Files, Free: true}) // as above
}

func (h *leaseHolder) step(q leaseQuestion) (leaseReply, error) {
	begin := h.now()
	if h.kept != nil && begin.Sub(h.last) > leaseFor {
		h.drop()
		h.reads = 0
	}

	moved, err := h.newest()
	if moved { // somebody has taken over
		h.drop()
		h.reads, h.no = 0, 0
	}

	if err != nil {
		return leaseReply{}, err
	}
	if h.kept != nil {
		return h.write(begin, q)
	}

	b, err := readBeat(h.file(h.term))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return leaseReply{}, fmt.Errorf("read the lease: %w", err)
	}

	if err == nil {
		if b != h.beat {
			h.no = 0
		}

		if b != h.beat || h.reads == 0 {
			h.beat = b
			h.since = begin
			h.reads = 0
		}

		h.reads++
		free := b.Free && b != h.tried
		silent := h.reads >= leaseReads && begin.Sub(h.since) >= leaseSilence
		if !free && !silent {
			return leaseReply{Holder: b.Holder, Files: b.Files, Fresh: h.reads == 1}, nil
		}

		if b.Free {
			h.tried = b
		}
	}

	return h.take(begin, q)
}

// take asks for the lock, and goes on to the next term when whoever has it is frozen.
func (h *leaseHolder) take(begin time.Time, q leaseQuestion) (leaseReply, error) {
	f, err := os.OpenFile(h.file(h.term), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return leaseReply{}, fmt.Errorf("open the lease: %w", err)
	}

	ok, err := h.lock(f)
	if err == nil && ok {
		h.kept, h.no = f, 0
		return h.write(begin, q)
	}

	f.Close()
	h.reads = 0 // wait as long again
	if err != nil {
		return leaseReply{}, fmt.Errorf("lock the lease: %w", err)
	}

	reply := leaseReply{Holder: h.beat.Holder, Files: h.beat.Files}
	h.no++
	if h.no < leaseRefused || h.beat.Free {
		return reply, nil
	}

	h.no = 0
	text, err := h.beat.text()
	if err == nil { // with the beat of before: its maker locks it, or the others do after a silence
		_, err = versioned.Create(h.file(h.term+1), text, 0o600)
	}

	if err != nil {
		return reply, fmt.Errorf("begin a new term of the lease: %w", err)
	}

	h.term++
	return h.take(begin, q)
}

// leaseSize is the length of the file: a beat overwrites all of it.
const leaseSize = 400

func (h *leaseHolder) write(begin time.Time, q leaseQuestion) (leaseReply, error) {
	next := leaseBeat{Holder: h.self, Beat: h.beat.Beat + 1, Files: max(h.beat.Files, q.Files)}
	if err := writeBeat(h.kept, next); err != nil {
		h.drop()
		h.reads = 0
		return leaseReply{}, fmt.Errorf("write the lease: %w", err)
	}
	h.beat, h.last = next, begin
	return leaseReply{Held: true, Holder: h.self, Files: next.Files}, nil
}

func writeBeat(f *os.File, next leaseBeat) error {
	b, err := next.text()
	if err == nil {
		_, err = f.WriteAt(b, 0)
	}
	return err
}

func (b leaseBeat) text() ([]byte, error) {
	t, err := json.Marshal(b)
	return append(t, strings.Repeat(" ", max(0, leaseSize-len(t)))...), err
}

// readBeat reads what the holder wrote last. A file without a beat is one that
// somebody is about to write.
func readBeat(path string) (leaseBeat, error) {
	b, _, err := durable.ReadFile(path, 4096, durable.Follow)
	var r leaseBeat
	if err != nil {
		return r, err
	}
	if json.Unmarshal(b, &r) != nil || len(r.Holder) > 255 {
		return leaseBeat{}, nil
	}
	return r, nil
}

// flock asks for the lock without waiting for it.
func flock(f *os.File) (bool, error) {
	err := retryIntr(func() error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) })
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

func retryIntr(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
