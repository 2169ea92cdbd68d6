package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"saltern/ratelimit"
)

// Bounds of a [Log].
const (
	// maxWaiting records wait for the disk or are on their way to it. Overflow policy:
	// the newest is lost and counted, and the next one that is written says so.
	maxWaiting = 8192
	// retryEvery is between tries while the disk takes nothing.
	retryEvery = time.Second
	// WriteTakes is how long [Log.Write] waits for the disk.
	WriteTakes = time.Second
	closeTakes = 2 * time.Second
	hangsAfter = 5 * time.Second // a disk that takes longer is a fault
	// maxSources of refused strangers have a rate of their own; further ones share
	// one.
	maxSources = 4096
)

// What strangers can have written down: of a source, and all together.
func ofSource() ratelimit.Rate { return ratelimit.Rate{Burst: 20, PerSecond: 0.1} }
func ofAll() ratelimit.Rate    { return ratelimit.Rate{Burst: 500, PerSecond: 5} }

// Config of a Log.
type Config struct {
	Dir     string // made at the first record
	Node    string
	Program string
	Now     func() time.Time // nil: time.Now
}

// Log writes records in the background: nobody waits for a disk who does not ask for
// it. It is safe for concurrent use.
type Log struct {
	cfg Config

	mu      sync.Mutex
	waiting []waiting
	flying  int    // of those that are being written
	lost    uint64 // of which no record has told yet
	missing uint64 // lost since the disk began to take nothing
	fault   error
	writing time.Time // when what is being written began; zero: nothing is
	ended   bool
	all     ratelimit.Bucket
	sources map[netip.Addr]*ratelimit.Bucket

	wake chan struct{}
	stop chan struct{}
	done chan struct{}
}

// waiting is a record on its way to the disk.
type waiting struct {
	line     []byte
	stranger bool
	done     chan struct{} // closed when it is written; nil: nobody waits
}

// Open gives a log; nothing is touched before the first record. Close ends it.
func Open(cfg Config) *Log {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	l := &Log{cfg: cfg, sources: map[netip.Addr]*ratelimit.Bucket{}, wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	go l.run() // Close waits for it
	return l
}

// Note has a record written and does not wait. A nil Log takes nothing.
func (l *Log) Note(r Record) { l.put(r, nil) }

// Write has a record written and waits for the disk, for [WriteTakes] at most; it is
// written later then, or lost and counted, and what was to be recorded goes on.
func (l *Log) Write(ctx context.Context, r Record) {
	done := make(chan struct{})
	if !l.put(r, done) {
		return
	}
	t := time.NewTimer(WriteTakes)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	case <-ctx.Done():
	}
}

// put reports whether the record will be written.
func (l *Log) put(r Record, done chan struct{}) bool {
	if l == nil {
		return false
	}
	now := l.cfg.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.Stranger && !l.mayNote(r.From, now) {
		l.lost++ // whatever is written next tells of it
		return false
	}
	if l.ended || len(l.waiting)+l.flying >= maxWaiting {
		l.lost++
		l.missing++
		if l.fault == nil {
			l.fault = errors.New("records come faster than the disk takes them")
		}
		return false
	}
	r.Node, r.Program, r.Lost = l.cfg.Node, l.cfg.Program, l.lost
	if r.Time.IsZero() {
		r.Time = now
	}
	line, err := encode(r)
	if err != nil {
		l.lost++
		return false
	}
	l.lost = 0
	l.waiting = append(l.waiting, waiting{line, r.Stranger, done})
	select {
	case l.wake <- struct{}{}:
	default:
	}
	return true
}

// mayNote reports whether a stranger may cause one more record.
func (l *Log) mayNote(from string, now time.Time) bool {
	a, err := netip.ParseAddr(from)
	if err == nil {
		a = ratelimit.Source(a)
	}
	b := l.sources[a]
	if b == nil {
		if len(l.sources) >= maxSources {
			for k, v := range l.sources {
				if v.Used(now, ofSource()) < 1 {
					delete(l.sources, k)
				}
			}
		}
		if len(l.sources) >= maxSources {
			a = netip.Addr{}
		}
		if b = l.sources[a]; b == nil {
			b = &ratelimit.Bucket{}
			l.sources[a] = b
		}
	}
	return l.all.Has(now, ofAll(), 1) && b.Take(now, ofSource(), 1) && l.all.Take(now, ofAll(), 1)
}

// encode makes the line of a record.
func encode(r Record) ([]byte, error) {
	r = r.clean()
	r.Time = r.Time.UTC()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // else a character may take six, and a line be too long to read
	if err := enc.Encode(r); err != nil {
		return nil, fmt.Errorf("encode an audit record: %w", err)
	}
	return b.Bytes(), nil
}

// Fault says why records are not written; nil: they are.
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

// Close writes what waits, and gives up on a disk that hangs.
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
}

// run writes what waits until Close.
func (l *Log) run() {
	defer close(l.done)
	var retry <-chan time.Time
	for {
		ending := false
		select {
		case <-l.wake:
		case <-retry:
		case <-l.stop:
			ending = true
		}
		retry = nil
		if err := l.flush(); err != nil && !ending {
			retry = time.After(retryEvery)
		}
		if ending {
			return
		}
	}
}

// flush writes what waits. What cannot be written waits on.
func (l *Log) flush() error {
	l.mu.Lock()
	list := l.waiting
	l.waiting, l.flying, l.writing = nil, len(list), l.cfg.Now()
	l.mu.Unlock()
	var left []waiting
	var errs []error
	for _, kind := range []struct {
		book     book
		stranger bool
	}{{acts(l.cfg.Dir), false}, {strangers(l.cfg.Dir), true}} {
		rest, err := l.flushTo(kind.book, kind.stranger, list)
		left, errs = append(left, rest...), append(errs, err)
	}
	err := errors.Join(errs...)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting, l.flying, l.writing = append(left, l.waiting...), 0, time.Time{}
	switch {
	case err != nil:
		l.fault = fmt.Errorf("write audit records: %w", err)
	case len(list) > 0 || l.fault != nil:
		l.fault, l.missing = nil, 0
	}
	return err
}

// flushTo writes the records of one kind and gives back those that are left.
func (l *Log) flushTo(b book, stranger bool, list []waiting) ([]waiting, error) {
	var own []waiting
	for _, w := range list {
		if w.stranger == stranger {
			own = append(own, w)
		}
	}
	for len(own) > 0 {
		var text []byte
		n := 0
		for ; n < len(own) && (n == 0 || int64(len(text)+len(own[n].line)) <= b.part/2); n++ {
			text = append(text, own[n].line...)
		}
		if err := b.add(text, l.cfg.Now()); err != nil {
			return own, err
		}
		for _, w := range own[:n] {
			if w.done != nil {
				close(w.done)
			}
		}
		own = own[n:]
	}
	return nil, nil
}
