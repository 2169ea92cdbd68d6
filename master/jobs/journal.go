package jobs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"saltern/internal/durable"
	"saltern/internal/room"

	"golang.org/x/sys/unix"
)

// segment is one file of the journal. The journal's lock guards all fields but bytes and file.
type segment struct {
	path    string
	mark    mark
	file    *os.File
	bytes   int64
	pending int  // records whose files do not exist yet
	sealed  bool // nothing will be appended any more
	// jids holds the jobs of the segment's records if journal.noteJobs is set, otherwise nil.
	jids  map[string]bool
	began time.Time
	// home finds the records of a segment that stays. It may be nil: its records become files.
	home *homeSegment
}

// batch is a group of records that one fdatasync makes durable.
type batch struct {
	records []*record
	buf     []byte
	done    chan struct{}
	err     error
}

// journal is a log with group commit. Only the goroutine that runs commit writes its segments.
type journal struct {
	dir      string
	segBytes int64
	log      *slog.Logger
	noteJobs bool // record the jobs of each segment; set when a Cluster uses the cache
	// test hook: an error that it returns is the result of the operation op; nil outside of tests
	fault func(op string) error
	owner journalOwner

	home   *home
	now    func() time.Time
	segAge time.Duration // age at which a segment that stays is ended, so that it can be removed when it is old

	wake chan struct{}
	done chan struct{}
	lock *os.File

	// The fields below are used by commit only.
	failing  bool      // the latest batch was not written
	fullAt   time.Time // when the disk was full the last time
	noRoomAt time.Time // when segments were removed in vain the last time

	mu         sync.Mutex
	gathering  *batch
	checkAge   bool // the commit loop looks whether the newest segment is too old
	closed     bool
	segments   []*segment // the segments with records that are not yet files, and the newest segment
	nextNumber uint64

	commits, records uint64 // numbers of commits and of committed records since the start; guarded by mu
}

// journalOwner learns from the goroutine of commit what a journal does.
type journalOwner interface {
	// committed gets the records of each batch before the callers that wait for the batch continue. err is
	// not nil when the batch failed.
	committed(recs []*record, err error)
	// sealed is called when a segment was ended because of its age.
	sealed()
	// archivedSince returns what [Archive.WholeSince] does, or the zero time without an archive.
	archivedSince() time.Time
	// removedEarly is called for each segment that has made room on a full disk.
	removedEarly()
}

const segmentSuffix = ".log"

// openJournal locks the directory, which it creates if needed. It keeps segments of an earlier run
// for the replay.
func openJournal(dir string, segBytes int64, log *slog.Logger) (*journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open job journal: %w", err)
	}

	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open job journal: %w", err)
	}

	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		return nil, fmt.Errorf("%w: %s", ErrInUse, dir)
	}

	return &journal{
		dir:      dir,
		segBytes: segBytes,
		log:      log,
		lock:     lock,
		wake:     make(chan struct{}, 1),
		done:     make(chan struct{}),
	}, nil
}

// leftSegments returns the paths of the segments of earlier runs, oldest first.
func (j *journal) leftSegments() ([]string, error) {
	list, err := os.ReadDir(j.dir)
	if err != nil {
		return nil, fmt.Errorf("open job journal: %w", err)
	}

	var nums []uint64
	kept := map[string]bool{}
	for _, e := range list {
		if strings.HasSuffix(e.Name(), keptSuffix) {
			kept[e.Name()] = true
		}
		s, ok := strings.CutSuffix(e.Name(), segmentSuffix)
		n, err := strconv.ParseUint(s, 10, 63)
		if !ok || err != nil {
			continue
		}

		j.nextNumber = max(j.nextNumber, n+1)
		if e.Type().IsRegular() {
			nums = append(nums, n)
		} else {
			j.home.bad.add(filepath.Join(j.dir, e.Name()), errNoRegularFile)
		}
	}

	slices.Sort(nums)
	out := make([]string, len(nums))
	for i, n := range nums {
		out[i] = j.segmentPath(n)
		if kept[filepath.Base(keptPath(out[i]))] {
			if out[i], err = j.renumber(out[i]); err != nil {
				return nil, err
			}
		}
	}

	return out, nil
}

// renumber gives a segment the next number, because another one that is kept has its number.
func (j *journal) renumber(path string) (string, error) {
	to := j.segmentPath(j.nextNumber)
	j.nextNumber++
	if err := renameNew(path, to); err != nil {
		return "", fmt.Errorf("give a segment of the job journal a number of its own: %w", err)
	}
	j.log.Warn("a segment of the job journal had the number of another one", "path", path, "renamed", to)
	return to, durable.SyncDir(j.dir)
}

