package notify

import (
	"context"
	"errors"
	"slices"
	"time"

	"saltern/master/internal/notify/alert"
)

// maxOffered bounds the alerts that are offered to a peer that connects.
const maxOffered = 5000

// PeerConnected schedules an exchange with a peer that has just connected: each tells the other what
// it still wants to send, and its silences. It does not block.
func (s *Service) PeerConnected(peer string) {
	if s != nil {
		s.enqueue(incoming{peer: peer})
	}
}

// PeerData takes a message of a peer. It returns false for a message that is not of this package.
// It does not block. When too many messages wait, it drops the newest one and counts it; the
// masters exchange what was lost when the peer connects again.
func (s *Service) PeerData(peer string, b []byte) bool {
	if !IsMessage(b) {
		return false
	}
	if s != nil {
		s.enqueue(incoming{peer, b})
	}
	return true
}

func (s *Service) enqueue(m incoming) {
	size := int64(len(m.b))
	if s.bytes.Add(size) <= incomingBytes {
		select {
		case s.incoming <- m:
			return
		default:
		}
	}
	s.bytes.Add(-size)
	s.unheard.Add(1)
}

// offerAfter is the age at which this master tells the others again of an alert without a mark. The
// master that took the return may have died when only this one had it.
const offerAfter = 5 * time.Second

// offerEvery is the time after which a master tells the others again what waits, and its silences:
// messages between masters may be lost when a queue is full.
const offerEvery = 5 * time.Minute

// runIncoming handles messages of peers, and offers them alerts that wait, until ctx ends.
func (s *Service) runIncoming(ctx context.Context) {
	offer := time.NewTicker(offerAfter)
	defer offer.Stop()
	again := time.NewTicker(offerEvery)
	defer again.Stop()
	for {
		select {
		case <-offer.C:
			s.offerOnce()
		case <-again.C:
			s.offer("")
		case m := <-s.incoming:
			s.bytes.Add(-int64(len(m.b)))
			if m.b == nil {
				s.offer(m.peer)
			} else {
				s.handle(m.peer, m.b)
			}
		case <-ctx.Done():
			return
		}
	}
}

// offerOnce tells the other masters of each alert that has waited for offerAfter, once. It stops when
// there is no room for more on the way to one of them.
func (s *Service) offerOnce() {
	if owner, _ := s.maySend(); owner {
		return // nobody else sends
	}
	for rest := s.outbox.unoffered(s.cfg.Now().Add(-offerAfter)); len(rest) > 0; {
		part := rest[:min(len(rest), maxListed)]
		if !s.tell("", &peerMessage{Alerts: part, Pending: true}) {
			s.outbox.offerAgain(rest) // at the next tick
			return
		}
		rest = rest[len(part):]
	}
}

// offer tells a peer, or all if peer is "", what this master still wants to send, since when it knows
// the destinations, its silences, and who is connected.
func (s *Service) offer(peer string) {
	s.tell(peer, &peerMessage{Known: s.outbox.known()})
	for part := range slices.Chunk(s.outbox.Pending(maxOffered), maxListed) {
		s.tell(peer, &peerMessage{Alerts: part, Pending: true})
	}
	if all := s.silences.known(); len(all) > 0 {
		s.tell(peer, &peerMessage{Silences: all})
	}
	s.tellSightings()
}

// handle handles a message of a peer.
func (s *Service) handle(peer string, b []byte) {
	m, err := parseMessage(b)
	if err != nil {
		s.bad.Add(1)
		s.cfg.Log.Debug("a message about notifications cannot be read", "peer", peer, "error", err)
		return
	}

	now := s.cfg.Now()
	if len(m.Marks) > 0 {
		_, err := s.outbox.Settle(m.Marks...)
		s.noteDisk(err)
	}
	if len(m.Silences) > 0 {
		s.takeSilences(peer, m.Silences)
	}
	s.learnKnown(m.Known)
	if len(m.Seen) > 0 || m.Subscribers != nil {
		s.watch.seen.learn(peer, &m, s.cfg.Near.Presence(), s.cfg.Near.Known, now)
	}
	if len(m.Alerts) == 0 {
		return
	}

	if m.Pending {
		s.tellMarks(m.Alerts)
	}
	s.record(false, slices.DeleteFunc(m.Alerts, func(a alert.Alert) bool { return len(s.route(&a)) == 0 })...)
}

// takeSilences keeps the silences of a peer.
func (s *Service) takeSilences(peer string, list []Silence) {
	_, err := s.silences.put(s.cfg.Now(), list...)
	if errors.Is(err, errManySilences) {
		s.cfg.Log.Warn("silences of another master are not kept", "peer", peer, "error", err)
		return
	}
	s.noteDisk(err)
}

// tellMarks tells all masters what has become of alerts that one of them still wants to send. The
// others may want to send them as well.
func (s *Service) tellMarks(alerts []alert.Alert) {
	var ids []string
	for _, a := range alerts {
		ids = append(ids, a.ID)
	}
	for part := range slices.Chunk(s.outbox.Marks(ids), maxMarks) {
		s.tell("", &peerMessage{Marks: part})
	}
}
