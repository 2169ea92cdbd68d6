package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"saltern/internal/pause"
	"saltern/master/internal/postgres/settings"
)

// Bounds of a batch. A single record may be larger.
const (
	batchRecords = 2000
	batchBytes   = 8 << 20
)

// Config configures a Sink. All fields but Lookups are required.
type Config struct {
	Settings *settings.Settings
	Node     string // name of this machine, for the column node
	Journal  *Journal
	Lookups  *Lookups // for the figures; may be nil: there are none
	Now      func() time.Time
	Log      *slog.Logger

	takeOver time.Duration // 0: the constant; tests set another
}

// Sink writes what waits in the journal into the database.
type Sink struct {
	cfg   Config
	feeds []*feed
}

// New returns a Sink. The caller calls Run.
func New(cfg Config) *Sink {
	s := &Sink{cfg: cfg}
	for _, l := range cfg.Journal.lanes() {
		f := newFeed(l, cfg.Settings, cfg.Node, cfg.Now, cfg.Log)
		if l == cfg.Journal.copied {
			f.wait = takeOver
			if cfg.takeOver > 0 {
				f.wait = cfg.takeOver
			}
		}
		s.feeds = append(s.feeds, f)
	}
	return s
}

// newFeed returns a feed of a lane that waits for no other master. node is as in database.
func newFeed(l *lane, s *settings.Settings, node string, now func() time.Time, log *slog.Logger) *feed {
	return &feed{
		lane: l,
		db: &database{
			settings:         s,
			node:             node,
			lockTimeout:      lockTimeout,
			statementTimeout: statementTimeout,
			maxAge:           maxConnection,
			log:              log,
		},
		now:        now,
		log:        log,
		limit:      batchRecords,
		firstPause: firstPause,
		idle:       idleConnection,
	}
}

// Run writes until ctx ends. A transaction that is at work then is taken back, and done after the next start.
func (s *Sink) Run(ctx context.Context) {
	var feeds sync.WaitGroup
	for _, f := range s.feeds {
		feeds.Go(func() { f.run(ctx) })
	}
	feeds.Wait()
}

// Stats are the figures of a Sink. The counters start at zero with the master.
type Stats struct {
	Waiting  uint64 // records on this node's disk
	Bytes    int64  // that they take there
	MaxBytes int64
	Fill     float64 // the fullest spool, as a part of its bound
	Written  uint64  // returns that this master has written
	Known    uint64  // returns that the database already had
	Adapted  uint64  // returns and loads that were written with a mark
	Refused  uint64  // records that the database does not take even without their content
	Lost     uint64  // records that were dropped because the spool was full or damaged
	// LostCopies counts returns that were dropped in the same way, but which another master took and has probably
	// written.
	LostCopies uint64
	Unkept     uint64    // records that this node's disk did not take
	Oversized  uint64    // records that were too large for the spool
	Unanswered uint64    // look-ups that the database did not answer
	Error      string    // of the last try; "" after a success
	Since      time.Time // when the tries began to fail; zero after a success
}

// Stats returns the figures. s may be nil.
func (s *Sink) Stats() (out Stats) {
	if s == nil {
		return out
	}
	for _, f := range s.feeds {
		f.addStats(&out)
	}
	out.Oversized = s.cfg.Journal.oversized.Load()
	out.Unkept = s.cfg.Journal.unkept.Load()
	if s.cfg.Lookups != nil {
		out.Unanswered = s.cfg.Lookups.unanswered.Load()
	}
	return out
}

// Times and sizes from which Fault reports.
const (
	faultAfter = time.Minute
	nearlyFull = 0.8 // part of the bound of a spool
)

// Fault returns what an administrator should look at by the figures of now: that the database has taken nothing for a
// minute, or that a spool is nearly full. Otherwise it returns nil.
func (s *Sink) Fault(st Stats) error { return faultOf(st, s.cfg.Now(), "saltern_postgres: spool") }

// faultOf is Fault for a spool whose size is set by this option.
func faultOf(st Stats, now time.Time, option string) error {
	waiting := fmt.Sprintf("%d records wait in %d MiB of %d MiB (%s)", st.Waiting, st.Bytes>>20, st.MaxBytes>>20, option)
	failing := now.Sub(st.Since)
	switch {
	case st.Error != "" && (failing >= faultAfter || failing < 0):
		return fmt.Errorf("nothing gets into the database: %s; %s", st.Error, waiting)
	case st.Fill >= nearlyFull:
		return fmt.Errorf("the spool is nearly full, then the oldest records are dropped: %s", waiting)
	}
	return nil
}

