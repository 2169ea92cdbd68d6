package cluster

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"

	"saltern/master/value"
)

// Subs holds the number of minions' subscriptions by address.
type Subs map[netip.Addr]int

// Cut describes publishes that minions at one address may have missed, because their subscriptions
// were cut, lost or silent.
type Cut struct {
	From netip.Addr
	// Since is the time from which publishes may be missing. Until is the time at which the Cut
	// expires; the first master that saw the cut sets it, and relaying does not extend it. Both are
	// by the local clock.
	Since, Until time.Time
	Crowd        int // number of subscribers that had this address
}

// subsMsg reports a master's subscribers by address.
type subsMsg struct{ subs Subs }

// cutMsg reports cuts to a peer. It carries ages instead of times, since the clocks of the masters
// differ.
type cutMsg struct{ cuts []Cut }

// maxSubs bounds the addresses in one message; the sender leaves out further addresses.
const maxSubs = 1 << 16

const subBytes = 16 + 4

func packSubs(s Subs) []byte {
	b := make([]byte, 0, min(len(s), maxSubs)*subBytes)
	for a, n := range s {
		if len(b) >= maxSubs*subBytes {
			break
		}
		ip := a.As16()
		b = append(b, ip[:]...)
		b = binary.BigEndian.AppendUint32(b, uint32(max(n, 0)))
	}
	return b
}

// ownBytes parses a message that is a map and returns the byte string under name. The byte string
// must consist of entries of size bytes each, and of at most maxEntries entries.
func ownBytes(data []byte, name string, size, maxEntries int) (*value.Map, []byte, error) {
	m, err := unpackOwnMap(data)
	if err != nil {
		return nil, nil, err
	}
	b, ok := m.Bytes(name)
	if !ok || len(b)%size != 0 || len(b) > maxEntries*size {
		return nil, nil, errOwn
	}
	return m, b, nil
}

// maxAge bounds the age of a cut and the time until it expires. Masters do not store recent
// publishes for longer than that.
const maxAge = 2 * time.Minute

// packDuration appends a duration in milliseconds; it reduces the duration to maxAge.
func packDuration(b []byte, d time.Duration) []byte {
	return binary.BigEndian.AppendUint32(b, uint32(min(max(d, 0), maxAge)/time.Millisecond))
}

func unpackDuration(b []byte) time.Duration {
	return min(time.Duration(binary.BigEndian.Uint32(b))*time.Millisecond, maxAge)
}

// cutBytes is the size of a packed cut: an address, two durations and a count.
const cutBytes = 16 + 4 + 4 + 4

// packCuts packs the cuts with their ages at now. Masters of older releases read only the addresses
// under "subs" and the greatest age.
func (m cutMsg) packCuts(now time.Time) *value.Map {
	cuts := m.cuts[:min(len(m.cuts), maxSubs)]
	b := make([]byte, 0, len(cuts)*cutBytes)
	subs, oldest := Subs{}, now
	for _, c := range cuts {
		ip := c.From.As16()
		b = append(b, ip[:]...)
		b = packDuration(b, now.Sub(c.Since))
		b = packDuration(b, c.Until.Sub(now))
		b = binary.BigEndian.AppendUint32(b, uint32(min(max(c.Crowd, 0), maxSubs)))
		subs[c.From]++

		if c.Since.Before(oldest) {
			oldest = c.Since
		}
	}

	return value.NewMap("subs", packSubs(subs), "age", min(now.Sub(oldest), maxAge).Milliseconds(), "cuts", b)
}

// returnWithin is how long a cut is valid if a master of an older release reports it, since such a
// report contains no expiry.
const returnWithin = time.Minute

func parseCuts(data []byte, now time.Time) ([]Cut, error) {
	m, err := unpackOwnMap(data)
	if err != nil {
		return nil, err
	}

	var out []Cut
	if _, has := m.Get("cuts"); !has {
		subs, err := parseSubs(data)
		age := min(time.Duration(min(uintOf(m, "age"), uint64(maxAge)))*time.Millisecond, maxAge)
		for from, n := range subs {
			out = append(out, Cut{From: from, Since: now.Add(-age), Until: now.Add(returnWithin - age), Crowd: n})
		}
		return out, err
	}

	_, b, err := ownBytes(data, "cuts", cutBytes, maxSubs)
	if err != nil {
		return nil, err
	}

	for ; len(b) > 0; b = b[cutBytes:] {
		out = append(out, Cut{
			From:  netip.AddrFrom16([16]byte(b)).Unmap(),
			Since: now.Add(-unpackDuration(b[16:])),
			Until: now.Add(unpackDuration(b[20:])),
			Crowd: int(min(binary.BigEndian.Uint32(b[24:]), maxSubs)),
		})
	}

	return out, nil
}

func parseSubs(data []byte) (Subs, error) {
	_, b, err := ownBytes(data, "subs", subBytes, maxSubs)
	if err != nil {
		return nil, err
	}
	s := make(Subs, len(b)/subBytes)
	for ; len(b) > 0; b = b[subBytes:] {
		n := binary.BigEndian.Uint32(b[16:])
		if n > maxSubs {
			return nil, errOwn
		}
		s[netip.AddrFrom16([16]byte(b)).Unmap()] = int(n)
	}
	return s, nil
}

