package jobs

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"saltern/master/msgpack"
)

// Config configures a Local cache. A field that is zero has the default that its comment states.
type Config struct {
	Dir          string // <cachedir>/jobs
	JournalDir   string // folder of the journal, on a local disk; default Dir + ".journal"
	HashType     string // hash_type; default sha256
	QueueBytes   int64  // most bytes of records that wait to become files; default 128 MiB
	MaxReturn    int    // most bytes of a packed load or return; default 64 MiB
	SegmentBytes int64  // size in bytes at which a new segment begins; default 16 MiB
	// Endtimes means that each return sets the end time of its job (job_cache_store_endtime).
	Endtimes bool
	// Shared means that a Cluster uses this cache and hands records over.
	Shared bool
	// Files means that each job and return becomes files. Otherwise they stay in the segments of the journal
	// until Clean, and only the load of a job that this master publishes becomes files.
	Files bool
	// Unfinished returns the ids of the jobs whose folders Clean must keep, because batches of them go on. It
	// may be nil: there are none.
	Unfinished func() (map[string]bool, error)
	// SegmentAge is the age at which a segment that stays is ended; default an hour and a half.
	SegmentAge time.Duration
	Archive    Archive // may be nil: returns are kept by the cache only
	DirMode    fs.FileMode
	FileMode   fs.FileMode
	Now        func() time.Time

	retry    time.Duration // first pause after a failed write; default 100 ms
	mostHome int           // records that stay in segments; default maxHomeRecords
	// test hook: an error that it returns is the result of the operation op; nil outside of tests
	fault func(op string) error
}

func (c *Config) setDefaults() {
	c.JournalDir = cmp.Or(c.JournalDir, c.Dir+".journal")
	if c.QueueBytes <= 0 {
		c.QueueBytes = 128 << 20
	}

	if c.MaxReturn <= 0 {
		c.MaxReturn = 64 << 20
	}

	c.QueueBytes = max(c.QueueBytes, int64(c.MaxReturn)+1<<20)
	if c.SegmentBytes <= 0 {
		c.SegmentBytes = 16 << 20
	}

	c.SegmentAge = cmp.Or(max(c.SegmentAge, 0), 90*time.Minute)
	c.mostHome = cmp.Or(c.mostHome, maxHomeRecords)
	c.DirMode = cmp.Or(c.DirMode, 0o750)
	c.FileMode = cmp.Or(c.FileMode, 0o640)
	if c.Now == nil {
		c.Now = time.Now
	}

	if c.retry <= 0 {
		c.retry = 100 * time.Millisecond
	}
}

// Local is the Cache on this machine's disk; the package comment describes it.
type Local struct {
	cfg     Config
	log     *slog.Logger
	ids     *IDs
	files   files
	journal *journal
	home    *home
	overlay *overlay
	queue   *queue
	known   *known[jobFacts]
	listing listing

	// leftover describes records of an earlier run that may not be in the shared folder. It is used
	// only if Config.Shared is set.
	leftover leftover
	unhanded atomic.Pointer[func() map[string]bool] // returns the jobs with records not handed over; set by the Cluster

	stop       context.CancelFunc
	stopRefill context.CancelFunc
	wg         sync.WaitGroup

	// The background writer uses these, and Close after it.
	failures    archiveFailures
	journalKept bool // a checkpoint has failed, and none has succeeded since
	leftOut     int  // returns that the archive has not taken since it took the last one

	stalled     atomic.Bool
	unshown     atomic.Bool // the files of the latest load could not be written
	quarantined atomic.Uint64
	duplicates  atomic.Uint64
	unarchived  atomic.Uint64
	early       atomic.Uint64
}

var _ Cache = (*Local)(nil)

// JournalDir returns the folder of the journal. Every record is written there first.
func (c *Local) JournalDir() string { return c.cfg.JournalDir }

// Open opens the cache, replays the journal of an earlier run, and starts two goroutines, and a third that fills an
// archive which has lost returns. Close ends them.
func Open(cfg Config, log *slog.Logger) (*Local, error) {
	cfg.setDefaults()
	lay, err := newLayout(cfg.Dir, cfg.HashType)
	if err != nil {
		return nil, err
	}

	if err := os.MkdirAll(cfg.Dir, cfg.DirMode); err != nil {
		return nil, fmt.Errorf("open job cache: %w", err)
	}

	j, err := openJournal(cfg.JournalDir, cfg.SegmentBytes, log)
	if err != nil {
		return nil, err
	}

	j.fault, j.noteJobs = cfg.fault, cfg.Shared
	j.home = newHome(log)
	j.home.archived = cfg.Archive != nil
	j.home.closed = cfg.Files
	j.home.most = cfg.mostHome
	j.now = cfg.Now
	j.segAge = cfg.SegmentAge
	if j.nextNumber, err = j.home.loadKept(cfg.JournalDir); err != nil {
		j.unlock()
		return nil, err
	}

	c := &Local{
		cfg: cfg,
		log: log,
		ids: NewIDs(cfg.Now),
		files: files{
			layout:   lay,
			dirMode:  cfg.DirMode,
			fileMode: cfg.FileMode,
			endtimes: cfg.Endtimes,
			fault:    cfg.fault,
		},
		journal: j,
		home:    j.home,
		overlay: newOverlay(),
		queue:   newQueue(cfg.QueueBytes),
		known:   newKnown[jobFacts](knownMax),
		listing: newListing(),
	}

	j.owner = c
	if err := c.replay(); err != nil {
		j.unlock()
		return nil, err
	}

	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	refilling, stopRefill := context.WithCancel(ctx)
	c.stopRefill = stopRefill
	if f := c.newRefill(); f != nil {
		c.wg.Go(func() { f.run(refilling) })
	}
	c.wg.Add(1)
	go j.commit()
	go c.materialise(ctx)

	return c, nil
}

