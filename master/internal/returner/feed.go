package returner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"saltern/internal/pause"
	"saltern/master/internal/spool"
	"saltern/master/value"
)

const (
	// firstPause is the pause after an order has failed. The pause doubles with each failure, up to
	// lastPause.
	firstPause = 500 * time.Millisecond
	lastPause  = 15 * time.Second
	// triesAlone is how often an order must fail before a later order is tried. If the later order
	// succeeds, the returner is reachable, and refuses the failing order. Fewer failures, triesKnown,
	// suffice if the error is of the same kind as the error of the last refusal. One failure never
	// suffices: a deadlock in a database has the same kind as a row that it refuses.
	triesAlone = 5
	triesKnown = 3
	// maxProbeDistance is how many orders after the failing one may be skipped to find an order
	// that succeeds. After each probe that fails, the next probe skips about twice as many orders.
	maxProbeDistance = 4096
	// orderBytes bounds the total size of the records of one order, in bytes. A single record may
	// be larger.
	orderBytes = 16 << 20
)

// errMissing means that Salt's library has no such returner.
var errMissing = errors.New("there is no such returner of events")

// Worker is a session in Python that passes orders to a returner. *pyhost.Session implements it.
type Worker interface {
	Ask(ctx context.Context, order *value.Map) (*value.Map, error)
	Stale() bool
	Close()
}

// Stats are the metrics of one returner. The counters start at zero with the master.
type Stats struct {
	Returner string
	Waiting  uint64 // records that were not passed to the returner yet
	Done     uint64
	Lost     uint64 // records dropped because the spool was full or damaged
	Refused  uint64 // records that failed while later records succeeded
	Error    string // error of the last try; "" after a successful try
}

// feed passes the records of one spool to one returner.
type feed struct {
	name    string
	reader  *spool.Reader
	batch   int           // records in an order
	maxWait time.Duration // how long to wait for a full order; 0: without limit
	pause   time.Duration // pause after the first failure
	open    func(ctx context.Context) (Worker, error)
	eager   bool // open a worker before the first order arrives
	// telling reports whether the success of a record's call proves that the returner is reachable.
	// It may be nil: every success proves that.
	telling func(record []byte) bool
	log     *slog.Logger

	worker        Worker // used by handOver only; nil: no worker is open
	probeDistance int    // how many orders the next probe skips; used by handOver only
	lastLacking   bool   // the returner has no function for the last order; used by handOver only
	lastRefusal   string // kind of the last refusal, "" before the first; used by handOver only

	mu    sync.Mutex
	stats Stats
	since time.Time // when the call in progress began; zero: no call is in progress
	// changed is closed when an order is done, refused or has failed. It may be nil: nobody waits.
	changed chan struct{}
}

// order holds the records that one call passes to the returner.
type order struct {
	records [][]byte
	end     uint64 // number of the first record after the order's records
}

// handOver passes records to the returner until ctx ends.
func (f *feed) handOver(ctx context.Context) {
	defer func() {
		if f.worker != nil {
			f.worker.Close()
		}
	}()

	if f.eager {
		_ = f.openWorker(ctx) // after a failure the first order opens the worker and reports the error
	}

	tries := 0
	for {
		next, ok := f.nextOrder(ctx)
		if !ok {
			return
		}

		f.noteCall(time.Now())
		err := f.callReturner(ctx, next)
		f.noteCall(time.Time{})
		tries++
		if err != nil && ctx.Err() == nil && f.mayBeRefused(err, tries) {
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
			// A new worker opens new connections, and reads the current options and modules.
			f.closeWorker()
		}

		if pause.For(ctx, min(lastPause, f.pause<<min(tries-1, 10))) != nil {
			return
		}
	}
}

// nextOrder waits for the next order. It returns false if ctx ends first.
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

// callReturner calls the returner with the records of an order. If no worker is open, it opens one.
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

	f.lastLacking = reply.Bool("lacking")
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

