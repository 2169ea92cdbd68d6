package jobs

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"saltern/internal/room"
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

// writeOnFullDisk writes a batch again that the disk had no room for, after the oldest segment has made room. If that is
// not enough it removes the next one, until it has freed what the batch and a new segment may need. It returns what
// [journal.writeBatch] returns; err is the error of the first attempt.
func (j *journal) writeOnFullDisk(seg *segment, b *batch, err error) (*segment, error) {
	now := j.now()
	j.fullAt = now
	if now.Sub(j.noRoomAt).Abs() < roomPause {
		return seg, err
	}

	needed := int64(len(b.buf)) + j.segBytes
	inVain := false
	for room.IsFull(err) && needed > 0 {
		freed, removed := j.removeOldest()
		if !removed {
			break
		}
		needed -= freed
		seg, err = j.writeBatch(seg, b)
		inVain = room.IsFull(err)
	}

	if inVain {
		j.noRoomAt = now
	}
	return seg, err
}

// removeOldest removes the oldest segment that may be removed before its time, and returns how many bytes it had. It
// returns false if it has removed none.
func (j *journal) removeOldest() (freed int64, removed bool) {
	g := j.home.oldestSpare(j.now().Add(-youngest), j.owner.archivedSince())
	if g == nil {
		return 0, false
	}

	path := j.home.pathOf(g)
	loads := j.home.remove(g) // first, so that no reader looks for the file
	st, err := os.Stat(path)
	if err == nil {
		freed = st.Size()
		err = os.Remove(path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		j.log.Error("a segment of jobs and returns cannot be removed; it is found again after a restart",
			"path", path, "error", err)
		return 0, false
	}

	j.log.Warn("the disk is full: the oldest jobs and returns are removed before keep_jobs_seconds; the history of runs has the returns",
		"path", path, "jobs", loads, "until", time.Unix(0, g.to).UTC().Format(time.RFC3339))
	j.owner.removedEarly()
	return freed, true
}

// isTight reports whether the disk was full lately.
func (j *journal) isTight() bool { return !j.fullAt.IsZero() && j.now().Sub(j.fullAt).Abs() < tightFor }

// oldestSpare returns the segment with the oldest records of those that may be removed before their time, or nil.
// Its records were all made before limit, and since the time from which on the archive has what it has taken, unless
// that is zero. A damaged segment has another name in quarantine, so that it would free nothing. One with a load stays
// while the archive may have to take returns of the job again after a crash.
func (h *home) oldestSpare(limit, archivedSince time.Time) (oldest *homeSegment) {
	if archivedSince.IsZero() {
		return nil
	}

	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, g := range h.segments {
		isKept := strings.HasSuffix(g.path, keptSuffix) && len(g.refs) > 0 && !g.damaged
		isSpare := isKept && g.archived && g.from >= archivedSince.UnixNano() && g.to < limit.UnixNano()
		if isSpare && (oldest == nil || g.to < oldest.to) && !h.isNeeded(g) {
			oldest = g
		}
	}
	return oldest
}

// isNeeded reports whether a segment has the only load of a job of which a segment that the next start replays has
// returns. The caller holds the lock.
func (h *home) isNeeded(g *homeSegment) bool {
	returned := map[uint32]bool{} // by hash of the job id
	for _, other := range h.segments {
		if strings.HasSuffix(other.path, keptSuffix) {
			continue
		}
		for _, r := range other.refs {
			returned[r.job] = returned[r.job] || r.what >= isReturn
		}
	}
	return slices.ContainsFunc(g.loads, func(jid string) bool {
		hasIt := func(other *homeSegment) bool {
			return other != g && other.from >= h.cutoff && other.holdsLoad(jid)
		}
		return returned[h.jobHash(jid)] && !slices.ContainsFunc(h.segments, hasIt)
	})
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
