package notify

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"saltern/master/internal/notify/alert"
	"saltern/master/internal/notify/rules"
	"saltern/master/internal/spool"
)

// Bounds of an Outbox.
const (
	maxEntries = 20_000
	maxDisk    = 64 << 20 // bytes
	// keepFor is how long an alert and its marks are kept. It is longer than sendFor, so that marks
	// outlive the alerts that other nodes may still want to send.
	keepFor = 2 * sendFor
	// sendFor is the age from which an alert is not sent any more.
	sendFor = 24 * time.Hour
)

// Outcome says how an alert was settled for one destination.
type Outcome string

// The outcomes.
const (
	Sent     Outcome = "sent"
	Repeated Outcome = "repeated" // left out: the same was sent within Rule.Dedupe
	Silenced Outcome = "silenced" // left out: somebody had silenced it
	Refused  Outcome = "refused"  // the destination refused this message for good
	Expired  Outcome = "expired"  // it could not be sent within sendFor
	// Unselected: the minion is not in the target of the rule.
	Unselected Outcome = "unselected"
)

// Mark says that an alert is settled for one destination.
type Mark struct {
	Alert   string    `json:"alert"`
	To      string    `json:"to"`  // Destination.ID
	Key     string    `json:"key"` // of the alert
	At      time.Time `json:"at"`
	Outcome Outcome   `json:"outcome"`
	// Message is the id of the message that contained the alert. A summary contains many.
	Message string `json:"message,omitempty"`
}

// record is one record of the spool.
type record struct {
	Alert *alert.Alert `json:"alert,omitempty"`
	Marks []Mark       `json:"marks,omitempty"`
}

// inNoRecord is the number of an entry that the spool has not taken: no record must be kept for it.
const inNoRecord = ^uint64(0)

// entry is an alert and its marks.
type entry struct {
	number uint64 // of the oldest record about it in the spool, or inNoRecord
	since  time.Time
	alert  *alert.Alert // nil: another master has sent a mark, but not the alert
	marks  map[string]Mark
	// offered is set when this master has told the others of the alert after it had waited.
	offered bool
}

// Outbox holds the alerts of the last days and what became of them, on this node's own disk. It is
// safe for concurrent use.
type Outbox struct {
	route func(*alert.Alert) []string // ids of the destinations of an alert

	mu      sync.Mutex
	entries map[string]*entry
	order   []*entry // the oldest first
	lines   map[string]*line
	spool   *spool.Spool // nil: the disk does not take alerts
	reader  *spool.Reader
	fault   error // why the disk takes no alerts; nil: it does
	lost    uint64
	// lostBefore is the part of lost that load has found.
	lostBefore uint64
}

// OpenOutbox opens the outbox in a folder that no other process uses. known are the ids of all
// destinations, and since when each is known. route returns the ids of the destinations to which an
// alert goes. If the disk cannot be used, OpenOutbox returns an Outbox in memory, and the error.
func OpenOutbox(dir string, known map[string]time.Time, route func(*alert.Alert) []string) (*Outbox, error) {
	o := &Outbox{route: route, entries: map[string]*entry{}, lines: map[string]*line{}}
	for to, since := range known {
		o.lines[to] = newLine(to, since)
	}
	o.fault = o.load(dir)
	o.beginCounting()
	if o.fault != nil {
		return o, fmt.Errorf("open the outbox of notifications: %w", o.fault)
	}
	return o, nil
}

// beginCounting sets what sinceStart and lostSinceStart leave out.
func (o *Outbox) beginCounting() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lostBefore = o.lost
	for _, l := range o.lines {
		l.loaded = maps.Clone(l.counts)
	}
}

// load reads the records of the spool.
func (o *Outbox) load(dir string) error {
	opened, err := spool.Open(spool.Config{Dir: dir, Bytes: maxDisk, Durable: true})
	if err != nil {
		return err
	}

	reader, err := opened.Reader("state")
	if err != nil {
		return errors.Join(err, opened.Close())
	}

	o.mu.Lock()
	defer o.mu.Unlock()
	for at := uint64(0); ; {
		records, end, err := reader.ReadFrom(at, 1000, 4<<20)
		if err != nil {
			return errors.Join(err, opened.Close())
		}
		if len(records) == 0 {
			break
		}

		for i, content := range records {
			var r record
			if json.Unmarshal(content, &r) != nil {
				o.lost++ // the spool has a checksum: this is a record of a later release
				continue
			}
			o.learn(r, end-uint64(len(records)-i))
		}
		at = end
	}

	o.spool = opened
	o.reader = reader
	return nil
}

