package notify

import (
	"iter"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"saltern/master/internal/notify/rules"
	"saltern/master/internal/presence"
)

// forgetAfter is the time after which the subscriptions of a master that does not report any more do
// not count.
const forgetAfter = 4 * rules.LookEvery

// sightings combine what all masters of the cluster know of connections. A minion may send its
// requests to one master and subscribe at another, so no master alone knows who is connected.
// They are safe for concurrent use.
type sightings struct {
	mu    sync.Mutex
	peers map[string]*peerSightings
}

type peerSightings struct {
	at   time.Time // of the last report of subscriptions
	subs subscribers
	seen map[string]sighting
}

func newSightings() *sightings { return &sightings{peers: map[string]*peerSightings{}} }

// learn adds what a peer reports. known reports whether a minion has an accepted key.
func (s *sightings) learn(peer string, m *peerMessage, known func(id string) bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.peers[peer]
	if p == nil {
		p = &peerSightings{seen: map[string]sighting{}}
		s.peers[peer] = p
	}

	for _, one := range m.Seen {
		if known(one.Minion) {
			p.seen[one.Minion] = one
		}
	}
	if m.Subscribers != nil {
		p.subs = *m.Subscribers
		p.at = now
	}
}

// view has what the masters knew of connections at one look.
type view struct {
	connected map[string]bool
	heard     map[string]time.Time
}

// combine returns what this master and its peers know of the minions in accepted.
func (s *sightings) combine(accepted []string, own *presence.View, now time.Time) view {
	merged := presence.New()
	v := view{connected: map[string]bool{}, heard: map[string]time.Time{}}

	s.mu.Lock()
	subs := []iter.Seq[presence.Subscription]{own.Subs}
	maps.DeleteFunc(s.peers, func(_ string, p *peerSightings) bool { return now.Sub(p.at) > keepFor })
	for _, p := range s.peers {
		if now.Sub(p.at) <= forgetAfter {
			reported := p.subs // what it points to is not changed, only replaced
			subs = append(subs, reported.each)
		}
	}

	for _, id := range accepted {
		from, at, heard := own.LastRequest(id)
		for _, p := range s.peers {
			if one, ok := p.seen[id]; ok && one.time().After(at) {
				from, at, heard = one.From, one.time(), true
			}
		}
		if heard {
			merged.SawRequest(id, from, at)
			v.heard[id] = at
		}
	}
	s.mu.Unlock()

	for _, id := range merged.Connected(func(yield func(presence.Subscription) bool) {
		for _, seq := range subs {
			for one := range seq {
				if !yield(one) {
					return
				}
			}
		}
	}) {
		v.connected[id] = true
	}

	return v
}

// each yields the subscriptions of a report.
func (s *subscribers) each(yield func(presence.Subscription) bool) {
	for _, topic := range s.Topics {
		if !yield(presence.Subscription{Topics: []string{topic}}) {
			return
		}
	}
	for from, n := range s.Unnamed {
		for range n {
			if !yield(presence.Subscription{From: from, Topics: []string{""}}) {
				return
			}
		}
	}
}

// report returns the messages by which this master tells the others what it knows.
func report(accepted []string, own *presence.View) (messages []peerMessage) {
	var seen []sighting
	for _, id := range accepted {
		if from, at, ok := own.LastRequest(id); ok {
			seen = append(seen, sighting{Minion: id, From: from, At: at.UnixMilli()})
		}
	}
	for part := range slices.Chunk(seen, maxSightings) {
		messages = append(messages, peerMessage{Seen: part})
	}

	subs := subscribers{Unnamed: map[netip.Addr]int{}}
	for one := range own.Subs {
		if len(one.Topics) == 0 {
			continue // a check of a load balancer
		}
		named := slices.DeleteFunc(slices.Clone(one.Topics), func(topic string) bool { return len(topic) != topicSize })
		if len(named) == 0 {
			subs.Unnamed[one.From.Unmap()]++
		}
		subs.Topics = append(subs.Topics, named...)
	}
	return append(messages, peerMessage{Subscribers: &subs})
}

// topicSize is the length of the topic of a single minion: a SHA-1 in hexadecimal.
const topicSize = 40