// renameNew renames a file, unless there is one of the new name.
func renameNew(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) { // a file system without the flag
		if exists(to) {
			return &os.LinkError{Op: "rename", Old: from, New: to, Err: fs.ErrExist}
		}
		return os.Rename(from, to)
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

func (j *journal) segmentPath(n uint64) string {
	return filepath.Join(j.dir, fmt.Sprintf("%016d%s", n, segmentSuffix))
}

// append adds records to the next batch, which the caller can wait for. The records keep their
// order and are committed together.
func (j *journal) append(recs ...*record) (*batch, error) {
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return nil, errClosed
	}

	if j.gathering == nil {
		j.gathering = &batch{done: make(chan struct{})}
	}

	b := j.gathering
	for _, r := range recs {
		b.records = append(b.records, r)
		b.buf = r.appendTo(b.buf)
	}
	j.mu.Unlock()

	j.wakeCommit()

	return b, nil
}

func (j *journal) wakeCommit() {
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// wait waits until the batch is durable or has failed.
func (b *batch) wait(ctx context.Context) error {
	select {
	case <-b.done:
		return b.err
	case <-ctx.Done():
		return fmt.Errorf("wait for the job journal: %w", ctx.Err())
	}
}

// commit writes batches until close ends it.
func (j *journal) commit() {
	defer close(j.done)
	var seg *segment
	for {
		j.mu.Lock()
		b := j.gathering
		j.gathering = nil
		closed := j.closed
		checkAge := j.checkAge
		j.checkAge = false
		j.mu.Unlock()

		if b == nil {
			if closed {
				j.sealSegment(seg)
				return
			}
			if checkAge && j.isAged(seg) {
				j.sealSegment(seg)
				seg = nil
				j.owner.sealed()
			}
			<-j.wake
			continue
		}

		b.err = lacksLoad(b)
		if b.err == nil {
			seg, b.err = j.writeBatch(seg, b)
		}
		if room.IsFull(b.err) {
			seg, b.err = j.writeOnFullDisk(seg, b, b.err)
		}
		if b.err != nil {
			for _, r := range b.records {
				r.failed = true
			}
		}
		j.mu.Lock()
		j.commits++
		if b.err == nil {
			seg.pending += len(b.records)
			for _, r := range b.records {
				r.segment = seg
				if j.noteJobs {
					seg.jids[r.jid] = true
				}
			}

			j.records += uint64(len(b.records))
		}
		j.mu.Unlock()
		if b.err == nil && seg.home != nil {
			j.home.addRecords(seg.home, b.records...)
		}

		if b.err != nil && !j.failing {
			j.log.Error("job journal cannot be written: jobs and returns are refused until it can",
				"records", len(b.records), "error", b.err)
		} else if b.err == nil && j.failing {
			j.log.Info("job journal is written again")
		}
		j.failing = b.err != nil

		j.owner.committed(b.records, b.err)
		close(b.done)
	}
}

// errLoadFailed says that a batch was not written because one of its returns needs a load that was not written either. All
// callers whose records are in the batch get it.
var errLoadFailed = errors.New("not written, because the load of a job written together with it has failed: try again")

// lacksLoad returns an error if the batch has a return whose job has lost its load meanwhile: it would be stored
// without. The other records of the batch fail with it; all callers try again.
func lacksLoad(b *batch) error {
	for _, r := range b.records {
		if r.needs != nil && r.needs.failed {
			return errLoadFailed
		}
		r.needs = nil // it is durable, or in this batch
	}
	return nil
}

// writeBatch appends a batch to the segment and syncs it. It returns the segment for the next
// batch, or nil if the next batch needs a new segment. After a failed sync the content of the
// segment on the disk is unknown, so the next batch goes to a new segment.
func (j *journal) writeBatch(seg *segment, b *batch) (*segment, error) {
	if seg != nil && (seg.bytes >= j.segBytes || j.isAged(seg)) {
		j.sealSegment(seg)
		seg = nil
	}

	var err error
	if seg == nil {
		if seg, err = j.newSegment(); err != nil {
			return nil, fmt.Errorf("job journal: new segment: %w", err)
		}
	}

	off := 0
	for _, r := range b.records {
		copy(b.buf[off:], seg.mark[:])
		r.at = uint32(seg.bytes + int64(off))
		off += r.size()
	}

	if err = j.injectFault("write"); err == nil {
		_, err = seg.file.WriteAt(b.buf, seg.bytes)
	}

	if err != nil {
		// The disk is probably full: remove the incomplete batch.
		if terr := seg.file.Truncate(seg.bytes); terr != nil {
			j.sealSegment(seg)
			seg = nil
		}
		return seg, fmt.Errorf("job journal: write: %w", err)
	}

	if err = j.injectFault("sync"); err == nil {
		err = unix.Fdatasync(int(seg.file.Fd()))
	}

	if err != nil {
		j.sealSegment(seg)
		return nil, fmt.Errorf("job journal: sync: %w", err)
	}

	seg.bytes += int64(len(b.buf))
	return seg, nil
}

func (j *journal) injectFault(op string) error {
	if j.fault == nil {
		return nil
	}
	return j.fault(op)
}

func (j *journal) newSegment() (*segment, error) {
	if err := j.injectFault("create"); err != nil {
		return nil, err
	}

	path := j.segmentPath(j.nextNumber)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		if errors.Is(err, fs.ErrExist) {
			j.nextNumber++
		}
		return nil, err
	}

	seg := &segment{path: path, file: f, bytes: int64(segmentHead), began: j.now()}
	if j.noteJobs {
		seg.jids = map[string]bool{}
	}

	rand.Read(seg.mark[:])

	// Preallocation shortens each sync of a segment by a third. If the disk is too full for that,
	// continue without it.
	if !j.isTight() && unix.Fallocate(int(f.Fd()), 0, 0, j.segBytes) != nil {
		err = f.Truncate(0)
	}

	if err == nil {
		_, err = f.WriteAt(append([]byte(segmentMagic), seg.mark[:]...), 0)
	}
	if err == nil {
		err = durable.SyncDir(j.dir)
	}

	if err != nil {
		f.Close()
		os.Remove(path)
		return nil, err
	}

	if j.home.takes() {
		seg.home = j.home.begin(j.nextNumber, path, seg.mark)
	}

	j.nextNumber++
	j.mu.Lock()
	j.segments = append(j.segments, seg)
	j.mu.Unlock()

	return seg, nil
}

