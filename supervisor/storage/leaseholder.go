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
	"strings"
	"syscall"
	"time"

	"saltern/durable"

	"golang.org/x/sys/unix"
)

// leaseChild serves questions for the lease: args are the mount point and this
// node's name.
func leaseChild(args []string, in io.Reader, out io.Writer) int {
	if len(args) != 2 {
		return 2
	}
	h := leaseHolder{path: filepath.Join(args[0], leaseFile), self: args[1], now: time.Now, lock: flock}
	signal.Ignore(syscall.SIGPIPE) // a parent that was killed while it is answered
	defer h.end()
	return serve(in, out, func(line []byte) (any, error) {
		var q leaseQuestion
		if err := json.Unmarshal(line, &q); err != nil {
			return nil, err
		}
		if err := onVolume(args[0]); err != nil {
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

	file  *os.File  // held: the lock is ours
	last  time.Time // begin of the newest beat that was written
	beat  leaseBeat // ours, or the newest that was read
	since time.Time // when that was first read
	reads int       // how often it was read since
	tried leaseBeat // one that said free, and somebody else was quicker
}

// leaseBeat is the content of the file.
type leaseBeat struct {
	Holder string `json:"holder"`
	Beat   uint64 `json:"beat"`
	Files  uint64 `json:"files,omitempty"` // mark of the newest change of files
	Free   bool   `json:"free,omitempty"`  // its writer has given it back
}

func (h *leaseHolder) drop() {
	if h.file != nil {
		h.file.Close() // gives the lock back
	}
	h.file = nil
}

// end gives the lease back and says so. Written after the lock is gone, so that
// who reads it gets the lock; should another have it by then, its next beat
// takes the word away again.
func (h *leaseHolder) end() {
	ours := h.file != nil && h.now().Sub(h.last) <= leaseFor
	h.drop()
	if !ours {
		return
	}
	f, err := os.OpenFile(h.path, os.O_WRONLY, 0)
	if err != nil {
		return // the others take it after a silence
	}
	defer f.Close()
	_ = writeBeat(f, leaseBeat{Holder: h.self, Beat: h.beat.Beat + 1, Files: h.beat.Files, Free: true}) // as above
}

func (h *leaseHolder) step(q leaseQuestion) (leaseReply, error) {
	begin := h.now()
	if h.file != nil && begin.Sub(h.last) > leaseFor {
		h.drop()
		h.reads = 0
	}
	if h.file != nil {
		return h.write(begin, q)
	}
	b, err := readBeat(h.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return leaseReply{}, fmt.Errorf("read the lease: %w", err)
	}
	if err == nil {
		if b != h.beat || h.reads == 0 {
			h.beat, h.since, h.reads = b, begin, 0
		}
		h.reads++
		free, silent := b.Free && b != h.tried, h.reads >= leaseReads && begin.Sub(h.since) >= leaseSilence
		if !free && !silent {
			return leaseReply{Holder: b.Holder, Files: b.Files, Fresh: h.reads == 1}, nil
		}
		if b.Free {
			h.tried = b
		}
	}
	f, err := os.OpenFile(h.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return leaseReply{}, fmt.Errorf("open the lease: %w", err)
	}
	ok, err := h.lock(f)
	if err != nil || !ok {
		f.Close()
		h.reads = 0 // wait as long again
		if err != nil {
			return leaseReply{}, fmt.Errorf("lock the lease: %w", err)
		}
		return leaseReply{Holder: h.beat.Holder, Files: h.beat.Files}, nil
	}
	h.file = f
	return h.write(begin, q)
}

// leaseSize is the length of the file: a beat overwrites all of it.
const leaseSize = 400

func (h *leaseHolder) write(begin time.Time, q leaseQuestion) (leaseReply, error) {
	next := leaseBeat{Holder: h.self, Beat: h.beat.Beat + 1, Files: max(h.beat.Files, q.Files)}
	if err := writeBeat(h.file, next); err != nil {
		h.drop()
		h.reads = 0
		return leaseReply{}, fmt.Errorf("write the lease: %w", err)
	}
	h.beat, h.last = next, begin
	return leaseReply{Held: true, Holder: h.self, Files: next.Files}, nil
}

func writeBeat(f *os.File, next leaseBeat) error {
	b, err := json.Marshal(next)
	if err == nil {
		_, err = f.WriteAt(append(b, strings.Repeat(" ", max(0, leaseSize-len(b)))...), 0)
	}
	return err
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

// onVolume refuses a path that is not the root of a mounted volume: what is
// written there would land on the local disk.
func onVolume(path string) error {
	var st unix.Statfs_t
	if err := retryIntr(func() error { return unix.Statfs(path, &st) }); err != nil {
		return fmt.Errorf("look at %s: %w", path, err)
	}
	if st.Type != unix.FUSE_SUPER_MAGIC {
		return fmt.Errorf("no volume is mounted at %s", path)
	}
	return nil
}
