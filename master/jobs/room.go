package jobs

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"
)

// When the disk is full, the oldest jobs and returns in segments make room for new ones: a minion whose return is
// refused repeats it a few times only. Segments that may go are those whose returns the archive has, and whose records
// are all older than youngest.
const (
	youngest = time.Hour
	// roomPause is how long the journal removes no more segments after it has removed some in vain: then something else
	// takes the room.
	roomPause = time.Minute
	// tightFor is how long the journal preallocates no segments after the disk was full.
	tightFor = 10 * time.Minute
)

func isFull(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// writeOnFullDisk writes a batch again that the disk had no room for, after the oldest segments have made room. It
// returns what [journal.writeBatch] returns; err is the error of the first attempt.
func (j *journal) writeOnFullDisk(seg *segment, b *batch, err error) (*segment, error) {
	now := j.now()
	j.fullAt = now
	if now.Sub(j.noRoomAt).Abs() < roomPause || j.removeOldest(int64(len(b.buf))+j.segBytes) == 0 {
		return seg, err
	}

	seg, err = j.writeBatch(seg, b)
	if isFull(err) {
		j.noRoomAt = now
	}
	return seg, err
}

// removeOldest removes segments until it has freed so many bytes, and returns how many it has removed.
func (j *journal) removeOldest(bytes int64) (removed int) {
	for bytes > 0 {
		g := j.home.oldestSpare(j.now().Add(-youngest))
		if g == nil {
			break
		}
		path := j.home.pathOf(g)
		loads := j.home.remove(g) // first, so that no reader looks for the file
		st, err := os.Stat(path)
		if err == nil {
			bytes -= st.Size()
			err = os.Remove(path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			j.log.Error("a segment of jobs and returns cannot be removed; it is found again after a restart",
				"path", path, "error", err)
			break
		}

		j.log.Warn("the disk is full: the oldest jobs and returns are removed before keep_jobs_seconds; the history of runs has the returns",
			"path", path, "jobs", loads, "until", time.Unix(0, g.to).UTC().Format(time.RFC3339))
		removed++
	}

	if removed > 0 {
		j.owner.removedEarly(removed)
	}
	return removed
}

// isTight reports whether the disk was full lately.
func (j *journal) isTight() bool { return !j.fullAt.IsZero() && j.now().Sub(j.fullAt).Abs() < tightFor }

// oldestSpare returns the segment with the oldest records of those that may be removed before their time, or nil.
// Its records were all made before limit.
func (h *home) oldestSpare(limit time.Time) (oldest *homeSegment) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, g := range h.segments {
		isSpare := g.archived && strings.HasSuffix(g.path, keptSuffix) && len(g.refs) > 0 && g.to < limit.UnixNano()
		if isSpare && (oldest == nil || g.to < oldest.to) {
			oldest = g
		}
	}
	return oldest
}

// noteUnarchived notes that the archive lacks a return of a segment.
func (h *home) noteUnarchived(g *homeSegment) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g.archived = false
}

func (h *home) isArchived(g *homeSegment) bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return g.archived
}
