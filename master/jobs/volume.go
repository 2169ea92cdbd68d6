package jobs

import (
	"context"
	"fmt"
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

// bounds of what is handed to the shared folder.
const (
	handEvery    = 10 * time.Second // unless somebody waits
	handBytes    = 1 << 20          // or so much has come
	handWaiting  = 64 << 20         // bytes of records that wait while the folder does not answer
	handSegment  = 8 << 20          // bytes at which a new segment is begun
	handSegmentT = 15 * time.Minute // age at which a new segment is begun
	maxHanded    = 256 << 20        // bytes of a segment that is read
	maxListed    = 1 << 17          // segments in the folder
)

// handedName is the name of a segment in the shared folder: master, time,
// chance. It is unique, so that no two masters ever write one file.
var handedName = regexp.MustCompile(`^[0-9A-Za-z.:_-]{1,255}_[0-9]{19}_[0-9a-f]{16}\.log$`)

// volume hands records to the shared folder in segments of the journal's
// format: few files, each appended to and synced by the one master that made
// it. One goroutine, run, touches the folder for writing: it may hang there,
// nobody waits for it longer than his context says.
type volume struct {
	dir, id string
	log     *slog.Logger
	now     func() time.Time
	own     func(name string) // told of each segment before it is there

	cur      *os.File // being appended to, of run
	curMark  mark
	curBytes int
	curSince time.Time

	kick    chan struct{}
	full    chan struct{}
	stopped chan struct{}

	mu      sync.Mutex
	waiting []*record
	writing []*record // by flush
	bytes   int
	next    *handing

	handed, lost atomic.Uint64 // records
	failing      atomic.Bool
}

// handing is the outcome of the next segment.
type handing struct {
	done chan struct{}
	err  error
}

func newVolume(dir, id string, now func() time.Time, own func(string), log *slog.Logger) *volume {
	return &volume{
		dir:     dir,
		id:      id,
		log:     log,
		now:     now,
		own:     own,
		kick:    make(chan struct{}, 1),
		full:    make(chan struct{}, 1),
		stopped: make(chan struct{}),
		next:    &handing{done: make(chan struct{})},
	}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// add has records handed over soon. Overflow policy: the oldest are left to
// the disks of the masters that have them, and counted.
func (v *volume) add(recs ...*record) *handing {
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
		poke(v.full)
	}

	return v.next
}

// addAndWait returns when the records are safe in the folder. Those that come
// meanwhile share the next segment.
func (v *volume) addAndWait(ctx context.Context, recs ...*record) error {
	h := v.add(recs...)
	poke(v.kick)
	select {
	case <-h.done:
		return h.err
	case <-v.stopped:
		return errClosed
	case <-ctx.Done():
		return fmt.Errorf("hand a return to the shared folder: %w", ctx.Err())
	}
}

// run hands over what waits, until ctx ends; then once more.
func (v *volume) run(ctx context.Context) {
	defer close(v.stopped)
	t := time.NewTicker(handEvery)
	defer t.Stop()

	for {
		select {
		case <-v.kick:
		case <-v.full:
		case <-t.C:
		case <-ctx.Done():
			v.flush()
			if v.cur != nil {
				_ = v.cur.Close()
			}
			return
		}

		v.flush()
	}
}

// jobs adds the jobs of which a record waits.
func (v *volume) jobs(to map[string]bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, list := range [][]*record{v.waiting, v.writing} {
		for _, r := range list {
			to[r.jid] = true
		}
	}
}

func (v *volume) flush() {
	v.mu.Lock()
	recs, h := v.waiting, v.next
	v.waiting = nil
	v.writing = recs
	v.bytes = 0
	v.next = &handing{done: make(chan struct{})}
	v.mu.Unlock()

	defer close(h.done)
	if len(recs) == 0 {
		return
	}

	h.err = v.write(recs)
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

// write appends records to the segment and syncs it. After an error nobody
// knows what the folder has; a new segment is begun.
func (v *volume) write(recs []*record) error {
	if v.cur != nil && (v.curBytes >= handSegment || v.now().Sub(v.curSince) > handSegmentT) {
		_ = v.cur.Close()
		v.cur = nil
	}

	if v.cur == nil {
		if err := v.begin(); err != nil {
			return fmt.Errorf("make a segment: %w", err)
		}
	}

	var buf []byte
	for _, r := range recs {
		at := len(buf)
		buf = r.appendTo(buf)
		copy(buf[at:], v.curMark[:])
	}

	_, err := v.cur.Write(buf)
	if err == nil {
		err = v.cur.Sync()
	}

	if err != nil {
		_ = v.cur.Close()
		v.cur = nil
		return fmt.Errorf("write a segment: %w", err)
	}

	v.curBytes += len(buf)
	return nil
}

// begin makes a segment with a head under a temporary name and renames it.
func (v *volume) begin() error {
	_, _ = crand.Read(v.curMark[:]) // never fails
	name := fmt.Sprintf("%s_%019d_%016x.log", v.id, v.now().UnixNano(), rand.Uint64())
	tmp := filepath.Join(v.dir, "."+name)
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}

	_, err = f.Write(append([]byte(segmentMagic), v.curMark[:]...))
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		v.own(name)
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

	v.cur, v.curBytes, v.curSince = f, 0, v.now()
	return nil
}

// list names the segments in the folder, sorted.
func (v *volume) list() ([]string, error) {
	d, err := os.Open(v.dir)
	if err != nil {
		return nil, fmt.Errorf("read the shared folder of jobs: %w", err)
	}
	defer d.Close()

	names, err := d.Readdirnames(maxListed)
	if err != nil && len(names) == 0 {
		if empty, _ := os.ReadDir(v.dir); len(empty) == 0 {
			return nil, nil
		}
		return nil, fmt.Errorf("read the shared folder of jobs: %w", err)
	}

	names = slices.DeleteFunc(names, func(n string) bool { return !handedName.MatchString(n) })
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(madeAt(a), madeAt(b)) })
	return names, nil
}

// madeAt is the time in a segment's name, as text that sorts.
func madeAt(name string) string {
	parts := strings.Split(name, "_")
	return parts[len(parts)-2] + name
}

// size is how long a segment is now.
func (v *volume) size(name string) (int64, error) {
	st, err := os.Lstat(filepath.Join(v.dir, name))
	if err != nil {
		return 0, fmt.Errorf("read a segment: %w", err)
	}
	return st.Size(), nil
}

// read calls each for every record of a segment. What follows the last whole
// record is perhaps being written.
func (v *volume) read(name string, each func(*record) error) error {
	path := filepath.Join(v.dir, name)
	if n, err := v.size(name); err != nil || n > maxHanded {
		if err == nil {
			err = fmt.Errorf("read %s: %w: %d bytes", path, ErrTooLarge, n)
		}
		return err
	}

	b, err := durable.Read(path, maxFile)
	if err != nil {
		return fmt.Errorf("read a segment: %w", err)
	}

	damaged, _, err := scan(b, each)
	if damaged > 0 {
		v.log.Warn("a segment in the shared folder is damaged", "path", path, "places", damaged)
	}

	return err
}

// clean removes segments that are older than keep.
func (v *volume) clean(keep time.Duration) {
	names, err := v.list()
	if err != nil {
		return
	}
	for _, n := range names {
		if st, err := os.Lstat(filepath.Join(v.dir, n)); err == nil && v.now().Sub(st.ModTime()) > keep {
			_ = os.Remove(filepath.Join(v.dir, n)) // another master may have been first
		}
	}
}
