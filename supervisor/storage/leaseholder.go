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
	"saltern/internal/filelock"
	"saltern/internal/versioned"

	"golang.org/x/sys/unix"
)

// leaseChild makes one step of the lease at each request of its parent. args are the mount point
// and this node's name.
func leaseChild(args []string, in io.Reader, out io.Writer) int {
	if len(args) != 2 {
		return 2
	}

	root := mountRoot{path: args[0]}
	h := leaseHolder{
		basePath: filepath.Join(args[0], leaseFile),
		self:     args[1],
		now:      time.Now,
		tryLock:  tryFlock,
	}
	signal.Ignore(syscall.SIGPIPE) // the parent may be killed while the child answers
	defer h.release()

	return serveLines(in, out, func(line []byte) (any, error) {
		var q leaseQuestion
		if err := json.Unmarshal(line, &q); err != nil {
			return nil, err
		}

		if err := root.requireVolume(); err != nil {
			h.closeLock()
			return nil, err
		}

		return h.answer(q)
	})
}

// leaseHolder is the child's state of the lease.
type leaseHolder struct {
	basePath, self string
	now            func() time.Time
	tryLock        func(*os.File) (bool, error)

	term        int       // see termFile
	termKnown   bool      // whether the first step has found the newest term
	lockFile    *os.File  // open while this node has the lock, else nil
	lastBeat    time.Time // when the write of our newest beat began
	lastSeen    leaseBeat // the newest beat that was read or written
	seenSince   time.Time // when lastSeen was first read
	readsOfBeat int       // number of reads that have found lastSeen
	triedFree   leaseBeat // the newest free beat after which this node has asked for the lock
	refusals    int       // how often the lock was refused while the beat did not change
}

// termFile returns the path of a term's file. The file of the first term, 0, has no number.
func (h *leaseHolder) termFile(term int) string {
	if term == 0 {
		return h.basePath
	}
	return h.basePath + "." + strconv.Itoa(term)
}

// findNewestTerm sets the term to the newest one that exists. moved reports whether a term has
// begun since the previous call.
func (h *leaseHolder) findNewestTerm() (moved bool, err error) {
	if !h.termKnown {
		names, err := filepath.Glob(h.basePath + ".*")
		if err != nil {
			return false, err
		}

		for _, n := range names {
			if term, err := strconv.Atoi(strings.TrimPrefix(n, h.basePath+".")); err == nil {
				h.term = max(h.term, term)
			}
		}

		h.termKnown = true
	}

	for {
		if _, err := os.Lstat(h.termFile(h.term + 1)); errors.Is(err, fs.ErrNotExist) {
			return moved, nil
		} else if err != nil {
			return moved, fmt.Errorf("look for a later term of the lease: %w", err)
		}
		h.term++
		moved = true
	}
}

// leaseBeat is the content of the lease's file.
type leaseBeat struct {
	Holder string `json:"holder"`
	Beat   uint64 `json:"beat"`
	Files  uint64 `json:"files,omitempty"` // mark of the newest change of files
	Free   bool   `json:"free,omitempty"`  // whether its writer has released the lease
}

func (h *leaseHolder) closeLock() {
	if h.lockFile != nil {
		h.lockFile.Close() // releases the lock
	}
	h.lockFile = nil
}

// release releases the lease and writes a free beat. It writes after it has unlocked the file: a
// node that reads "free" can then lock at once. If another node has acquired the lock before this
// write, that node's next beat overwrites ours.
func (h *leaseHolder) release() {
	ours := h.lockFile != nil && h.now().Sub(h.lastBeat) <= leaseFor
	h.closeLock()
	if !ours {
		return
	}

	f, err := os.OpenFile(h.termFile(h.term), os.O_WRONLY, 0)
	if err != nil {
		return // the others take over after leaseSilence
	}
	defer f.Close()

	free := leaseBeat{
		Holder: h.self,
		Beat:   h.lastSeen.Beat + 1,
		Files:  h.lastSeen.Files,
		Free:   true,
	}
	_ = writeBeat(f, free) // if writing fails, the others take over after leaseSilence
}