// feed writes the records of one lane.
type feed struct {
	lane  *lane
	db    *database
	wait  time.Duration // how old a record must be; 0: it is written at once
	now   func() time.Time
	log   *slog.Logger
	limit int // records of the next batch; it shrinks when batches fail

	firstPause time.Duration
	idle       time.Duration // how long a connection without use is kept
	outage     bool          // since the last success the database was away, or did not take plain rows either
	recovered  bool          // the last batch was the first after an outage
	sample     sample

	mu    sync.Mutex
	stats Stats
}

// run writes the lane's records until ctx ends.
func (f *feed) run(ctx context.Context) {
	defer f.db.close()
	for {
		records, end, ok := f.next(ctx)
		if !ok {
			return
		}
		for len(records) > 0 {
			n := min(len(records), f.limit)
			if !f.deliver(ctx, records[:n]) {
				return
			}
			records = records[n:]
			f.limit = min(2*f.limit, batchRecords)
			if !f.letOwnersWrite(ctx) {
				return
			}
		}
		if !f.advance(ctx, end) {
			return
		}
	}
}

// letOwnersWrite waits, in the lane of copies, after the first batch that follows an outage: the masters that took the
// returns write what has waited, and this lane would write the same. It returns false if ctx ends first.
func (f *feed) letOwnersWrite(ctx context.Context) bool {
	wait := f.recovered && f.wait > 0
	f.recovered = false
	return !wait || pause.For(ctx, f.wait) == nil
}

// next waits for records that are old enough, and returns them. It returns false if ctx ends first.
func (f *feed) next(ctx context.Context) (records []record, end uint64, ok bool) {
	r := f.lane.reader
	for {
		if r.Waiting() > 0 && !r.Enough(batchRecords, batchBytes) && pause.For(ctx, gather) != nil {
			return nil, 0, false
		}
		packed, end, err := r.Read(batchRecords, batchBytes)
		if err != nil {
			f.noteFailure(fmt.Errorf("read what waits on this node's disk: %w", err), 1)
			if pause.For(ctx, lastPause) != nil {
				return nil, 0, false
			}
			continue
		}

		first := end - uint64(len(packed))
		records, due, later := f.parse(packed)
		if due > 0 {
			return records, first + uint64(due), true
		}

		if len(packed) == 0 {
			if !f.awaitRecords(ctx) {
				return nil, 0, false
			}
			continue
		}
		if pause.For(ctx, later) != nil {
			return nil, 0, false
		}
	}
}

// awaitRecords waits until the spool has records, and closes a connection that has no use meanwhile. It returns false
// if ctx ends first.
func (f *feed) awaitRecords(ctx context.Context) bool {
	idle := time.NewTimer(f.idle)
	defer idle.Stop()
	for {
		select {
		case <-f.lane.reader.Ready():
			return true
		case <-idle.C:
			f.db.close()
		case <-ctx.Done():
			return false
		}
	}
}

// parse reads records up to the first that is not old enough; due is how many these are, and later is the time until
// that one and some after it are. Damaged ones are counted and left out.
func (f *feed) parse(packed [][]byte) (records []record, due int, later time.Duration) {
	for _, b := range packed {
		r, err := parseRecord(b)
		if err != nil {
			f.log.Error("record for PostgreSQL cannot be read and is left out", "error", err)
			f.count(func(s *Stats) { s.Refused++ })
			due++
			continue
		}
		// A clock that was put back makes no record wait longer.
		if age := f.now().Sub(r.added); age >= 0 && age < f.wait {
			return records, due, f.wait - age + f.wait/takeOverParts
		}
		records = append(records, r)
		due++
	}
	return records, due, 0
}

// deliver writes records, and divides them if the database refuses some. It returns false if ctx ends
// first.
func (f *feed) deliver(ctx context.Context, records []record) bool {
	failures := 0 // of a connection that works
	for tries := 1; ; tries++ {
		connected, err := f.try(ctx, records, "")
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}

		kind := away
		if connected {
			kind = refusalOf(err)
		}
		if kind != away {
			failures++
		}
		suspects := kind != away && (len(records) > 1 || failures >= kind.tries())
		if suspects && f.takesAnything(ctx) {
			if half := len(records) / 2; half > 0 {
				f.limit = half
				return f.deliver(ctx, records[:half]) && f.deliver(ctx, records[half:])
			}
			if done, ok := f.mark(ctx, &records[0], err); done || !ok {
				return ok
			}
		}

		f.outage = f.outage || kind == away || suspects
		f.noteFailure(err, tries)
		if tries%2 == 0 {
			f.db.close() // the name of the host may mean another server now
		}
		if pause.For(ctx, min(lastPause, f.firstPause<<min(tries-1, 10))) != nil {
			return false
		}
	}
}

