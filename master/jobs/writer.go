package jobs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sys/unix"
)

// queue passes committed records to the background writer. Its length is not bounded directly:
// callers reserve bytes before they create a record.
type queue struct {
	room *semaphore.Weighted

	mu     sync.Mutex
	urgent []*record
	list   []*record
	bytes  int64
	poked  bool // pop returns although there is no record
	closed bool
	wake   chan struct{}
}

func newQueue(maxBytes int64) *queue {
	return &queue{room: semaphore.NewWeighted(maxBytes), wake: make(chan struct{}, 1)}
}

func (q *queue) push(recs []*record) {
	q.mu.Lock()
	for _, r := range recs {
		if r.urgent() {
			q.urgent = append(q.urgent, r)
		} else {
			q.list = append(q.list, r)
		}
		q.bytes += r.cost
	}
	q.mu.Unlock()
	q.wakeWriter()
}

func (q *queue) wakeWriter() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.wakeWriter()
}

// poke has pop return once, with no record if there is none.
func (q *queue) poke() {
	q.mu.Lock()
	q.poked = true
	q.mu.Unlock()
	q.wakeWriter()
}

// popLimit is how many non-urgent records pop returns at once, so that urgent records do not wait
// behind a flood of returns.
const popLimit = 64

// pop waits for records. It removes and returns all urgent records, or if there are none up to
// popLimit others. It returns nil when the queue is closed and empty, or when ctx ends.
func (q *queue) pop(ctx context.Context) []*record {
	for {
		q.mu.Lock()
		list := q.urgent
		closed := q.closed
		poked := q.poked
		q.poked = false
		if len(list) > 0 {
			q.urgent = nil
		} else {
			n := min(len(q.list), popLimit)
			list = slices.Clone(q.list[:n])
			clear(q.list[:n]) // release the memory of the popped records while the queue is still in use
			q.list = q.list[n:]
			if len(q.list) == 0 {
				q.list = nil
			}
		}
		q.mu.Unlock()

		if len(list) > 0 {
			return list
		}
		if closed || ctx.Err() != nil {
			return nil
		}
		if poked {
			return []*record{}
		}

		select {
		case <-q.wake:
		case <-ctx.Done():
		}
	}
}

func (q *queue) release(r *record) {
	q.mu.Lock()
	q.bytes -= r.cost
	q.mu.Unlock()
	q.room.Release(r.cost)
}

// materialise writes the files of queued records, as the background writer. It returns when the
// queue is closed and empty. It also returns when ctx ends, and leaves the remaining records in the
// journal.
func (c *Local) materialise(ctx context.Context) {
	defer c.wg.Done()
	for {
		recs := c.queue.pop(ctx)
		if recs == nil {
			return
		}

		for _, r := range recs {
			if !c.makeFiles(ctx, r) {
				return
			}

			c.overlay.remove(r)
			c.journal.retire(r)
			c.queue.release(r)
			if r.visible != nil {
				close(r.visible)
			}
		}

		c.checkpoint()
	}
}

// makeFiles retries until the files of a record are written. During a fault that an administrator
// can repair, such as a full disk, the queue fills, and callers then get errors. A record that can
// never be stored goes to quarantine, so that it does not block others. makeFiles returns false
// when ctx has ended.
func (c *Local) makeFiles(ctx context.Context, r *record) bool {
	pause := c.cfg.retry
	for {
		err := c.writeFiles(r)
		if err == nil {
			err = c.archiveRecord(r)
		}
		if err == nil {
			c.stalled.Store(false)
			return true
		}
		if !transient(err) {
			c.log.Error("job record cannot be stored", "jid", r.jid, "minion", r.id, "error", err)
			c.quarantineRecord(r)
			return true
		}

		if !c.stalled.Swap(true) {
			c.log.Error("job cache cannot be written, trying again", "jid", r.jid, "error", err)
		}

		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return false
		}

		pause = min(2*pause, 5*time.Second)
	}
}

