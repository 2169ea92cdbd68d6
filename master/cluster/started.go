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

// A restarted minion must not run a job a second time. So each master must know of a new minion
// process before that process can subscribe at any master. The master where the process signs in
// reports it to the other masters, and answers the minion once they have confirmed. When a
// connection is made again, each end first sends all processes that it knows. A master also relays
// the reports that it receives, since two masters may not reach each other. Masters of older
// releases do not confirm this message, and no sign-in waits for them.

// Start describes a minion process that signed in for the first time.
type Start struct {
	ID      string
	Process uint64        // digest of the random text that the process showed; 0 when it showed none
	Age     time.Duration // time since the process signed in
}

// Limits for the lists of starts (see Start).
const (
	maxStarts    = 1 << 16 // starts that wait for a peer; beyond that the oldest are dropped and counted
	startMessage = 1 << 12 // starts in one message
	maxStartAge  = 24 * time.Hour
	maxMinion    = 255 // bytes of a minion id, which must be a valid file name
)

// Times of Announce.
const (
	// lostFor is how long a sign-in waits for a peer from which nothing arrives. After that time
	// the peer's minions have moved to other masters, and a peer that the others cannot reach has
	// given up the virtual address.
	lostFor = 10 * time.Second
	// deafFor is how long a sign-in waits for a peer that sends messages but does not confirm
	// starts.
	deafFor    = 2500 * time.Millisecond
	maxPatient = 64
)

// startedMsg carries minion process starts to a peer. The link packs the message just before it
// sends it, so that the ages in it are right.
type startedMsg struct {
	starts []Start
	number uint64 // the receiver confirms this number
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

// toldStart is a start that the link has yet to send.
type toldStart struct {
	Start
	seen time.Time
}

// starts holds the minion process starts that a link must send, and how many of them the other end
// has confirmed. The link's mu guards it.
type starts struct {
	waiting     []toldStart
	sendAll     bool          // a connection has just begun: send all known starts first
	number      uint64        // number of the last queued start
	confirmed   uint64        // number of the last start that the other end confirmed
	confirms    bool          // the other end has confirmed a start on this connection
	connectedAt time.Time     // when the connection was made
	change      chan struct{} // closed and replaced when a confirmation arrives or the connection changes
}

// tellStarts queues starts for the link's peer, and returns the number of the last one.
func (l *link) tellStarts(now time.Time, list ...Start) (number uint64) {
	l.mu.Lock()
	for _, s := range list {
		l.starts.waiting = append(l.starts.waiting, toldStart{s, now.Add(-s.Age)})
		l.starts.number++
	}
	if n := len(l.starts.waiting) - maxStarts; n > 0 {
		l.lostControl += uint64(n)
		l.starts.waiting = append(l.starts.waiting[:0:0], l.starts.waiting[n:]...)
	}
	number = l.starts.number
	l.mu.Unlock()
	l.wakeWriter()
	return number
}

// beginStarts resets the starts when a connection begins (connected is true) or ends (connected is
// false). On a new connection the link must send all known starts first.
func (l *link) beginStarts(connected bool) {
	l.mu.Lock()
	l.starts.sendAll = connected
	l.starts.confirms = false
	l.starts.connectedAt = l.pool.cfg.Now()
	l.starts.changed()
	l.mu.Unlock()
	if connected {
		l.wakeWriter()
	}
}

// tellers records which peers have sent all minion process starts that they know, and on which
// connection. A peer may send them before this master has a link to it.
type tellers struct {
	mu     sync.Mutex
	byPeer map[string]teller
}

type teller struct {
	conn   *conn
	toldAt time.Time // when the peer last sent starts
}

// noteTold records that a peer has just sent all starts that it knows. now is the present time.
func (t *tellers) noteTold(peer string, by *conn, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byPeer == nil {
		t.byPeer = map[string]teller{}
	}
	t.byPeer[peer] = teller{by, now}
}

// forgetConnection deletes the records about a connection that has ended.
func (t *tellers) forgetConnection(by *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.byPeer, func(_ string, told teller) bool { return told.conn == by })
}

// lastTold returns when a peer last sent all its starts over a connection that is still open. It
// returns false if the peer has sent none over such a connection.
func (t *tellers) lastTold(peer string) (at time.Time, tells bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	told, tells := t.byPeer[peer]
	return told.toldAt, tells
}

// cameStarts records that a peer has just sent all starts that it knows. It then wakes the link to
// that peer, because the link's jobs may have waited for the starts.
func (p *Pool) cameStarts(peer string, by *conn) {
	p.tellers.noteTold(peer, by, p.cfg.Now())
	p.mu.Lock()
	l := p.links[peer]
	p.mu.Unlock()
	if l != nil {
		l.wakeWriter()
	}
}

