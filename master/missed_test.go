package master

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// payloads is published without the marks that other subscribers' calls left.
func (s *subscriber) payloads() [][]byte {
	return slices.DeleteFunc(s.published(), func(b []byte) bool { return bytes.HasPrefix(b, []byte("mark ")) })
}

// arrived waits for a job at a subscriber.
func (s *subscriber) arrived(n *scriptedMinion, jid string) {
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
// until it is back at another one. So does whoever else comes from there: a minion ignores
// what it has had. One that was connected all the time does not get it twice.
func TestMissedJob(t *testing.T) {
	t.Parallel()
	ms := masters(t, 2)
	joined(t, ms)
	a, b := ms[0], ms[1]
	n := a.accepted("min1", "min6")
	n.signIn()
	staying := a.subscribe()
	began := time.Now()
	until(t, "another word of b", func() bool { return a.m.cluster.Pool.Status().Peers[0].Heard.After(began) })
	b.subscribe()
	from := netip.MustParseAddr("127.0.0.1")
	until(t, "who listens at b", func() bool {
		return a.m.cluster.Missed.HeldBy(b.host, from) == 1
	})
	b.stop()
	jid := a.job("*", "test.ping").Str("jid")
	back := a.subscribe()
	back.arrived(n, jid)
	fresh := a.subscribe()
	fresh.arrived(n, jid)
	second := a.job("*", "test.ping").Str("jid")
	fresh.arrived(n, second)
	var got []string
	for _, p := range staying.payloads() {
		got = append(got, n.openPublish(p).Str("jid"))
	}

	if len(got) != 2 || got[0] != jid || got[1] != second {
		t.Errorf("the one that stayed got %v, not %s and %s", got, jid, second)
	}
}