// orderContext returns a context that ends a few seconds after ctx, so that a call in progress need
// not be repeated only because the master stops.
func orderContext(ctx context.Context) (context.Context, context.CancelFunc) {
	// After this time the worker of a call that hangs is killed.
	patient, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Minute)
	stop := context.AfterFunc(ctx, func() {
		// The master stops. A call in progress gets this much more time.
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

// mayBeRefused reports whether an order has failed so often that a later order is tried. err is the
// error of the last of the tries.
func (f *feed) mayBeRefused(err error, tries int) bool {
	return tries > triesAlone || tries >= triesKnown && kindOf(err) == f.lastRefusal
}

// probeRefused determines whether the returner refuses a failing order. The returner refuses the
// order if a later order succeeds and the failing order then fails again. probeRefused also passes
// the orders between the two to the returner. It counts an order as refused if the order fails with
// the same kind of error. It returns the last order that is done or refused. If there is none, it
// returns failed and why, the error of failed.
func (f *feed) probeRefused(ctx context.Context, failed order, why error) (order, error) {
	if errors.Is(why, errMissing) {
		return failed, why
	}

	later, between, err := f.orderAfter(failed)
	if err != nil || len(later.records) == 0 {
		return failed, why
	}
	if f.callReturner(ctx, later) != nil || f.lastLacking {
		f.probeDistance = min(2*f.probeDistance+1, maxProbeDistance)
		return failed, why // the returner is unreachable, or refuses this order, too
	}

	refusal := ""
	for o := failed; ; {
		err := f.callAgain(ctx, o, refusal)
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
		default: // another kind of error: the returner may have become unreachable
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

// callAgain calls the returner with an order. While the order fails with this kind of error, it calls
// again after a pause, up to triesKnown times. It returns the error of the last call.
func (f *feed) callAgain(ctx context.Context, o order, kind string) error {
	for tries := 1; ; tries++ {
		err := f.callReturner(ctx, o)
		if err == nil || kindOf(err) != kind || tries == triesKnown {
			return err
		}
		if pause.For(ctx, f.pause<<(tries-1)) != nil {
			return err
		}
	}
}

// orderAfter returns a telling order behind o: the first telling order behind probeDistance skipped
// orders, or the last telling order if there are fewer orders. between is the number of orders
// between o and later. If there is no telling order among the next 2*maxProbeDistance orders, later
// has no records.
func (f *feed) orderAfter(o order) (later order, between int, err error) {
	end := o.end
	for skipped := 0; ; skipped++ {
		var records [][]byte
		if records, end, err = f.reader.ReadFrom(end, f.batch, orderBytes); err != nil {
			return order{}, 0, err
		}
		if len(records) == 0 {
			return later, between, nil
		}

		next := order{records: records, end: end}
		if f.isTelling(next) {
			later, between = next, skipped
		}
		found := skipped >= f.probeDistance && len(later.records) > 0
		if found || skipped >= 2*maxProbeDistance {
			return later, between, nil
		}
	}
}

// isTelling reports whether an order is telling: its success proves that the returner is reachable.
func (f *feed) isTelling(o order) bool {
	return f.telling == nil || slices.ContainsFunc(o.records, f.telling)
}

// kindOf returns the text of a returner's error up to the first colon, which is the class of the
// exception.
func kindOf(err error) string {
	kind, _, _ := strings.Cut(err.Error(), ":")
	return kind
}

// countDone adds to the counters of records that the returner has stored and that it has refused.
func (f *feed) countDone(handed, refused int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stats.Done += uint64(handed)
	f.stats.Refused += uint64(refused)
}

// advanceTo records on disk that an order, and all orders before it, are done.
func (f *feed) advanceTo(ctx context.Context, o order) {
	f.countDone(len(o.records), 0)
	f.noteOutcome(nil)
	for {
		err := f.reader.Advance(o.end)
		if err == nil {
			f.signalChange()
			return
		}
		// The position is not on disk, so after a restart the returner would get the order again,
		// and likewise all further orders. Pass no orders until the disk works.
		f.noteOutcome(err)
		if pause.For(ctx, lastPause) != nil {
			return
		}
	}
}

// noteOutcome records the error of the last try. err is nil if the try succeeded.
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

// noteCall records when the call in progress began. The zero time means that the call has ended.
func (f *feed) noteCall(began time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.since = began
}

// awaitDone waits until all records before the record with this number are done. It returns early
// if the returner fails or ctx ends, and at once if the returner has not answered for loadWait.
func (f *feed) awaitDone(ctx context.Context, number uint64) {
	for {
		f.mu.Lock()
		if f.changed == nil {
			f.changed = make(chan struct{})
		}
		changed := f.changed
		hangs := !f.since.IsZero() && time.Since(f.since) > loadWait
		failing := hangs || f.stats.Error != ""
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

// Stats returns the current metrics.
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