// answer makes one step of the lease and returns its result. If this node has the lease, it renews
// the lease. Otherwise it reads the beat, and requests the lock if the holder has released the
// lease or is silent.
func (h *leaseHolder) answer(q leaseQuestion) (leaseReply, error) {
	begin := h.now()
	if h.lockFile != nil && begin.Sub(h.lastBeat) > leaseFor {
		h.closeLock()
		h.readsOfBeat = 0
	}

	moved, err := h.findNewestTerm()
	if moved { // another node has begun a later term
		h.closeLock()
		h.readsOfBeat, h.refusals = 0, 0
	}

	if err != nil {
		return leaseReply{}, err
	}
	if h.lockFile != nil {
		return h.countUp(begin, q)
	}

	b, err := readBeat(h.termFile(h.term))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return leaseReply{}, fmt.Errorf("read the lease: %w", err)
	}

	if err == nil {
		if b != h.lastSeen {
			h.refusals = 0
		}

		if b != h.lastSeen || h.readsOfBeat == 0 {
			h.lastSeen = b
			h.seenSince = begin
			h.readsOfBeat = 0
		}

		h.readsOfBeat++
		free := b.Free && b != h.triedFree
		silent := h.readsOfBeat >= leaseReads && begin.Sub(h.seenSince) >= leaseSilence
		if !free && !silent {
			return leaseReply{Holder: b.Holder, Files: b.Files, Fresh: h.readsOfBeat == 1}, nil
		}

		if b.Free {
			h.triedFree = b
		}
	}

	return h.claimLease(begin, q)
}

// claimLease requests the lock. If the lock was refused so often that its holder must be frozen,
// claimLease begins the next term.
func (h *leaseHolder) claimLease(begin time.Time, q leaseQuestion) (leaseReply, error) {
	f, err := os.OpenFile(h.termFile(h.term), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return leaseReply{}, fmt.Errorf("open the lease: %w", err)
	}

	ok, err := h.tryLock(f)
	if err == nil && ok {
		h.lockFile = f
		h.refusals = 0
		return h.countUp(begin, q)
	}

	f.Close()
	h.readsOfBeat = 0 // wait for another leaseSilence before the next try
	if err != nil {
		return leaseReply{}, fmt.Errorf("lock the lease: %w", err)
	}

	reply := leaseReply{Holder: h.lastSeen.Holder, Files: h.lastSeen.Files}
	h.refusals++
	if h.refusals < leaseRefused || h.lastSeen.Free {
		return reply, nil
	}

	h.refusals = 0
	text, err := h.lastSeen.padded()
	// The new file begins with the last beat. The node that created it asks for its lock in the
	// next step. Other nodes ask for it after leaseSilence.
	if err == nil {
		_, err = versioned.Create(h.termFile(h.term+1), text, 0o600)
	}

	if err != nil {
		return reply, fmt.Errorf("begin a new term of the lease: %w", err)
	}

	h.term++
	return h.claimLease(begin, q)
}

// leaseSize is the length of the file in bytes: a beat overwrites all of it.
const leaseSize = 400

// countUp writes the holder's next beat.
func (h *leaseHolder) countUp(begin time.Time, q leaseQuestion) (leaseReply, error) {
	next := leaseBeat{Holder: h.self, Beat: h.lastSeen.Beat + 1, Files: max(h.lastSeen.Files, q.Files)}
	if err := writeBeat(h.lockFile, next); err != nil {
		h.closeLock()
		h.readsOfBeat = 0
		return leaseReply{}, fmt.Errorf("write the lease: %w", err)
	}
	h.lastSeen = next
	h.lastBeat = begin
	return leaseReply{Held: true, Holder: h.self, Files: next.Files}, nil
}

func writeBeat(f *os.File, next leaseBeat) error {
	b, err := next.padded()
	if err == nil {
		_, err = f.WriteAt(b, 0)
	}
	return err
}

func (b leaseBeat) padded() ([]byte, error) {
	t, err := json.Marshal(b)
	return append(t, strings.Repeat(" ", max(0, leaseSize-len(t)))...), err
}

// readBeat reads the newest beat. For an empty file it returns an empty beat: the file's creator is
// about to write the first one.
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

// tryFlock requests the lock without waiting, and reports whether it got the lock.
func tryFlock(f *os.File) (bool, error) {
	err := filelock.Try(f)
	if errors.Is(err, filelock.ErrHeld) {
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