// Unheard reports whether a minion process may have started at another master without a report to
// this master. That is so if another master is unreachable and its host does not refuse
// connections, or if another master is connected again and has not sent its starts yet.
func (p *Pool) Unheard() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.links {
		if l.plain || l.hasEnded() || l.refused.Load() {
			continue
		}

		l.mu.Lock()
		could := l.starts.confirms
		l.mu.Unlock()

		if _, tells := p.tellers.lastTold(l.id); could && !tells || !l.up.Load() {
			return true
		}
	}

	return false
}

// holdForStarts reports whether a late job must wait: until the peer has sent its starts after the
// job was published. Once the peer has handled the late job, this master also sends the job to
// minions that moved here from that peer. Only the peer's starts show which of these minions were
// restarted and must not get the job. A peer that never confirms starts sends none either; for such
// a peer the job waits only for returnsFirst.
func (l *link) holdForStarts(published, now, connected time.Time) bool {
	l.mu.Lock()
	could := l.starts.confirms
	l.mu.Unlock()
	hold := returnsFirst
	if could {
		hold = lostFor
	}
	toldAt, _ := l.pool.tellers.lastTold(l.id)
	return now.Sub(connected) < hold && toldAt.Before(published)
}

// changed wakes the waiting goroutines. The caller holds the link's mu.
func (s *starts) changed() {
	close(s.change)
	s.change = make(chan struct{})
}

// takeStarts returns messages with the next starts to send, or nil if there are none. It also
// returns nil while it must send all known starts and the pool has no handler that could list them.
func (l *link) takeStarts(now time.Time) (msgs []any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &l.starts
	if h := l.pool.handler.Load(); s.sendAll && h != nil {
		s.sendAll = false
		list := (*h).KnownStarts(maxStarts)
		for ; len(list) > startMessage; list = list[startMessage:] {
			msgs = append(msgs, startedMsg{starts: list[:startMessage]})
		}

		msgs = append(msgs, startedMsg{starts: list, number: s.number})
		s.waiting = nil // the known starts include the waiting starts
		return msgs
	}

	if s.sendAll || len(s.waiting) == 0 {
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

// heardStarts records that the other end has confirmed the starts up to number.
func (l *link) heardStarts(number uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.starts.confirms = true
	l.starts.confirmed = max(l.starts.confirmed, min(number, l.starts.number))
	l.starts.changed()
}

// relayStarts sends fresh, the starts that this master did not know before, to all Saltern masters
// except the peer that reported them.
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

// ErrUntold reports that a peer did not confirm a minion's new process.
var ErrUntold = errors.New("another master could not be told of the minion's new process, and is not known to be lost yet")

// Announce reports a minion process to the peers when this master sees the process for the first
// time. It returns nil when each peer has confirmed the report or is lost, otherwise ErrUntold. If
// it returns nil, no peer will send the minion a job that the minion's former process may have run.
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

	// A minion sends its sign-in again after five seconds (auth_timeout).
	ctx, cancel := context.WithTimeout(ctx, 4*time.Second)
	defer cancel()
	// A sign-in that takes longer than this counts against maxPatient, the number of sign-ins that
	// may wait. The minions of further sign-ins are told at once to try again.
	stop := time.AfterFunc(200*time.Millisecond, func() {
		if p.waitingSignIns.Add(1) > maxPatient {
			cancel()
		}
	})
	defer func() {
		if !stop.Stop() {
			p.waitingSignIns.Add(-1)
		}
	}()

	for l, number := range waiting {
		if err := p.announced(ctx, l, number, began); err != nil {
			return err
		}
	}

	return nil
}

// announced waits until a peer has confirmed the starts up to number, or until the sign-in need not
// wait for that peer.
func (p *Pool) announced(ctx context.Context, l *link, number uint64, began time.Time) error {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		l.mu.Lock()
		heard := l.starts.confirmed >= number
		knows := l.starts.confirms
		since := l.starts.connectedAt
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

// mustWaitFor reports whether a sign-in must continue to wait for a peer that has not confirmed.
// confirmed means that the peer has confirmed a start on this connection. connectedAt is the time
// at which the connection was made, signInAt the time at which the sign-in began.
func (p *Pool) mustWaitFor(l *link, confirmed bool, connectedAt, signInAt time.Time) bool {
	now := p.cfg.Now()
	if l.refused.Load() {
		return false // the peer's host refused the connection: no process listens there
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
	deaf := up && !confirmed && now.Sub(connectedAt) > deafFor // the peer runs an older release, which confirms nothing
	slow := up && now.Sub(signInAt) > deafFor && last.Sub(signInAt) > deafFor/2
	return !deaf && !slow
}
