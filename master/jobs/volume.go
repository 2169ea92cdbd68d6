package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"saltern/internal/durable"

	crand "crypto/rand"
)

// Limits of the records that wait for the shared folder.
const (
	handBytes    = 1 << 20          // waiting bytes that are handed over without delay
	handWaiting  = 64 << 20         // largest number of bytes that wait while the folder does not answer
	handSegment  = 8 << 20          // size in bytes at which a new segment begins
	handSegmentT = 15 * time.Minute // age at which a new segment begins
	maxHanded    = 256 << 20        // largest segment that a master reads, in bytes
	maxListed    = 1 << 17          // most segments of the folder that a master reads
	// handedFor is how long segments stay in the folder if jobs are kept for ever. A master that was away for
	// longer lacks older jobs.
	handedFor = 30 * 24 * time.Hour
)

// handedName matches the name of a segment in the shared folder: master, time, random number. No
// name is used twice, so two masters never write the same file.
var handedName = regexp.MustCompile(`^[0-9A-Za-z.:_-]{1,255}_[0-9]{19}_[0-9a-f]{16}\.log$`)

// volume hands records over to the shared folder in segments of the journal's format: few files,
// each of which only its creator writes and syncs. Only the goroutine of handOverLoop writes to the
// folder, and may hang in a write. Callers stop waiting for that goroutine when their contexts end.
type volume struct {
	dir, id  string
	log      *slog.Logger
	now      func() time.Time
	announce func(name string) // gets the name of each segment that this master need not read, before it exists

	segment      *os.File // segment that is being written; used by handOverLoop only
	segmentRead  bool     // this master reads the segment, too: its journal may lack some of the records
	segmentMark  mark
	segmentBytes int
	segmentSince time.Time

	wake       chan struct{} // signals that a caller waits for the next segment
	fullSignal chan struct{} // signals that handBytes wait
	stopped    chan struct{} // closed when handOverLoop has ended

	mu      sync.Mutex // guards the fields from waiting to pending
	waiting []*record
	writing []*record // records that flushWaiting is writing
	bytes   int
	pending *handing

	handed, lost atomic.Uint64 // numbers of records handed to the shared folder, and dropped because too many waited
	failing      atomic.Bool
}

// handing is the next write to the segment. err is its outcome and may be read once done is closed.
type handing struct {
	done chan struct{}
	err  error
}

func newVolume(dir, id string, now func() time.Time, own func(string), log *slog.Logger) *volume {
	return &volume{
		dir:        dir,
		id:         id,
		log:        log,
		now:        now,
		announce:   own,
		wake:       make(chan struct{}, 1),
		fullSignal: make(chan struct{}, 1),
		stopped:    make(chan struct{}),
		pending:    &handing{done: make(chan struct{})},
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// queueRecords queues records for the shared folder; the returned handing reports the outcome.
// Overflow policy: the oldest records are dropped and counted; they remain on the disks of the
// masters that have them.
func (v *volume) queueRecords(recs ...*record) *handing {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, r := range recs {
		v.waiting = append(v.waiting, r)
		v.bytes += r.size()
	}

	for v.bytes > handWaiting && len(v.waiting) > 1 {
		v.bytes -= v.waiting[0].size()
		v.waiting[0] = nil
		v.waiting = v.waiting[1:]
		v.lost.Add(1)
	}

	if v.bytes >= handBytes {
		signal(v.fullSignal)
	}

	return v.pending
}

// addAndWait queues records and waits until they are durable in the folder. Records that arrive
// during a write share the next write.
func (v *volume) addAndWait(ctx context.Context, recs ...*record) error {
	h := v.queueRecords(recs...)
	signal(v.wake)
	select {
	case <-h.done:
		return h.err
	case <-v.stopped:
		return errClosed
	case <-ctx.Done():
		return fmt.Errorf("hand a return to the shared folder: %w", ctx.Err())
	}
}

// handOverLoop hands over waiting records until ctx ends. Before it returns, it hands over the
// records that still wait.
func (v *volume) handOverLoop(ctx context.Context) {
	defer close(v.stopped)
	t := time.NewTicker(10 * time.Second)
	defer t.Stop()

	for {
		select {
		case <-v.wake:
		case <-v.fullSignal:
		case <-t.C:
		case <-ctx.Done():
			v.flushWaiting()
			if v.segment != nil {
				_ = v.segment.Close()
			}
			return
		}

		v.flushWaiting()
	}
}

// addJobsTo adds the ids of the jobs of the waiting records to jids.
func (v *volume) addJobsTo(jids map[string]bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, list := range [][]*record{v.waiting, v.writing} {
		for _, r := range list {
			jids[r.jid] = true
		}
	}
}

func (v *volume) flushWaiting() {
	v.mu.Lock()
	recs, h := v.waiting, v.pending
	v.waiting = nil
	v.writing = recs
	v.bytes = 0
	v.pending = &handing{done: make(chan struct{})}
	v.mu.Unlock()

	defer close(h.done)
	if len(recs) == 0 {
		return
	}

	h.err = v.writeRecords(recs)
	v.mu.Lock()
	v.writing = nil
	if h.err != nil {
		v.waiting = append(recs, v.waiting...)
		v.bytes = 0
		for _, r := range v.waiting {
			v.bytes += r.size()
		}
	}
	v.mu.Unlock()

	if h.err != nil {
		if !v.failing.Swap(true) {
			v.log.Error("job records cannot be handed to the shared folder; the masters keep them and try again",
				"path", v.dir, "error", h.err)
		}
		return
	}

	v.handed.Add(uint64(len(recs)))
	if v.failing.Swap(false) {
		v.log.Info("job records are handed to the shared folder again", "path", v.dir)
	}
}

// writeRecords appends records to the segment and syncs it. After an error the content of the
// segment on the disk is unknown, so the next call begins a new segment.
func (v *volume) writeRecords(recs []*record) error {
	// A copy that this master's journal could not take comes back from the folder, also after a crash.
	mustRead := slices.ContainsFunc(recs, func(r *record) bool { return !r.isStored() })
	if v.segment != nil {
		isWhole := v.segmentBytes >= handSegment || v.now().Sub(v.segmentSince) > handSegmentT
		if isWhole || mustRead && !v.segmentRead {
			_ = v.segment.Close()
			v.segment = nil
		}
	}

	if v.segment == nil {
		if err := v.beginSegment(mustRead); err != nil {
			return fmt.Errorf("make a segment: %w", err)
		}
	}

	var buf []byte
	for _, r := range recs {
		at := len(buf)
		buf = r.appendTo(buf)
		copy(buf[at:], v.segmentMark[:])
	}

	_, err := v.segment.Write(buf)
	if err == nil {
		err = v.segment.Sync()
	}

	if err != nil {
		_ = v.segment.Close()
		v.segment = nil
		return fmt.Errorf("write a segment: %w", err)
	}

	v.segmentBytes += len(buf)
	return nil
}

// beginSegment creates a segment with its head under a temporary name and renames it. mustRead means that this master
// reads the segment like those of the others.
func (v *volume) beginSegment(mustRead bool) error {
	_, _ = crand.Read(v.segmentMark[:]) // Read never fails
	name := fmt.Sprintf("%s_%019d_%016x.log", v.id, v.now().UnixNano(), rand.Uint64())
	tmp := filepath.Join(v.dir, "."+name)
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}

	_, err = f.Write(append([]byte(segmentMagic), v.segmentMark[:]...))
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		if !mustRead {
			v.announce(name)
		}
		err = os.Rename(tmp, filepath.Join(v.dir, name))
	}
	if err == nil {
		err = durable.SyncDir(v.dir)
	}

	if err != nil {
		_ = f.Close()
		_ = os.Remove(tmp)
		return err
	}

	v.segment = f
	v.segmentRead = mustRead
	v.segmentBytes = 0
	v.segmentSince = v.now()
	return nil
}