func checkRecord(r *record) error {
	if err := checkJID(r.jid); err != nil {
		return err
	}
	if r.kind == kindReturn || r.kind == kindMinions && r.id != "" {
		return checkID(r.id)
	}
	return nil
}

// committed handles a batch that the journal has written, or has failed to write if err is not nil.
func (c *Local) committed(recs []*record, err error) {
	if err == nil {
		c.overlay.committed(recs)
		for _, r := range recs {
			r.finish(nil)
		}
		c.queue.push(recs)
		return
	}
	c.known.forget() // forget loads that the failed batch did not store
	for _, r := range recs {
		c.withdrawRecord(r, err)
	}
}

// withdrawRecord removes a record from the overlay and the queue, because the record was not
// written to the journal. It passes err to the callers that wait for the record.
func (c *Local) withdrawRecord(r *record, err error) {
	c.overlay.remove(r)
	c.queue.room.Release(r.cost)
	r.finish(err)
}

// sealed has the background writer look for segments that can be kept.
func (c *Local) sealed() { c.queue.poke() }

func (c *Local) archivedSince() time.Time {
	if c.cfg.Archive == nil {
		return time.Time{}
	}
	return c.cfg.Archive.WholeSince()
}

// removedEarly notes that a segment was removed, with the loads of its jobs.
func (c *Local) removedEarly() {
	c.early.Add(1)
	c.known.forget()
}

// Close refuses new records and waits until the accepted records have become files, or until ctx
// ends. The next Open replays the remaining records from the journal, so that a slow disk, or a shared folder that has
// used up the time, is no failure.
func (c *Local) Close(ctx context.Context) error {
	c.stopRefill()
	c.journal.close()
	c.queue.close()
	undo := context.AfterFunc(ctx, c.stop)
	defer undo()
	c.wg.Wait()
	c.stop()
	c.checkpoint()
	if err := c.noteUnhanded(nil); err != nil {
		c.log.Error("job cache", "error", err)
	}
	if left := c.Stats().OpenJobs; left > 0 {
		c.log.Warn("not all records of the job cache were written as files in time: the next start goes on from the journal",
			"jobs", left)
	}
	c.journal.unlock()
	return nil
}

// Stats holds counters since the start, and present sizes.
type Stats struct {
	Records, Commits uint64 // numbers of records written to the journal, and of syncs of the journal
	QueueBytes       int64  // bytes of the records that are not files yet
	OpenJobs         int    // jobs with records that are not files yet
	Segments         int
	Duplicates       uint64 // returns that were not stored because they were stored already
	Quarantined      uint64 // records and segments put into quarantine
	RemovedEarly     uint64 // segments that have made room on a full disk
	Unarchived       uint64 // returns that the archive did not take
	Stalled          bool   // files cannot be written at present
}

// Stats returns the counters.
func (c *Local) Stats() Stats {
	s := Stats{
		Duplicates:  c.duplicates.Load(),
		Quarantined: c.quarantined.Load(),
		Unarchived:  c.unarchived.Load(),

		RemovedEarly: c.early.Load(),
		Stalled:      c.stalled.Load(),
	}
	c.journal.mu.Lock()
	s.Records = c.journal.records
	s.Commits = c.journal.commits
	s.Segments = len(c.journal.segments)
	c.journal.mu.Unlock()
	c.queue.mu.Lock()
	s.QueueBytes = c.queue.bytes
	c.queue.mu.Unlock()
	c.overlay.mu.RLock()
	s.OpenJobs = len(c.overlay.jobs)
	c.overlay.mu.RUnlock()
	return s
}

// packBounded packs a value, and returns ErrTooLarge if the packed form has more than MaxReturn
// bytes. name stands for the value in error texts.
func (c *Local) packBounded(name string, v any) ([]byte, error) {
	b, err := msgpack.Marshal(v, msgpack.Modern)
	if err != nil {
		return nil, fmt.Errorf("pack %s: %w", name, err)
	}
	if len(b) > c.cfg.MaxReturn {
		return nil, fmt.Errorf("%w: %s of %d bytes", ErrTooLarge, name, len(b))
	}
	return b, nil
}

// recordCost is roughly how many bytes of memory a record takes beside its content.
const recordCost = 512

// reserveRoom waits until the queue has room for the bytes of the records. It prepares them for callers of wait.
func (c *Local) reserveRoom(ctx context.Context, recs ...*record) error {
	var sum int64
	for _, r := range recs {
		r.done = make(chan struct{})
		r.cost = int64(r.size()) + recordCost
		if r.time == 0 { // else another master made the record
			r.time = c.cfg.Now().UnixNano()
		}
		sum += r.cost
	}
	if err := c.queue.room.Acquire(ctx, sum); err != nil {
		return fmt.Errorf("job cache is busy: %w", err)
	}
	return nil
}

// giveBack releases the room that reserveRoom took.
func (c *Local) giveBack(recs ...*record) {
	for _, r := range recs {
		c.queue.room.Release(r.cost)
	}
}