// writeFiles writes the files of a record. Of a record that stays in its segment it writes only those that
// somebody waits for, and what would make the files of a job out of date that are there, apart from returns. It goes
// on without them if that fails.
func (c *Local) writeFiles(r *record) error {
	if r.segment.home == nil {
		if r.kind == kindLoad {
			c.home.kinds.drop(r.jid)
		}
		return c.files.applyRecord(r)
	}
	if r.visible == nil && (r.kind == kindReturn || !exists(c.files.jobDir(r.jid))) {
		return nil
	}

	err := c.files.applyRecord(r)
	if failed := err != nil; c.unshown.Swap(failed) != failed && failed {
		c.log.Error("jobs go on without the files that Salt's own tools read", "jid", r.jid, "error", err)
	}
	return nil
}

// transient reports whether a retry may succeed.
func transient(err error) bool {
	for _, e := range []error{
		syscall.ENOSPC, syscall.EDQUOT, syscall.EIO, syscall.EROFS, syscall.ENOMEM, syscall.EMFILE,
		syscall.ENFILE, syscall.EACCES, syscall.EPERM, syscall.EFBIG, syscall.ESTALE, syscall.EINTR,
		syscall.ENOENT, syscall.EBUSY, syscall.ETIMEDOUT,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// checkpoint syncs all written files with one call. It then removes the segments whose records have
// all become files.
func (c *Local) checkpoint() {
	segs := c.journal.finished()
	if len(segs) == 0 {
		return
	}

	stay, done := splitSegments(segs)
	if len(done) > 0 {
		if err := c.syncAll(); err != nil {
			c.keepJournal(err)
			return
		}
	}

	if err := c.syncArchive(segs); err != nil {
		c.keepJournal(err)
		return
	}

	if err := c.noteUnhanded(segs); err != nil {
		c.keepJournal(err)
		return
	}

	c.journalKept = false
	if err := c.journal.remove(done); err != nil {
		c.log.Error("job journal: remove", "error", err)
	}
	if err := c.journal.keep(stay); err != nil {
		c.log.Error("job journal: a segment is not kept yet", "error", err)
	}
}

// keepJournal logs once why segments stay in the journal: with a full disk each return would log it.
func (c *Local) keepJournal(err error) {
	if !c.journalKept {
		c.log.Error("job cache: journal is kept", "error", err)
	}
	c.journalKept = true
}

// splitSegments returns the segments that stay, and those whose records are files.
func splitSegments(segs []*segment) (stay, done []*segment) {
	for _, s := range segs {
		if s.home != nil {
			stay = append(stay, s)
		} else {
			done = append(done, s)
		}
	}
	return stay, done
}

// syncAll makes all job files durable (syncfs(2), which reports write errors since Linux 5.8).
func (c *Local) syncAll() error {
	d, err := os.Open(c.files.dir)
	if err != nil {
		return fmt.Errorf("sync job cache: %w", err)
	}
	defer d.Close()
	if err := unix.Syncfs(int(d.Fd())); err != nil {
		return fmt.Errorf("sync job cache: %w", err)
	}
	return nil
}

const (
	quarantineDir = "quarantine"
	maxQuarantine = 64 // number of files in the quarantine directory
)

// quarantineRecord saves a record that cannot be stored, so that an administrator can look at it.
func (c *Local) quarantineRecord(r *record) {
	head := append([]byte(segmentMagic), make([]byte, markSize)...)
	c.quarantine(fmt.Sprintf("record-%d%s", c.cfg.Now().UnixNano(), segmentSuffix), func(path string) error {
		return os.WriteFile(path, r.appendTo(head), 0o600)
	})
}

// quarantine calls keep with a path in the quarantine directory, unless the directory is full.
func (c *Local) quarantine(name string, keep func(path string) error) {
	dir := filepath.Join(c.journal.dir, quarantineDir)
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		if list, _ := os.ReadDir(dir); len(list) >= maxQuarantine {
			err = fmt.Errorf("%s holds %d files already", dir, len(list))
		} else {
			err = keep(filepath.Join(dir, name))
		}
	}
	c.quarantined.Add(1)
	if err != nil {
		c.log.Error("job journal: quarantine", "error", err)
	}
}