// learn adds a record to the memory. The caller holds mu.
func (o *Outbox) learn(r record, number uint64) {
	if r.Alert != nil && r.Alert.Clean() {
		e := o.entry(r.Alert.ID, number, r.Alert.Time)
		if e.alert == nil {
			e.alert = r.Alert
			for _, to := range o.route(r.Alert) {
				if l := o.lines[to]; l != nil && l.wants(e) {
					l.push(e)
				}
			}
		}
	}

	for _, m := range r.Marks {
		e := o.entry(m.Alert, number, m.At)
		if _, settled := e.marks[m.To]; settled {
			continue
		}
		e.marks[m.To] = m
		if l := o.lines[m.To]; l != nil {
			l.settle(m)
		}
	}
}

// entry returns the entry of an alert, and creates it if there is none. The caller holds mu.
func (o *Outbox) entry(id string, number uint64, at time.Time) *entry {
	e := o.entries[id]
	if e != nil {
		return e
	}
	for len(o.order) >= maxEntries {
		o.dropOldest()
	}
	e = &entry{number: number, since: at, marks: map[string]Mark{}}
	o.entries[id] = e
	o.order = append(o.order, e)
	return e
}

// dropOldest forgets the oldest entry. The caller holds mu.
func (o *Outbox) dropOldest() {
	oldest := o.order[0]
	o.order[0] = nil
	o.order = o.order[1:]
	o.forget(oldest)
}

// forget removes an entry from all but the order, and counts it as lost at each destination for which
// it still waits. The caller holds mu.
func (o *Outbox) forget(e *entry) {
	if e.alert == nil {
		for _, m := range e.marks {
			delete(o.entries, m.Alert)
		}
		return
	}

	delete(o.entries, e.alert.ID)
	for _, to := range o.route(e.alert) {
		_, settled := e.marks[to]
		if l := o.lines[to]; !settled && l != nil && l.remove(e) {
			o.lost++
		}
	}
}

// Record adds alerts that the outbox does not have, and returns them. They are on the disk when
// Record returns nil. After an error they are in memory only.
func (o *Outbox) Record(alerts ...alert.Alert) (fresh []alert.Alert, err error) {
	var end uint64
	o.mu.Lock()
	for _, a := range alerts {
		if known := o.entries[a.ID]; known != nil && known.alert != nil || !a.Clean() {
			continue
		}
		var added uint64
		if added, err = o.write(record{Alert: &a}); err == nil {
			end = added
		}
		fresh = append(fresh, a)
	}
	o.mu.Unlock()

	return fresh, o.sync(end, err)
}

// Settle adds marks that the outbox does not have, and returns them. As with Record, an error means
// that they are in memory only.
func (o *Outbox) Settle(marks ...Mark) (fresh []Mark, err error) {
	o.mu.Lock()
	for _, m := range marks {
		if e := o.entries[m.Alert]; e != nil {
			if _, settled := e.marks[m.To]; settled {
				continue
			}
		}
		fresh = append(fresh, m)
	}

	var end uint64
	if len(fresh) > 0 {
		end, err = o.write(record{Marks: fresh})
	}
	o.mu.Unlock()

	return fresh, o.sync(end, err)
}

// write adds a record to the spool, and then to the memory. The caller holds mu, and then calls sync
// with end.
func (o *Outbox) write(r record) (end uint64, err error) {
	content, err := json.Marshal(r)
	if err != nil {
		return 0, fmt.Errorf("pack a notification: %w", err)
	}

	if o.spool == nil {
		err = o.fault
	} else {
		end, err = o.spool.Write(content)
	}

	number := end - 1
	if err != nil {
		number = inNoRecord
	}
	o.learn(r, number)

	return end, err
}

