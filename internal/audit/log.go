package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Bounds of a [Log].
const (
	// maxWaiting bounds the records that are queued or being written. The last actsReserve places
	// are for acts of administrators. Overflow policy: the newest record is lost and counted, and
	// the next record that is written states the count. A lost act is also logged to Config.Log.
	maxWaiting  = 8192
	actsReserve = 2048
	// WriteTakes is how long [Log.Write] waits for the disk.
	WriteTakes = time.Second
	closeTakes = 2 * time.Second
	hangsAfter = 5 * time.Second // a disk that takes longer is reported as a fault
)

// Config configures a [Log].
type Config struct {
	Dir     string // folder of the records; created with the first record
	Node    string
	Program string
	Now     func() time.Time // nil: time.Now
	// Log gets a line for each act of an administrator whose record is lost or late. It may be nil.
	Log *slog.Logger
}

// Log writes records in the background: only callers of Write wait for the disk. It is safe for
// concurrent use.
type Log struct {
	cfg Config

	mu      sync.Mutex
	waiting []waiting
	flying  int    // number of records that are being written
	lost    uint64 // number of records lost since the last record that states such a number
	missing uint64 // number of records lost since the disk stopped taking writes
	fault   error
	writing time.Time // when the present write began; zero: none is under way
	ended   bool
	rates   rates

	wake chan struct{}
	stop chan struct{}
	done chan struct{}
}

// waiting is a record on its way to the disk.
type waiting struct {
	line []byte
	book string        // name of the book
	done chan struct{} // closed when the record is written; nil: nobody waits
	act  Record        // set only for an act: logged to Config.Log when the record is lost
}

// Open returns a log. It does no I/O before the first record. The caller must call Close.
func Open(cfg Config) *Log {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	l := &Log{
		cfg:   cfg,
		rates: newRates(),
		wake:  make(chan struct{}, 1),
		stop:  make(chan struct{}),
		done:  make(chan struct{}),
	}
	go l.runWriter() // Close waits for this goroutine
	return l
}

// Note queues a record and does not wait for the disk. A nil Log drops the record.
func (l *Log) Note(r Record) { l.putRecord(r, nil) }

// Write queues a record and waits until it is on the disk, for at most [WriteTakes]. The caller
// carries out the act whether or not the record was written: a full disk must not keep an
// administrator from removing a node or a key. A late record is written later, or lost and counted.
// In both cases the act also goes to Config.Log, so that the system's log has it.
func (l *Log) Write(ctx context.Context, r Record) {
	done := make(chan struct{})
	if !l.putRecord(r, done) {
		return
	}

	t := time.NewTimer(WriteTakes)
	defer t.Stop()
	select {
	case <-done:
		return
	case <-t.C:
	case <-ctx.Done():
	}

	if shelfOf(r) == actsShelf {
		l.logLost("an act is not in the audit record yet", r, l.Fault())
	}
}

// logLost writes to the program's log an act whose record may be lost.
func (l *Log) logLost(message string, r Record, fault error) {
	if l.cfg.Log == nil {
		return
	}
	r = r.bounded()
	l.cfg.Log.Error(message, "user", r.Who(), "from", r.From, "action", r.Action, "object", r.Object,
		"result", string(r.Result), "op", r.Op, "error", fault)
}

// putRecord queues a record. It reports whether the record will be written.
func (l *Log) putRecord(r Record, done chan struct{}) bool {
	if l == nil {
		return false
	}
	book := shelfOf(r)
	taken, fault := l.queueRecord(r, book, done)
	if !taken && fault != nil && book == actsShelf {
		l.logLost("an act is lost to the audit record", r, fault)
	}
	return taken
}

// queueRecord queues a record and reports in taken whether it did. If the record is lost, fault is
// the reason. fault is nil if a rate limit has refused the record.
func (l *Log) queueRecord(r Record, book string, done chan struct{}) (taken bool, fault error) {
	now := l.cfg.Now()
	l.mu.Lock()
	defer l.mu.Unlock()

	if r.Stranger && !l.rates.admitStranger(r.From, now) {
		l.lost++ // the next record that is written states the count
		return false, nil
	}
	if hasRate(r) && !r.Stranger && !l.rates.admitLimited(r, shelfNamed(book), now) {
		l.wakeRun() // runWriter writes a summary of the omitted records
		return false, nil
	}

	room := maxWaiting
	if book != actsShelf {
		room -= actsReserve
	}

	if l.ended || len(l.waiting)+l.flying >= room {
		l.lost++
		l.missing++
		if l.fault == nil {
			l.fault = errTooFast
		}
		return false, l.fault
	}

	if err := l.append(r, book, now, done); err != nil {
		l.lost++
		return false, err
	}

	return true, nil
}

var errTooFast = errors.New("records come faster than the disk takes them")