// listSegments returns the names of the segments in the folder, sorted.
func (v *volume) listSegments() ([]string, error) {
	d, err := os.Open(v.dir)
	if err != nil {
		return nil, fmt.Errorf("read the shared folder of jobs: %w", err)
	}
	defer d.Close()

	names, err := d.Readdirnames(maxListed)
	if errors.Is(err, io.EOF) {
		return nil, nil // the folder is empty
	}
	if err != nil && len(names) == 0 {
		return nil, fmt.Errorf("read the shared folder of jobs: %w", err)
	}

	names = slices.DeleteFunc(names, func(n string) bool { return !handedName.MatchString(n) })
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(madeAt(a), madeAt(b)) })
	return names, nil
}

// madeAt returns the time in a segment's name followed by the segment's name. These texts sort by
// time.
func madeAt(name string) string {
	parts := strings.Split(name, "_")
	return parts[len(parts)-2] + name
}

// segmentSize returns the present size of a segment in bytes.
func (v *volume) segmentSize(name string) (int64, error) {
	st, err := os.Lstat(filepath.Join(v.dir, name))
	if err != nil {
		return 0, fmt.Errorf("read a segment: %w", err)
	}
	return st.Size(), nil
}

// readSegment calls yield for every record of a segment. It ignores the bytes after the last
// complete record, since another master may be writing them.
func (v *volume) readSegment(name string, yield func(*record) error) error {
	path := filepath.Join(v.dir, name)
	if n, err := v.segmentSize(name); err != nil || n > maxHanded {
		if err == nil {
			err = fmt.Errorf("read %s: %w: %d bytes", path, ErrTooLarge, n)
		}
		return err
	}

	b, err := durable.Read(path, maxFile)
	if err != nil {
		return fmt.Errorf("read a segment: %w", err)
	}

	damaged, _, err := scanSegment(b, yield)
	if damaged > 0 {
		v.log.Warn("a segment in the shared folder is damaged", "path", path, "places", damaged)
	}

	return err
}

// removeExpired removes segments that are older than keep.
func (v *volume) removeExpired(keep time.Duration) {
	if keep <= 0 { // jobs are kept for ever, and on the masters
		keep = handedFor
	}
	names, err := v.listSegments()
	if err != nil {
		return
	}
	for _, n := range names {
		if st, err := os.Lstat(filepath.Join(v.dir, n)); err == nil && v.now().Sub(st.ModTime()) > keep {
			_ = os.Remove(filepath.Join(v.dir, n)) // ignore the error: another master may have removed the file first
		}
	}
}
