package master

import (
	"bytes"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"saltern/master/cluster"
	"saltern/master/zmtp"
)

// payloads is published without the marks that other subscribers' calls left.
func (s *subscriber) payloads() [][]byte {
	return slices.DeleteFunc(s.published(), func(b []byte) bool { return bytes.HasPrefix(b, []byte("mark ")) })
}

// arrived waits for a job at a subscriber.
func (s *subscriber) arrived(n *minion, jid string) {
	s.r.t.Helper()
	until(s.r.t, "job "+jid, func() bool {
		for _, p := range s.payloads() {
			if n.openPublish(p).Str("jid") == jid {
				return true
			}
		}
		return false
	})
}

// TestMissedJob: a minion whose master is lost gets the job that was published
// until it is back at another one. A minion that comes for the first time does
// not, and one that was connected all the time does not get it twice.
func TestMissedJob(t *testing.T) {
	t.Parallel()
	ms := masters(t, 2)
	joined(t, ms)
	a, b := ms[0], ms[1]
	n := a.accepted("min1", "min6")
	n.signIn()
	staying := a.subscribe()
	began := time.Now()
	until(t, "another word of b", func() bool { return a.m.cluster.Status().Peers[0].Heard.After(began) })
	b.subscribe()
	from := netip.MustParseAddr("127.0.0.1")
	until(t, "who listens at b", func() bool {
		a.m.missed.mu.Lock()
		defer a.m.missed.mu.Unlock()
		return a.m.missed.peers[b.host].subs[from] == 1
	})
	b.stop()
	jid := a.job("*", "test.ping").Str("jid")
	back := a.subscribe()
	back.arrived(n, jid)
	fresh := a.subscribe()
	second := a.job("*", "test.ping").Str("jid")
	fresh.arrived(n, second)
	for _, p := range fresh.payloads() {
		t.Errorf("also %v", n.openPublish(p))
	}
	var got []string
	for _, p := range staying.payloads() {
		got = append(got, n.openPublish(p).Str("jid"))
	}
	if len(got) != 2 || got[0] != jid || got[1] != second {
		t.Errorf("the one that stayed got %v, not %s and %s", got, jid, second)
	}
}

// TestWhoWasCut: what counts as cut is what a load balancer reset, or all
// connections of a load balancer that died; not what a minion ended.
func TestWhoWasCut(t *testing.T) {
	ms := masters(t, 1)
	k := newMissed(ms[0].m)
	lb, other := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	from := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 1, 0, byte(i)}) }
	id := uint64(0)
	come := func(i int, via netip.Addr) zmtp.Peer {
		id++
		p := zmtp.Peer{ID: id, Remote: netip.AddrPortFrom(from(i), 1), Via: via}
		k.subscribed(p, "")
		return p
	}
	due := func() int { return len(k.resent) }
	p := come(1, lb)
	k.disconnected(p, nil)
	come(1, lb)
	if due() != 0 {
		t.Error("a minion that went by itself")
	}
	k.disconnected(come(2, lb), syscall.ECONNRESET)
	come(2, other)
	if due() != 1 || k.cut[from(2)] != 1 {
		t.Errorf("cut by the load balancer: %d due, told %v", due(), k.cut)
	}
	k.disconnected(come(3, netip.Addr{}), syscall.ECONNRESET) // its own kernel, without a load balancer
	come(3, lb)
	if due() != 1 {
		t.Error("a minion that was reset by its host")
	}
	// All connections by way of one load balancer end: it has died.
	p, q := come(4, other), come(5, other)
	for i := range uint64(5) { // the others that came by way of it
		k.disconnected(zmtp.Peer{ID: i + 1}, nil)
	}
	k.disconnected(p, nil)
	k.disconnected(q, nil)
	k.balancers()
	come(4, lb)
	come(5, lb)
	if due() != 3 {
		t.Errorf("a load balancer that died: %d due", due())
	}
	// By way of a node that is lost.
	come(6, other)
	k.peerHas("b", other, nil)
	k.peerLost("b", time.Now())
	come(6, lb)
	if due() != 4 {
		t.Errorf("a node that was lost: %d due", due())
	}
	// With zmq_filtering a connection has several topics, and counts once.
	k.peerCut(cluster.Subs{from(7): 2})
	p = come(7, lb)
	k.subscribed(p, "broadcast")
	k.subscribed(p, "0123456789012345678901234567890123456789")
	if due() != 5 {
		t.Errorf("%d due", due())
	}
}