// append adds a record to the queue. The caller holds the lock.
func (l *Log) append(r Record, book string, now time.Time, done chan struct{}) error {
	r.Node = l.cfg.Node
	r.Program = l.cfg.Program
	r.Lost = l.lost
	if r.Time.IsZero() {
		r.Time = now
	}

	line, err := encode(r)
	if err != nil {
		return err
	}

	w := waiting{line: line, book: book, done: done}
	if book == actsShelf {
		w.act = r
	}

	l.lost = 0
	l.waiting = append(l.waiting, w)
	l.wakeRun()
	return nil
}

// wakeRun wakes runWriter. The caller may hold the lock.
func (l *Log) wakeRun() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// summarize queues summaries of the records that the rate limits of limited users refused. If the
// queue is full, the remaining counts stay for the next summary.
func (l *Log) summarize() {
	now := l.cfg.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	room := maxWaiting - len(l.waiting) - l.flying
	for _, s := range l.rates.summaries(max(room, 0)) {
		if err := l.append(s.record, s.book, now, nil); err != nil {
			l.lost += s.record.More
		}
	}
}

// leavesOut reports whether rate limits have refused records that no summary counts yet.
func (l *Log) leavesOut() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rates.leftOut > 0
}

// encode returns the line of a record.
func encode(r Record) ([]byte, error) {
	r = r.bounded()
	r.Time = r.Time.UTC()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // escapes of six bytes could make a line too long for a reader
	if err := enc.Encode(r); err != nil {
		return nil, fmt.Errorf("encode an audit record: %w", err)
	}
	return b.Bytes(), nil
}

// Fault returns the reason why records are not being written, or nil.
func (l *Log) Fault() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	fault := l.fault
	if d := l.cfg.Now().Sub(l.writing); !l.writing.IsZero() && d > hangsAfter {
		fault = fmt.Errorf("write audit records: the disk has not answered for %s", d.Round(time.Second))
	}
	if fault != nil && l.missing > 0 {
		fault = fmt.Errorf("%w; %d are lost", fault, l.missing)
	}
	return fault
}

// Close writes the queue and ends the log. If the disk hangs, it returns without having written.
func (l *Log) Close() {
	if l == nil {
		return
	}

	l.mu.Lock()
	ended := l.ended
	l.ended = true
	l.mu.Unlock()

	if !ended {
		close(l.stop)
	}

	select {
	case <-l.done:
	case <-time.After(closeTakes):
	}

	if !ended {
		l.tellLost()
	}
}

// tellLost logs the acts that are still unwritten when the log ends.
func (l *Log) tellLost() {
	l.mu.Lock()
	left, fault := l.waiting, l.fault
	l.mu.Unlock()
	for _, w := range left {
		if w.act.Action != "" {
			l.logLost("an act is lost to the audit record", w.act, fault)
		}
	}
}

// runWriter writes queued records until Close.
func (l *Log) runWriter() {
	defer close(l.done)
	var retry, count <-chan time.Time
	for {
		ending := false
		select {
		case <-l.wake:
		case <-retry:
		case <-count:
			count = nil
			l.summarize()
		case <-l.stop:
			ending = true
			l.summarize()
		}

		retry = nil
		if err := l.writeQueued(); err != nil && !ending {
			retry = time.After(time.Second)
		}

		if ending {
			return
		}

		if count == nil && l.leavesOut() {
			count = time.After(time.Minute)
		}
	}
}

// writeQueued writes the queued records. Records that it cannot write stay in the queue.
func (l *Log) writeQueued() error {
	l.mu.Lock()
	list := l.waiting
	l.waiting = nil
	l.flying = len(list)
	l.writing = l.cfg.Now()
	l.mu.Unlock()

	byBook := map[string][]waiting{}
	for _, w := range list {
		byBook[w.book] = append(byBook[w.book], w)
	}

	var left []waiting
	var faults []error
	for _, b := range booksOf(l.cfg.Dir) {
		if len(byBook[b.name]) == 0 {
			continue
		}
		b.node, b.program = l.cfg.Node, l.cfg.Program
		rest, err := l.flushTo(b, byBook[b.name])
		left = append(left, rest...)
		faults = append(faults, err)
	}

	err := errors.Join(faults...)

	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(left, l.waiting...)
	l.flying = 0
	l.writing = time.Time{}

	switch {
	case err != nil:
		l.fault = fmt.Errorf("write audit records: %w", err)
	case len(list) > 0 || l.fault != nil:
		l.fault, l.missing = nil, 0
	}

	return err
}

// flushTo writes records to their book and returns those that it could not write.
func (l *Log) flushTo(b book, list []waiting) ([]waiting, error) {
	for len(list) > 0 {
		var lines [][]byte
		size := int64(0)
		for _, w := range list {
			size += int64(len(w.line) + linkRoom)
			if len(lines) > 0 && size > b.part/2 {
				break
			}
			lines = append(lines, w.line)
		}

		if err := b.appendLines(lines, l.cfg.Now()); err != nil {
			return list, err
		}

		for _, w := range list[:len(lines)] {
			if w.done != nil {
				close(w.done)
			}
		}

		list = list[len(lines):]
	}

	return nil, nil
}