// sync waits until the records before end are on the disk, unless writing them has failed with err.
func (o *Outbox) sync(end uint64, err error) error {
	if err == nil && end > 0 {
		err = o.spool.Sync(end)
	}
	if err != nil {
		return fmt.Errorf("keep a notification on the disk: %w", err)
	}
	return nil
}

// Prune forgets entries that are older than keepFor.
func (o *Outbox) Prune(now time.Time) error {
	o.mu.Lock()
	o.order = slices.DeleteFunc(o.order, func(e *entry) bool { // not only the first: a clock may have been ahead
		old := now.Sub(e.since) > keepFor
		if old {
			o.forget(e)
		}
		return old
	})
	for _, l := range o.lines {
		l.prune(now)
		l.since = notAfter(l.since, now)
	}

	needed := inNoRecord
	for _, e := range o.order {
		needed = min(needed, e.number)
	}
	reader := o.reader
	o.mu.Unlock()

	if reader == nil || needed == 0 || needed == inNoRecord {
		return nil
	}
	return reader.Advance(needed)
}

// Pending returns the alerts that wait for a destination, the oldest first, at most limit of them.
func (o *Outbox) Pending(limit int) (all []alert.Alert) {
	o.mu.Lock()
	defer o.mu.Unlock()
	waiting := map[*entry]bool{}
	for _, l := range o.lines {
		for _, e := range l.queue {
			waiting[e] = true
		}
	}
	for _, e := range o.order {
		if waiting[e] && len(all) < limit {
			all = append(all, *e.alert)
		}
	}
	return all
}

// unoffered returns the alerts from before a time that wait for a destination, each alert once.
func (o *Outbox) unoffered(before time.Time) (all []alert.Alert) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range o.lines {
		for _, e := range l.queue {
			if !e.offered && e.since.Before(before) {
				e.offered = true
				all = append(all, *e.alert)
			}
		}
	}
	slices.SortFunc(all, func(a, b alert.Alert) int { return a.Time.Compare(b.Time) })
	return all
}

// offerAgain has unoffered return alerts once more.
func (o *Outbox) offerAgain(alerts []alert.Alert) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, a := range alerts {
		if e := o.entries[a.ID]; e != nil {
			e.offered = false
		}
	}
}

// Marks returns what has become of alerts.
func (o *Outbox) Marks(ids []string) (all []Mark) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, id := range ids {
		if e := o.entries[id]; e != nil {
			for _, m := range e.marks {
				all = append(all, m)
			}
		}
	}
	slices.SortFunc(all, func(a, b Mark) int { return a.At.Compare(b.At) })
	return all
}

// Has reports whether the outbox has an alert.
func (o *Outbox) Has(id string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	e := o.entries[id]
	return e != nil && e.alert != nil
}

// next decides what to send now to a destination; see line.next.
func (o *Outbox) next(to string, rule *rules.Rule, by judge, now time.Time) (*alert.Message, []Mark) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lines[to].next(rule, by, now)
}

// counts returns how many alerts wait for a destination, and what became of those of the last days.
func (o *Outbox) counts(to string) (waiting int, by map[Outcome]uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	l := o.lines[to]
	return len(l.queue), maps.Clone(l.counts)
}

// sinceStart returns what became of alerts since the start. Metrics need it: a counter that begins with old
// alerts looks like new ones after a restart.
func (o *Outbox) sinceStart(to string) map[Outcome]uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	l := o.lines[to]
	since := maps.Clone(l.counts)
	for outcome, before := range l.loaded {
		since[outcome] -= before
	}
	return since
}

// waits reports whether an alert still waits for a destination.
func (o *Outbox) waits(to, id string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	e := o.entries[id]
	if e == nil {
		return false
	}
	_, settled := e.marks[to]
	return !settled
}

// Lost returns how many alerts were forgotten before anything became of them.
func (o *Outbox) Lost() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lost
}

func (o *Outbox) lostSinceStart() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lost - o.lostBefore
}

// Close closes the spool.
func (o *Outbox) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.spool == nil {
		return nil
	}
	return o.spool.Close()
}
