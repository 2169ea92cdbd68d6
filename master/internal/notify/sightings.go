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
// The requests are in [presence.View], here are the subscriptions. They are safe for concurrent use.
type sightings struct {
	mu    sync.Mutex
	peers map[string]*peerSightings
}

// peerSightings are the subscriptions at a peer.
type peerSightings struct {
	at   time.Time // of the last report of subscriptions
	subs subscribers
}

func newSightings() *sightings { return &sightings{peers: map[string]*peerSightings{}} }

// unheard returns the first of the peers that has not told its subscriptions lately, or "".
func (s *sightings) unheard(peers []string, now time.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, peer := range peers {
		if p := s.peers[peer]; p == nil || now.Sub(p.at) > forgetAfter {
			return peer
		}
	}
	return ""
}

// learn adds what a peer reports. known reports whether a minion has an accepted key.
func (s *sightings) learn(peer string, m *peerMessage, own *presence.View, known func(id string) bool, now time.Time) {
	for _, one := range m.Seen {
		if known(one.Minion) && one.From.IsValid() {
			own.Learn(one.Minion, one.From, one.time())
		}
	}
	if m.Subscribers == nil {
		return
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.peers[peer] = &peerSightings{at: now, subs: *m.Subscribers}
}

// view has what the masters knew of connections at one look.
type view struct {
	connected map[string]bool
	heard     map[string]time.Time
	unknown   int // subscriptions that cannot be attributed to a minion
	// contended are minions of which another one got the subscription from their address, see
	// [presence.Attribution].
	contended map[string]bool
	from      map[string]netip.Addr // of the last request
}

// mayBeConnected reports whether a minion that is not known to be connected may hold a subscription.
func (v view) mayBeConnected(id string) bool { return v.unknown > 0 || v.contended[id] }

// rivals returns the minions that hold the subscriptions from the addresses of some contended minions as far as
// is known. One of them may be gone instead.
func (v view) rivals(contended []string) (all []string) {
	places := map[netip.Addr]bool{}
	for _, id := range contended {
		if from, heard := v.from[id]; heard {
			places[from] = true
		}
	}
	for id := range v.connected {
		if places[v.from[id]] {
			all = append(all, id)
		}
	}
	slices.Sort(all)
	return all
}

// combine returns what this master and its peers know of the minions in accepted.
func (s *sightings) combine(accepted []string, own *presence.View, now time.Time) view {
	v := view{connected: map[string]bool{}, heard: map[string]time.Time{}, from: map[string]netip.Addr{}}
	found := s.attribute(own, now)
	v.unknown = found.Unattributed()
	v.contended = found.Contended
	for _, id := range accepted {
		if from, at, heard := own.LastPlace(id); heard {
			v.heard[id] = at
			v.from[id] = from
		}
		if _, connected := found.Connected[id]; connected {
			v.connected[id] = true
		}
	}
	return v
}

// attribute returns to which minions the subscriptions at all masters belong.
func (s *sightings) attribute(own *presence.View, now time.Time) presence.Attribution {
	s.mu.Lock()
	subs := []iter.Seq[presence.Subscription]{own.Subs}
	maps.DeleteFunc(s.peers, func(_ string, p *peerSightings) bool { return now.Sub(p.at) > forgetAfter })
	for _, p := range s.peers {
		subs = append(subs, p.subs.each) // what it points to is not changed, only replaced
	}
	s.mu.Unlock()

	return own.Everywhere(func(yield func(presence.Subscription) bool) {
		for _, seq := range subs {
			for one := range seq {
				if !yield(one) {
					return
				}
			}
		}
	})
}

// ConnectedTo returns the other master to which a minion is connected. peer is "" if several may be the one.
// s may be nil: then this master does not know.
func (s *Service) ConnectedTo(minion string) (peer string, ok bool) {
	if s == nil {
		return "", false
	}
	seen := s.watch.seen
	own := s.cfg.Near.Presence()
	from, connected := seen.attribute(own, s.cfg.Now()).Connected[minion]
	if !connected {
		return "", false
	}

	var holders []string
	seen.mu.Lock()
	defer seen.mu.Unlock()
	for name, p := range seen.peers {
		one := presence.New()
		one.Learn(minion, from, s.cfg.Now())
		if slices.Contains(one.Connected(p.subs.each), minion) {
			holders = append(holders, name)
		}
	}
	if len(holders) == 1 {
		peer = holders[0]
	}
	return peer, len(holders) > 0
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

// report returns the messages by which this master tells the others what it knows, also from them: a master
// that has just started learns it from those that know it, although these may end soon.
func report(accepted []string, own *presence.View) (messages []peerMessage) {
	var seen []sighting
	for _, id := range accepted {
		if from, at, ok := own.LastPlace(id); ok {
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
