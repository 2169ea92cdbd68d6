package returner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"saltern/internal/pause"
	"saltern/master/internal/spool"
	"saltern/master/value"
)

const (
	// firstPause is the pause after a failed order. It doubles up to lastPause.
	firstPause = 500 * time.Millisecond
	lastPause  = 15 * time.Second
	// triesAlone is how often a failing order is tried before a later one is, to tell a returner
	// that is away from an order that it refuses. An error of the kind that was a refusal the last
	// time is probed at once.
	triesAlone = 5
	// maxProbeDistance is how many orders after a failing one are skipped, at most, to find one
	// that succeeds. Each probe goes twice as far as the last.
	maxProbeDistance = 4096
	// orderBytes bounds the records of one order together; a single record may be larger.
	orderBytes = 16 << 20
)

// errMissing means that Python does not have the function of the returner.
var errMissing = errors.New("there is no such returner of events")

// Worker is a session of Python that takes orders (pyhost.Session).
type Worker interface {
	Ask(ctx context.Context, order *value.Map) (*value.Map, error)
	Stale() bool
	Close()
}

// Stats of one returner. Counters begin at the master's start.
type Stats struct {
	Returner string
	Waiting  uint64 // records
	Done     uint64
	Lost     uint64 // records that were dropped for room
	Refused  uint64 // records that failed while later ones succeeded
	Error    string // error of the last try; "": it succeeded
}

// feed hands the records of a spool to one returner.
type feed struct {
	name    string
	reader  *spool.Reader
	batch   int           // records in an order
	maxWait time.Duration // after which fewer records are an order; 0: never
	pause   time.Duration // pause after the first failure
	open    func(ctx context.Context) (Worker, error)
	eager   bool // opens a worker before there is an order
	log     *slog.Logger

	worker        Worker // nil: none; used by handOver
	probeDistance int    // orders that the next probe skips; used by handOver
	lastRefusal   string // kind of the last refusal; "": none yet; used by handOver

	mu      sync.Mutex
	stats   Stats
	changed chan struct{} // closed when an order is done or has failed; nil: nobody waits
}

// order holds the records of one call.
type order struct {
	records [][]byte
	end     uint64 // number of the record after them
}

// handOver hands records over until ctx ends.
func (f *feed) handOver(ctx context.Context) {
	defer func() {
		if f.worker != nil {
			f.worker.Close()
		}
	}()

	if f.eager {
		_ = f.openWorker(ctx) // the first order tries again, and says why it fails
	}

	tries := 0
	for {
		next, ok := f.nextOrder(ctx)
		if !ok {
			return
		}

		err := f.callReturner(ctx, next)
		tries++
		if err != nil && ctx.Err() == nil && (tries > triesAlone || kindOf(err) == f.lastRefusal) {
			next, err = f.probeRefused(ctx, next, err)
		}

		if err == nil {
			f.advanceTo(ctx, next)
			tries = 0
			f.probeDistance = 0
			continue
		}

		if ctx.Err() != nil {
			return
		}

		if tries == 1 {
			f.log.Warn("a returner has failed; it is tried again, and what it is to get waits on the disk",
				"returner", f.name, "error", err)
		}

		f.noteOutcome(err)
		if tries%2 == 0 && f.worker != nil {
			f.closeWorker() // another one has no broken connection, and reads the options and modules of then
		}

		if pause.For(ctx, min(lastPause, f.pause<<min(tries-1, 10))) != nil {
			return
		}
	}
}

// nextOrder waits for the next order.
func (f *feed) nextOrder(ctx context.Context) (order, bool) {
	var late <-chan time.Time
	overdue := false
	for {
		if overdue || f.reader.Enough(f.batch, orderBytes) {
			records, end, err := f.reader.Read(f.batch, orderBytes)
			if len(records) > 0 {
				return order{records: records, end: end}, true
			}

			overdue = false
			if err != nil {
				f.noteOutcome(err)
				if pause.For(ctx, lastPause) != nil {
					return order{}, false
				}
				continue
			}
		}

		if f.maxWait > 0 && late == nil && f.reader.Waiting() > 0 {
			t := time.NewTimer(f.maxWait)
			defer t.Stop()
			late = t.C
		}

		select {
		case <-f.reader.Ready():
		case <-late:
			overdue = true
			late = nil
		case <-ctx.Done():
			return order{}, false
		}
	}
}

// callReturner makes the call for an order.
func (f *feed) callReturner(ctx context.Context, o order) error {
	ctx, cancel := orderContext(ctx)
	defer cancel()
	if f.worker != nil && f.worker.Stale() {
		f.closeWorker()
	}

	if err := f.openWorker(ctx); err != nil {
		return err
	}

	items := make([]any, len(o.records))
	for i, record := range o.records {
		items[i] = record
	}

	reply, err := f.worker.Ask(ctx, value.NewMap("returner", f.name, "items", items))
	if err != nil {
		f.closeWorker()
		return err
	}

	if text := reply.Str("error"); text != "" {
		if reply.Bool("missing") {
			return fmt.Errorf("%w: %s", errMissing, text)
		}
		return errors.New(text)
	}

	return nil
}

