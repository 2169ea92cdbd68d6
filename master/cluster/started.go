package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"saltern/master/value"
)

// A minion that is started anew must not run a job a second time, so each master has to know
// of its new process before it can subscribe anywhere. The master at which it signs in tells the
// others, and answers when they have heard. What a connection lost is made good by the next
// one, which begins with all that the master knows; a master tells on what is news to it, since
// two may not hear each other. Masters of before this message do not answer it, and are not
// waited for.

// Start says that a process of a minion was seen to sign in for the first time.
type Start struct {
	ID      string
	Process uint64        // a digest of what the process has drawn; 0: it has shown nothing
	Age     time.Duration // so long ago
}

// bounds of starts.
const (
	maxStarts    = 1 << 16 // that wait for a peer; of more the oldest are lost, and counted
	startMessage = 1 << 12 // in one message
	maxStartAge  = 24 * time.Hour
	maxMinion    = 255 // bytes of an id: it is the name of a file
)

// times of Announce.
const (
	// announceFor is how long a sign-in may wait. A minion asks again after five seconds
	// (auth_timeout).
	announceFor = 4 * time.Second
	// lostFor is after how long a peer that is not heard is not waited for any more. Its
	// minions have gone to others by then, and who cannot be reached by the others gives
	// the virtual address up before.
	lostFor = 10 * time.Second
	// deafFor is how long a peer that is heard may take until it is not waited for.
	deafFor = 2500 * time.Millisecond
	// patientAfter is after how long a sign-in counts as one that waits. Not more than
	// maxPatient do; others are told at once to come back.
	patientAfter = 200 * time.Millisecond
	maxPatient   = 64
)

// startedMsg is such a message. It is packed when it is sent, so that ages are right.
type startedMsg struct {
	starts []Start
	number uint64 // as which the receiver says that it has heard it
}

func packStarts(m startedMsg) *value.Map {
	var b []byte
	for _, s := range m.starts {
		id := s.ID[:min(len(s.ID), maxMinion)]
		b = binary.BigEndian.AppendUint64(b, s.Process)
		b = binary.BigEndian.AppendUint32(b, uint32(min(max(s.Age, 0), maxStartAge)/time.Millisecond))
		b = append(b, byte(len(id)))
		b = append(b, id...)
	}
	return value.NewMap("minions", b, "number", m.number)
}

func parseStarts(data []byte) (starts []Start, number uint64, err error) {
	m, err := unpackOwnMap(data)
	if err != nil {
		return nil, 0, err
	}

	b, ok := m.Bytes("minions")
	if !ok {
		return nil, 0, errOwn
	}

	for len(b) > 0 {
		if len(b) < 13 || len(b) < 13+int(b[12]) || b[12] == 0 || len(starts) >= startMessage {
			return nil, 0, errOwn
		}

		end := 13 + int(b[12])
		starts = append(starts, Start{
			ID:      string(b[13:end]),
			Process: binary.BigEndian.Uint64(b),
			Age:     min(time.Duration(binary.BigEndian.Uint32(b[8:]))*time.Millisecond, maxStartAge),
		})

		b = b[end:]
	}

	return starts, uintOf(m, "number"), nil
}

// toldStart is a start that waits to be told.
type toldStart struct {
	Start
	seen time.Time
}

// starts is a link's part in it; the link's mu guards it.
type starts struct {
	waiting []toldStart
	all     bool          // a connection has begun: all that is known comes first
	number  uint64        // of the last start that was put there
	heard   uint64        // of the last one that the other end has heard
	knows   bool          // the other end has answered on this connection
	since   time.Time     // when the connection was made
	change  chan struct{} // closed and replaced when heard or the connection changes
}

// tellStarts queues starts, and returns the number of the last one.
func (l *link) tellStarts(now time.Time, list ...Start) (number uint64) {
	l.mu.Lock()
	for _, s := range list {
		l.starts.waiting = append(l.starts.waiting, toldStart{s, now.Add(-s.Age)})
		l.starts.number++
	}
	if n := len(l.starts.waiting) - maxStarts; n > 0 {
		l.lost += uint64(n)
		l.starts.waiting = append(l.starts.waiting[:0:0], l.starts.waiting[n:]...)
	}
	number = l.starts.number
	l.mu.Unlock()
	l.wakeWriter()
	return number
}

// beginStarts begins a connection with all that is known; up says that there is one.
func (l *link) beginStarts(up bool) {
	l.mu.Lock()
	l.starts.all = up
	l.starts.knows = false
	l.starts.since = l.p.cfg.Now()
	l.starts.changed()
	l.mu.Unlock()
	if up {
		l.wakeWriter()
	}
}

// tellers are the peers that tell what they know, by connections of their own. A peer may tell
// before there is a link to it.
type tellers struct {
	mu sync.Mutex
	of map[string]teller
}

type teller struct {
	by *conn
	at time.Time // when it last told
}

// noteTold notes that a peer has told what it knows up to now.
func (t *tellers) noteTold(peer string, by *conn, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil {
		t.of = map[string]teller{}
	}
	t.of[peer] = teller{by, now}
}

// forgetConnection notes that a connection has ended: by it nothing more is told.
func (t *tellers) forgetConnection(by *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.of, func(_ string, of teller) bool { return of.by == by })
}

// lastTold is when a peer last told by a connection that there still is.
func (t *tellers) lastTold(peer string) (at time.Time, tells bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	of, tells := t.of[peer]
	return of.at, tells
}

