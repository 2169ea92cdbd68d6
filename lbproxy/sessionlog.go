package lbproxy

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

const (
	logQueue = 8192 // lines waiting; more are dropped and counted
)

// logRecord is a line of the session log before it is written.
type logRecord struct {
	at          int64
	client      netip.AddrPort
	subject     string
	backend     string
	kind        recordKind
	why         ending
	refusal     refusal
	up          uint64
	down        uint64
	connectTime int64 // nanoseconds from accepted to connected; -1 when that is unknown
	lifetime    int64 // nanoseconds from accepted to closed
	count       uint64
	err         error
}

type recordKind uint8

const (
	recordOpen recordKind = iota
	recordMoved
	recordClose
	recordRefused
	recordFault // subject names the action that failed
)

// sessionLog takes lines from the loops without waiting, and writes them in its own goroutine: a
// slow journal must not delay a loop.
type sessionLog struct {
	log     *slog.Logger
	base    time.Time
	all     bool
	publish bool
	dropped atomic.Uint64
	wake    chan struct{}

	mu            sync.Mutex
	strangers     source // token bucket for lines about unknown sources
	skipped       uint64 // number of lines about unknown sources omitted since the last written one
	lines         []logRecord
	spare         []logRecord
	refusalLogged [refusals]int64  // clock of the last line, by reason
	refusedSince  [refusals]uint64 // connections refused since the last line, by reason
	faults        map[string]int64 // clock of the last line of each fault
}

func newSessionLog(log *slog.Logger, base time.Time, which string) *sessionLog {
	return &sessionLog{
		log:     log,
		base:    base,
		all:     which == "all",
		publish: which != "none",
		wake:    make(chan struct{}, 1),
		faults:  map[string]int64{},
	}
}

// strangeRate is how many lines about sessions of unknown sources are written each second.
// strangeBurst is how many are written at once. Without a limit an attacker could flood the log,
// until rotation removes the lines about other sources.
const (
	strangeRate  = 20
	strangeBurst = 2000
)

// admitLine reports whether to write a line about a session. It also returns how many lines about
// unknown sources it has rejected since the last written one.
func (g *sessionLog) admitLine(s *session, l *loop) (bool, uint64) {
	if a := s.client.addr(); s.provenAt != 0 || a.IsLoopback() || !l.proxy.cfg.Health.checksSalt() ||
		l.proxy.known.contains(a, l.now) {
		return true, 0
	}

	g.mu.Lock()
	defer g.mu.Unlock()
	b := &g.strangers
	if b.sessions == 0 { // the bucket is new
		b.sessions = 1
		b.tokens = strangeBurst
		b.tokensAt = l.now
	}

	b.tokens = min(strangeBurst, b.tokens+float64(max(l.now-b.tokensAt, 0))/1e9*strangeRate)
	b.tokensAt = max(b.tokensAt, l.now)
	if b.tokens < 1 {
		g.skipped++
		g.dropped.Add(1)
		return false, 0
	}

	b.tokens--
	n := g.skipped
	g.skipped = 0
	return true, n
}

func (g *sessionLog) wanted(m Mode) bool { return g.all || (g.publish && m == Publish) }

// queueLine queues a line, or counts it as dropped when the queue is full.
func (g *sessionLog) queueLine(r *logRecord) {
	g.mu.Lock()
	if len(g.lines) >= logQueue {
		g.mu.Unlock()
		g.dropped.Add(1)
		return
	}

	g.lines = append(g.lines, *r)
	first := len(g.lines) == 1
	g.mu.Unlock()

	if first {
		select {
		case g.wake <- struct{}{}:
		default:
		}
	}
}

// sessionOpened queues a line when a publish session begins. A line at the end alone is not enough:
// a session may last for weeks.
func (g *sessionLog) sessionOpened(s *session, l *loop) { g.queueSession(s, l, recordOpen) }

// sessionMoved queues a line when a publish session was moved to another backend.
func (g *sessionLog) sessionMoved(s *session, l *loop) { g.queueSession(s, l, recordMoved) }

func (g *sessionLog) queueSession(s *session, l *loop, kind recordKind) {
	if s.frontend.mode != Publish || !g.publish {
		return
	}

	ok, skipped := g.admitLine(s, l)
	if !ok {
		return
	}

	g.queueLine(&logRecord{
		at:          l.now,
		client:      s.client.addrPort(),
		subject:     s.frontend.cfg.Name,
		backend:     s.member.backend.name,
		kind:        kind,
		connectTime: s.connectTime(),
		count:       skipped,
	})
}

