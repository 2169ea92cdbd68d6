package cluster

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"sync"
	"time"

	"saltern/master/value"
)

// Subs counts subscriptions of minions by their address.
type Subs map[netip.Addr]int

// subsMsg is a message about subscriptions: those that a master has, those
// that it has seen cut, or those of the cut ones that it has again.
type subsMsg struct {
	kind string
	subs Subs
	age  time.Duration // what was published since then may be missing; of those that were cut
}

// maxSubs bounds the addresses in one message. Of more only so many are told.
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

// ownBytes reads a message that is a map with a list of at most most entries of size
// bytes each under name.
func ownBytes(data []byte, name string, size, most int) (*value.Map, []byte, error) {
	m, err := unpackOwnMap(data)
	if err != nil {
		return nil, nil, err
	}
	b, ok := m.Bytes(name)
	if !ok || len(b)%size != 0 || len(b) > most*size {
		return nil, nil, errOwn
	}
	return m, b, nil
}

// maxAge bounds how long ago subscriptions were cut: recent publishes are not kept for longer.
const maxAge = 2 * time.Minute

func parseSubs(data []byte) (Subs, time.Duration, error) {
	m, b, err := ownBytes(data, "subs", subBytes, maxSubs)
	if err != nil {
		return nil, 0, err
	}
	age := time.Duration(min(uintOf(m, "age"), uint64(maxAge/time.Millisecond))) * time.Millisecond
	s := make(Subs, len(b)/subBytes)
	for ; len(b) > 0; b = b[subBytes:] {
		n := binary.BigEndian.Uint32(b[16:])
		if n > maxSubs {
			return nil, 0, errOwn
		}
		s[netip.AddrFrom16([16]byte(b)).Unmap()] = int(n)
	}
	return s, age, nil
}

// Subscribed tells the peers who listens at this master, in full. They hear it
// again when they come back.
func (p *Pool) Subscribed(s Subs) {
	m := subsMsg{kind: ownSubs, subs: s}
	p.subs.Store(&m)
	p.tell("", m)
}

// CutOff tells the peers whose subscriptions were cut, and not by the minions, and that these
// may miss what was published within age.
func (p *Pool) CutOff(s Subs, age time.Duration) { p.tell("", subsMsg{ownCut, s, age}) }

// CutBefore is CutOff for a peer that has just been connected.
func (p *Pool) CutBefore(peer string, s Subs, age time.Duration) {
	p.tell(peer, subsMsg{ownCut, s, age})
}

// Back tells the peers which of the minions that were cut off are back here,
// so that no other waits for them.
func (p *Pool) Back(s Subs) { p.tell("", subsMsg{kind: ownBack, subs: s}) }

// tell sends to a peer, "" to all.
func (p *Pool) tell(peer string, m subsMsg) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, l := range p.links {
		if !l.plain && l.up.Load() && (peer == "" || peer == id) {
			l.control(m)
		}
	}
}

// told takes such a message of a member.
func (p *Pool) told(peer string, from netip.Addr, kind string, data []byte) error {
	s, age, err := parseSubs(data)
	if err != nil {
		return err
	}
	if a, err := netip.ParseAddr(peer); err == nil {
		from = a.Unmap() // it may have come through another master
	}
	p.news.give(p, news{peer: peer, from: from, at: p.cfg.Now(), msg: subsMsg{kind, s, age}})
	return nil
}

// news is what is known of the subscriptions of a peer: a message of it, or that it was lost.
type news struct {
	peer string
	from netip.Addr
	at   time.Time // of a peer that was lost: when it was last heard
	msg  subsMsg   // without a kind: it was lost
}

func (n *news) tell(h Handler) {
	switch n.msg.kind {
	case ownSubs:
		h.Subscribed(n.peer, n.from, n.msg.subs)
	case ownCut:
		h.CutOff(n.peer, n.msg.subs, n.msg.age)
	case ownBack:
		h.Back(n.peer, n.msg.subs)
	default:
		h.Lost(n.peer, n.at)
	}
}

// newsDesk hands news to the handler in their order, and keeps them until there is one:
// a peer that has nothing new does not repeat its report. Overflow policy: of
// each peer the last report is kept, and maxNews of all else, the newest of which is refused.
type newsDesk struct {
	mu      sync.Mutex
	waiting []news
}

const maxNews = 256

func (d *newsDesk) give(p *Pool, n news) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if h := p.handler.Load(); h != nil {
		n.tell(*h)
		return
	}
	if n.msg.kind == ownSubs {
		d.waiting = slices.DeleteFunc(d.waiting, func(o news) bool { return o.peer == n.peer && o.msg.kind == ownSubs })
	} else if len(d.waiting) >= maxNews {
		return
	}
	d.waiting = append(d.waiting, n)
}

// serve makes h the handler and hands it what waits. It reports whether there was none before.
func (d *newsDesk) serve(p *Pool, h Handler) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !p.handler.CompareAndSwap(nil, &h) {
		return false
	}
	now := p.cfg.Now()
	for _, n := range d.waiting {
		n.msg.age += now.Sub(n.at)
		n.tell(h)
	}
	d.waiting = nil
	return true
}

// watch finds members that have gone since the last look, lost or removed, and returns
// when they were last heard. The caller holds mu.
func (p *Pool) watch(now time.Time) (gone map[string]time.Time) {
	gone = map[string]time.Time{}
	members := map[string]bool{}
	for _, m := range p.node.Status(now).Members {
		if m.Self || !m.Own {
			continue
		}
		here := m.Linked && m.Alive
		if p.here[m.ID] && !here {
			gone[m.ID] = m.Heard
		}
		p.here[m.ID], members[m.ID] = here, true
	}
	for id, here := range p.here {
		if !members[id] { // it was removed, and its minions go elsewhere
			if here {
				gone[id] = now
			}
			delete(p.here, id)
		}
	}
	return gone
}

// lost hands over what watch has found, in order.
func (p *Pool) lost(gone map[string]time.Time) {
	for id, heard := range gone {
		p.news.give(p, news{peer: id, at: heard})
	}
}