// cameStarts notes that a peer has told what it knows up to now.
func (p *Pool) cameStarts(peer string, by *conn) {
	p.tellers.noteTold(peer, by, p.cfg.Now())
	p.mu.Lock()
	l := p.links[peer]
	p.mu.Unlock()
	if l != nil {
		l.wakeWriter() // jobs may have waited for it
	}
}

// Unheard reports whether minions may have started at another master of which we have not heard:
// at one that cannot be reached, and whose host does not say that none runs there, or that is
// reached again and has not told yet.
func (p *Pool) Unheard() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.links {
		if l.plain || l.hasEnded() || l.gone.Load() {
			continue
		}

		l.mu.Lock()
		could := l.starts.knows
		l.mu.Unlock()

		if _, tells := p.tellers.lastTold(l.id); could && !tells || !l.up.Load() {
			return true
		}
	}

	return false
}

// holdForStarts reports whether a job of a time waits until the other end has told which
// minions have started since: when it has the job, minions of ours are given it that may have
// come from there. One that does not answer what we tell it of starts tells none itself.
func (l *link) holdForStarts(published, now, connected time.Time) bool {
	l.mu.Lock()
	could := l.starts.knows
	l.mu.Unlock()
	hold := returnsFirst
	if could {
		hold = lostFor
	}
	told, _ := l.p.tellers.lastTold(l.id)
	return now.Sub(connected) < hold && told.Before(published)
}

// changed wakes who waits; the link's mu is held.
func (s *starts) changed() {
	close(s.change)
	s.change = make(chan struct{})
}

// takeStarts gives some of what waits, nil when there is nothing. Without a handler nothing is
// known yet.
func (l *link) takeStarts(now time.Time) (msgs []any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &l.starts
	if h := l.p.handler.Load(); s.all && h != nil {
		s.all = false
		list := (*h).KnownStarts(maxStarts)
		for ; len(list) > startMessage; list = list[startMessage:] {
			msgs = append(msgs, startedMsg{starts: list[:startMessage]})
		}

		msgs = append(msgs, startedMsg{starts: list, number: s.number})
		s.waiting = nil // among them
		return msgs
	}

	if s.all || len(s.waiting) == 0 {
		return nil
	}

	n := min(len(s.waiting), startMessage)
	m := startedMsg{number: s.number - uint64(len(s.waiting)-n)}
	for _, w := range s.waiting[:n] {
		w.Age = now.Sub(w.seen)
		m.starts = append(m.starts, w.Start)
	}

	s.waiting = s.waiting[n:]
	return []any{m}
}

// heardStarts takes the answer of the other end.
func (l *link) heardStarts(number uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.starts.knows = true
	l.starts.heard = max(l.starts.heard, min(number, l.starts.number))
	l.starts.changed()
}

// relayStarts tells the other masters what a peer has told that was not known.
func (p *Pool) relayStarts(peer string, fresh []Start) {
	if len(fresh) == 0 {
		return
	}
	now := p.cfg.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, l := range p.links {
		if !l.plain && id != peer {
			l.tellStarts(now, fresh...)
		}
	}
}

// ErrUntold says that a peer could not be told.
var ErrUntold = errors.New("another master could not be told of the minion's new process, and is not known to be lost yet")

// Announce tells the peers of a process that has just been seen for the first time. It returns
// when each of them has heard, or is lost, so that none gives the minion a job that the process
// before may have run. Then its minions cannot come to us with what only it knows.
func (p *Pool) Announce(ctx context.Context, s Start) error {
	began := p.cfg.Now()
	waiting := map[*link]uint64{}
	p.mu.Lock()
	for _, l := range p.links {
		if !l.plain {
			waiting[l] = l.tellStarts(began, s)
		}
	}
	p.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, announceFor)
	defer cancel()
	stop := time.AfterFunc(patientAfter, func() {
		if p.patient.Add(1) > maxPatient {
			cancel()
		}
	})
	defer func() {
		if !stop.Stop() {
			p.patient.Add(-1)
		}
	}()

	for l, number := range waiting {
		if err := p.announced(ctx, l, number, began); err != nil {
			return err
		}
	}

	return nil
}

// announced waits until a peer has heard, or need not.
func (p *Pool) announced(ctx context.Context, l *link, number uint64, began time.Time) error {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		l.mu.Lock()
		heard := l.starts.heard >= number
		knows := l.starts.knows
		since := l.starts.since
		change := l.starts.change
		l.mu.Unlock()

		if heard || l.ctx.Err() != nil || !p.mustWaitFor(l, knows, since, began) {
			return nil
		}

		select {
		case <-change:
		case <-look.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %s", ErrUntold, l.id)
		}
	}
}

// mustWaitFor reports whether a peer that has not heard is to be waited for.
func (p *Pool) mustWaitFor(l *link, knows bool, since, began time.Time) bool {
	now := p.cfg.Now()
	if l.gone.Load() {
		return false // its host says that nobody listens there
	}

	last := p.opened
	p.mu.Lock()
	for _, m := range p.node.Status(now).Members {
		if m.ID == l.id && m.Heard.After(last) {
			last = m.Heard
		}
	}
	p.mu.Unlock()

	if now.Sub(last) >= lostFor {
		return false
	}

	up := l.up.Load()
	deaf := up && !knows && now.Sub(since) > deafFor // a master of before
	slow := up && now.Sub(began) > deafFor && last.Sub(began) > deafFor/2
	return !deaf && !slow
}