func (g *sessionLog) sessionClosed(s *session, l *loop, was sessionState) {
	if !g.wanted(s.frontend.mode) {
		return
	}

	ok, skipped := g.admitLine(s, l)
	if !ok {
		return
	}

	r := logRecord{
		at:          l.now,
		count:       skipped,
		client:      s.client.addrPort(),
		subject:     s.frontend.cfg.Name,
		kind:        recordClose,
		why:         s.why,
		up:          s.half[sideClient].bytes,
		down:        s.half[sideBackend].bytes,
		connectTime: -1,
		lifetime:    l.now - s.acceptedAt,
	}

	if s.member != nil && was == stateOpen {
		r.backend, r.connectTime = s.member.backend.name, s.connectTime()
	}

	g.queueLine(&r)
}

// connectTime returns the time from accepting the client to connecting the backend, in nanoseconds.
// It returns -1 if that time is no longer known.
func (s *session) connectTime() int64 {
	if s.moved {
		return -1
	}
	return s.connectedAt - s.acceptedAt
}

// connectionRefused queues at most one line per second and reason. The line states how many
// connections were refused since the previous one.
func (g *sessionLog) connectionRefused(fe *frontend, from netip.AddrPort, why refusal) {
	now := int64(time.Since(g.base))
	g.mu.Lock()
	g.refusedSince[why]++
	if g.refusalLogged[why] != 0 && now-g.refusalLogged[why] < int64(time.Second) {
		g.mu.Unlock()
		return
	}

	n := g.refusedSince[why]
	g.refusalLogged[why], g.refusedSince[why] = now, 0
	g.mu.Unlock()

	g.queueLine(&logRecord{
		at:      now,
		client:  from,
		subject: fe.cfg.Name,
		kind:    recordRefused,
		refusal: why,
		count:   n,
	})
}

// maxFaults bounds the table of faults. The text of a fault varies only in the name of a backend.
const maxFaults = 1024

// queueFault queues one line per second and kind of fault.
func (g *sessionLog) queueFault(action string, err error) {
	now := int64(time.Since(g.base))
	g.mu.Lock()
	last, seen := g.faults[action]
	if seen && now-last < int64(time.Second) {
		g.mu.Unlock()
		return
	}
	if len(g.faults) >= maxFaults {
		clear(g.faults)
	}
	g.faults[action] = now
	g.mu.Unlock()
	g.queueLine(&logRecord{at: now, subject: action, kind: recordFault, err: err})
}

// run writes queued lines until ctx ends, then the remaining lines.
func (g *sessionLog) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			g.writeQueued()
			return
		case <-g.wake:
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond): // it costs less to write several lines at a time
		}
		g.writeQueued()
	}
}

func (g *sessionLog) writeQueued() {
	g.mu.Lock()
	lines := g.lines
	g.lines = g.spare[:0]
	g.spare = nil
	g.mu.Unlock()

	for i := range lines {
		g.writeLine(&lines[i])
	}

	if cap(lines) > 512 {
		lines = nil
	}

	g.mu.Lock()
	g.spare = lines[:0]
	g.mu.Unlock()
}

func (g *sessionLog) writeLine(r *logRecord) {
	ctx := context.Background()
	if r.kind == recordFault {
		g.log.Error(r.subject, "error", r.err)
		return
	}
	if !g.log.Enabled(ctx, slog.LevelInfo) {
		return
	}

	msg := "session open"
	switch r.kind {
	case recordMoved:
		msg = "session moved"
	case recordClose:
		msg = "session close"
	case recordRefused:
		msg = "session refused"
	}

	// The record has the time of the event, not of the writing.
	rec := slog.NewRecord(g.base.Add(time.Duration(r.at)), slog.LevelInfo, msg, 0)
	rec.AddAttrs(slog.String("client", r.client.String()), slog.String("frontend", r.subject))
	if r.kind == recordRefused {
		rec.AddAttrs(slog.String("reason", r.refusal.String()), slog.Uint64("count", r.count))
	} else if r.backend != "" {
		rec.AddAttrs(slog.String("backend", r.backend))
		if r.connectTime >= 0 {
			rec.AddAttrs(slog.Int64("connect_us", r.connectTime/1000))
		}
	}

	if r.kind != recordRefused && r.count > 0 {
		rec.AddAttrs(slog.Uint64("not_logged", r.count))
	}

	if r.kind == recordClose {
		rec.AddAttrs(slog.Uint64("up", r.up), slog.Uint64("down", r.down),
			slog.Int64("ms", r.lifetime/1e6), slog.String("reason", r.why.String()))
	}

	_ = g.log.Handler().Handle(ctx, rec) // the log's own failure has nowhere to be logged
}