// Subscribed sends the full list of this master's subscribers to the connected peers, and to each
// peer that connects later.
func (p *Pool) Subscribed(s Subs) {
	m := subsMsg{s}
	p.subs.Store(&m)
	p.sendToPeers("", m)
}

// CutOff reports to all connected peers the publishes that minions may have missed.
func (p *Pool) CutOff(cuts []Cut) { p.sendToPeers("", cutMsg{cuts}) }

// CutBefore reports to a peer that has just connected the cuts from before its connection.
func (p *Pool) CutBefore(peer string, cuts []Cut) { p.sendToPeers(peer, cutMsg{cuts}) }

// sendToPeers queues a control message for a peer, or for all connected peers if peer is "".
func (p *Pool) sendToPeers(peer string, m any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, l := range p.links {
		if !l.plain && l.up.Load() && (peer == "" || peer == id) {
			l.control(m)
		}
	}
}

// receiveNews passes a message of a member about subscribers, cuts or starts to the [newsDesk].
func (p *Pool) receiveNews(peer string, from netip.Addr, kind string, data []byte) error {
	if a, err := netip.ParseAddr(peer); err == nil {
		from = a.Unmap() // from may be the address of a master that relays the connection
	}

	n := news{peer: peer, from: from}
	switch kind {
	case ownSubs:
		subs, err := parseSubs(data)
		if err != nil {
			return err
		}
		n.msg = subsMsg{subs}
	case ownCut:
		cuts, err := parseCuts(data, p.cfg.Now())
		if err != nil {
			return err
		}
		n.msg = cutMsg{cuts}
	case ownStarted:
		starts, _, err := parseStarts(data)
		if err != nil {
			return err
		}
		n.msg, n.at = startedMsg{starts: starts}, p.cfg.Now()
	}

	if !p.news.deliver(p, n) {
		return errNews
	}

	return nil
}

var errNews = errors.New("too much news waits for the start of this master")

// news is an input for the handler: a message of a peer about its minions, or the loss of a peer.
type news struct {
	peer string
	from netip.Addr
	at   time.Time // time at which the message arrived; for a lost peer, time of its last message
	msg  any       // message to report; nil when the peer was lost
}

func (n *news) deliverTo(p *Pool, h Handler) {
	switch m := n.msg.(type) {
	case subsMsg:
		h.PeerSubscribed(n.peer, n.from, m.subs)
	case cutMsg:
		h.PeerCutOff(n.peer, m.cuts)
	case startedMsg:
		waited := p.cfg.Now().Sub(n.at)
		for i := range m.starts {
			m.starts[i].Age += waited
		}
		p.relayStarts(n.peer, h.LearnStarts(n.peer, m.starts))
	case nil:
		h.PeerLost(n.peer, n.at)
	}
}

// newsDesk passes news to the handler in order. Until the pool has a handler, newsDesk stores the
// news, because a peer does not repeat a report that has not changed. It stores each peer's last
// report of subscribers, and at most maxNews other news in all; when that limit is reached, it
// refuses further news.
type newsDesk struct {
	mu      sync.Mutex
	waiting []news
}

const maxNews = 256

func (d *newsDesk) deliver(p *Pool, n news) (taken bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if h := p.handler.Load(); h != nil {
		n.deliverTo(p, *h)
		return true
	}

	if _, report := n.msg.(subsMsg); report {
		d.waiting = slices.DeleteFunc(d.waiting, func(o news) bool {
			_, report := o.msg.(subsMsg)
			return report && o.peer == n.peer
		})
	} else if len(d.waiting) >= maxNews {
		return false
	}

	d.waiting = append(d.waiting, n)
	return true
}

// setHandler sets the handler and delivers the stored news. It returns false, and changes nothing,
// when the pool has a handler already.
func (d *newsDesk) setHandler(p *Pool, h Handler) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !p.handler.CompareAndSwap(nil, &h) {
		return false
	}
	for _, n := range d.waiting {
		n.deliverTo(p, h)
	}
	d.waiting = nil
	return true
}

// findGonePeers returns the members that were lost or removed since the last call, each with the
// time of its last message. The caller holds mu.
func (p *Pool) findGonePeers(now time.Time) (gone map[string]time.Time) {
	gone = map[string]time.Time{}
	members := map[string]bool{}
	for _, m := range p.node.Status(now).Members {
		if m.Self || !m.Own {
			continue
		}

		here := m.Linked && m.Alive
		if p.aliveAtTick[m.ID] && !here {
			gone[m.ID] = m.Heard
		}

		p.aliveAtTick[m.ID], members[m.ID] = here, true
	}

	for id, here := range p.aliveAtTick {
		if !members[id] { // the member was removed, and its minions go to other masters
			if here {
				gone[id] = now
			}
			delete(p.aliveAtTick, id)
		}
	}

	return gone
}

// reportLost delivers, for each peer that findGonePeers returned, the news that the peer is lost.
func (p *Pool) reportLost(gone map[string]time.Time) {
	for id, heard := range gone {
		p.news.deliver(p, news{peer: id, at: heard})
	}
}