// takesAnything reports whether the database takes plain rows, so that the records must be at fault if it
// refuses them.
func (f *feed) takesAnything(ctx context.Context) bool {
	return f.db.connect(ctx) == nil && f.db.probe(ctx, f.sample) == nil
}

// mark writes a record without its content, because the database refuses it. If it refuses that as well, the record is
// counted and left out. done is false if the database is away or slow; ok is false if ctx has ended.
func (f *feed) mark(ctx context.Context, r *record, why error) (done, ok bool) {
	reason := wordError(why, f.db.password).Error()
	connected, err := f.try(ctx, []record{*r}, reason)
	if ctx.Err() != nil {
		return false, false
	}
	if err != nil && (!connected || refusalOf(err) == away || refusalOf(err) == suspect) {
		return false, true
	}

	if err != nil {
		f.count(func(s *Stats) { s.Refused++ })
	}
	f.log.Error("PostgreSQL does not take a record; it is written without its content",
		append(r.logName(), "written", err == nil, "error", reason)...)
	return true, true
}

// try writes records once. connected is false if there was no connection to write them by.
func (f *feed) try(ctx context.Context, records []record, reason string) (connected bool, err error) {
	if err := f.db.connect(ctx); err != nil {
		return false, err
	}

	want := records
	if f.wait > 0 {
		if want, err = f.db.missing(ctx, records); err != nil {
			return true, err
		}
	}
	b := newBatch(want, f.db.node, reason)
	fresh, err := f.db.write(ctx, b)
	if err != nil {
		return true, err
	}

	if fresh == len(b.runs)+len(b.events) && reason == "" {
		f.sample.choose(want)
	}
	f.recovered = f.recovered || f.outage
	f.outage = false
	f.count(func(s *Stats) {
		if s.Error != "" {
			f.log.Info("PostgreSQL takes records again", "path", f.lane.dir)
		}
		s.Written += uint64(fresh)
		s.Known += uint64(len(records) - len(b.loads) - fresh)
		s.Adapted += uint64(b.marked)
		s.Error = ""
		s.Since = time.Time{}
	})
	return true, nil
}

// advance records on disk that the records before end are done. It returns false if ctx ends first.
func (f *feed) advance(ctx context.Context, end uint64) bool {
	for {
		err := f.lane.reader.Advance(end)
		if err == nil {
			f.count(func(s *Stats) {
				s.Error = ""
				s.Since = time.Time{}
			})
			return true
		}
		f.noteFailure(fmt.Errorf("note on this node's disk what is written: %w", err), 1)
		if pause.For(ctx, lastPause) != nil {
			return false
		}
	}
}

func (f *feed) count(change func(*Stats)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.stats)
}

// noteFailure notes an error and logs the first in a row.
func (f *feed) noteFailure(err error, tries int) {
	worded := wordError(err, f.db.password)
	if tries == 1 && f.Error() == "" {
		f.log.Warn("nothing gets into PostgreSQL; records wait on this node's disk", "path", f.lane.dir, "error", worded)
	}
	f.note(worded)
}

// Error returns the error of the last try.
func (f *feed) Error() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stats.Error
}

func (f *feed) note(err error) {
	f.count(func(s *Stats) {
		s.Error = err.Error()
		if s.Since.IsZero() {
			s.Since = f.now()
		}
	})
}

// addStats adds the figures of the lane.
func (f *feed) addStats(out *Stats) {
	waiting, lost := f.lane.reader.Waiting(), f.lane.reader.Lost()
	size := f.lane.spool.Size()
	f.mu.Lock()
	defer f.mu.Unlock()
	out.Waiting += waiting
	if f.wait > 0 {
		out.LostCopies += lost
	} else {
		out.Lost += lost
	}
	out.Bytes += size
	out.MaxBytes += f.lane.bytes
	out.Fill = max(out.Fill, float64(size)/float64(f.lane.bytes))
	out.Written += f.stats.Written
	out.Known += f.stats.Known
	out.Adapted += f.stats.Adapted
	out.Refused += f.stats.Refused
	if f.stats.Error != "" && (out.Error == "" || f.stats.Since.Before(out.Since)) {
		out.Error = f.stats.Error
		out.Since = f.stats.Since
	}
}