// openWorker opens a worker if there is none.
func (f *feed) openWorker(ctx context.Context) error {
	if f.worker != nil {
		return nil
	}
	worker, err := f.open(ctx)
	if err != nil {
		return err
	}
	f.worker = worker
	return nil
}

// orderContext outlives the master's context a little, so that a running call need not be repeated
// only because the master stops.
func orderContext(ctx context.Context) (context.Context, context.CancelFunc) {
	// A call that hangs is killed with its process.
	patient, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Minute)
	stop := context.AfterFunc(ctx, func() {
		// The master stops: the running order may take this long.
		if pause.For(patient, 5*time.Second) == nil {
			cancel()
		}
	})
	return patient, func() { stop(); cancel() }
}

func (f *feed) closeWorker() {
	f.worker.Close()
	f.worker = nil
}

// probeRefused finds out whether a failing order is refused: a later one succeeds, and it fails
// once more. The orders in between are handed over too, or refused for the same reason. It returns
// the order up to which all is settled.
func (f *feed) probeRefused(ctx context.Context, failed order, why error) (order, error) {
	if errors.Is(why, errMissing) {
		return failed, why
	}

	later, between, err := f.orderAfter(failed)
	if err != nil || len(later.records) == 0 {
		return failed, why
	}
	if f.callReturner(ctx, later) != nil {
		f.probeDistance = min(2*f.probeDistance+1, maxProbeDistance)
		return failed, why // the returner is away, or refuses this order too
	}

	refusal := ""
	for o := failed; ; {
		err := f.callReturner(ctx, o)
		switch {
		case err == nil:
			f.countDone(len(o.records), 0)
		case ctx.Err() != nil:
			return failed, why
		case refusal == "" && o.end == failed.end, kindOf(err) == refusal:
			refusal = kindOf(err)
			f.lastRefusal = refusal
			f.countDone(0, len(o.records))
			f.log.Error("a returner refuses what it got, again and again, but takes what comes after it; it is left out",
				"returner", f.name, "records", len(o.records), "error", err)
		default: // it may be away again
			return order{end: failed.end}, nil
		}

		failed.end = o.end
		between--
		if between < 0 {
			return later, nil
		}

		if o.records, o.end, err = f.reader.ReadFrom(o.end, f.batch, orderBytes); err != nil {
			return order{end: failed.end}, nil
		}
	}
}

// orderAfter returns the order behind the skipped ones, and how many were skipped: fewer when there
// are no more.
func (f *feed) orderAfter(o order) (later order, between int, err error) {
	for between = -1; between < f.probeDistance; between++ {
		records, end, err := f.reader.ReadFrom(max(later.end, o.end), f.batch, orderBytes)
		if err != nil {
			return order{}, 0, err
		}
		if len(records) == 0 {
			break
		}
		later = order{records: records, end: end}
	}
	return later, max(between, 0), nil
}

// kindOf returns the beginning of a returner's error: the class of the exception.
func kindOf(err error) string {
	kind, _, _ := strings.Cut(err.Error(), ":")
	return kind
}

// countDone adds to the records that were handed over, and to the refused ones.
func (f *feed) countDone(done, refused int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stats.Done += uint64(done)
	f.stats.Refused += uint64(refused)
}

// advanceTo notes that an order, and all before it, was handed over.
func (f *feed) advanceTo(ctx context.Context, o order) {
	f.countDone(len(o.records), 0)
	f.noteOutcome(nil)
	for {
		err := f.reader.Advance(o.end)
		if err == nil {
			f.signalChange()
			return
		}
		// After a restart it would be handed over again. More calls would make that worse.
		f.noteOutcome(err)
		if pause.For(ctx, lastPause) != nil {
			return
		}
	}
}

// noteOutcome notes the outcome of the last try.
func (f *feed) noteOutcome(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stats.Error = ""
	if err != nil {
		f.stats.Error = err.Error()
		f.signalChangeLocked()
	}
}

func (f *feed) signalChange() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.signalChangeLocked()
}

func (f *feed) signalChangeLocked() {
	if f.changed != nil {
		close(f.changed)
		f.changed = nil
	}
}

// awaitDone waits until all records before the number were handed over. It returns early when the
// returner fails or ctx ends.
func (f *feed) awaitDone(ctx context.Context, number uint64) {
	for {
		f.mu.Lock()
		if f.changed == nil {
			f.changed = make(chan struct{})
		}
		changed, failing := f.changed, f.stats.Error != ""
		f.mu.Unlock()

		if failing || f.reader.Past(number) {
			return
		}

		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// Stats returns the figures.
func (f *feed) Stats() Stats {
	waiting, lost := f.reader.Waiting(), f.reader.Lost()
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.stats
	s.Returner = f.name
	s.Waiting = waiting
	s.Lost = lost
	return s
}