func (j *journal) sealSegment(seg *segment) {
	if seg == nil {
		return
	}
	if seg.home != nil {
		_ = seg.file.Truncate(seg.bytes) // gives back what newSegment has allocated
		j.home.seal(seg.home)
	}
	seg.file.Close()
	j.mu.Lock()
	seg.sealed = true
	j.mu.Unlock()
}

// retire counts a record of a segment as done, after its files were written.
func (j *journal) retire(r *record) {
	j.mu.Lock()
	r.segment.pending--
	j.mu.Unlock()
}

// finished returns the sealed segments whose records have all become files. The caller may remove
// them after a sync of the file system.
func (j *journal) finished() []*segment {
	j.mu.Lock()
	defer j.mu.Unlock()
	var out []*segment
	for _, s := range j.segments {
		if s.sealed && s.pending == 0 {
			out = append(out, s)
		}
	}
	return out
}

// remove deletes segments from the disk and from the list.
func (j *journal) remove(segs []*segment) error {
	var errs []error
	for _, s := range segs {
		if err := os.Remove(s.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
			continue
		}
		j.forget(s)
	}
	return errors.Join(errs...)
}

// isAged reports whether a segment stays and is too old for further records.
func (j *journal) isAged(seg *segment) bool {
	return seg != nil && seg.home != nil && j.segAge > 0 && j.now().Sub(seg.began).Abs() >= j.segAge
}

// sealAged ends the newest segment if it is too old.
func (j *journal) sealAged() {
	j.mu.Lock()
	j.checkAge = true
	j.mu.Unlock()
	j.wakeCommit()
}

// keep renames segments, so that they stay and no later run replays them. It removes those without records. A
// segment whose name another file has stays as it is; the next start gives it another number.
func (j *journal) keep(segs []*segment) error {
	var errs []error
	for _, s := range segs {
		if j.home.size(s.home) == 0 {
			j.home.remove(s.home)
			errs = append(errs, j.remove([]*segment{s}))
			continue
		}

		path := keptPath(s.path)
		err := renameNew(s.path, path)
		if errors.Is(err, fs.ErrExist) {
			j.log.Error("another segment of jobs and returns has the number of this one; the next start gives it a new one",
				"path", s.path)
			j.forget(s)
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		j.home.move(s.home, path)
		if j.home.isDamaged(s.home) {
			j.forget(s)
			continue
		}
		err = writeIndex(path, false, j.home.isArchived(s.home))
		if errors.Is(err, errDamagedSegment) {
			j.home.noteDamaged(s.home)
		}
		if err != nil {
			j.log.Warn("a segment of jobs and returns has no index, the next start takes longer", "path", path, "error", err)
		}
		j.forget(s)
	}
	return errors.Join(append(errs, durable.SyncDir(j.dir))...)
}

func (j *journal) forget(seg *segment) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.segments = slices.DeleteFunc(j.segments, func(x *segment) bool { return x == seg })
}

// close waits until the appended records are committed, and ends commit.
func (j *journal) close() {
	j.mu.Lock()
	j.closed = true
	j.mu.Unlock()
	j.wakeCommit()
	<-j.done
}

func (j *journal) unlock() { j.lock.Close() }
