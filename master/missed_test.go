package master_test

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"
	"time"

	"saltern/master/internal/mastertest"
	"saltern/test/await"
)

// payloads is published without the marks that other subscribers' calls left.
func payloads(s *mastertest.Subscriber) [][]byte {
	return slices.DeleteFunc(s.Published(), func(b []byte) bool { return bytes.HasPrefix(b, []byte("mark ")) })
}

// arrived waits for a job at a subscriber.
func arrived(s *mastertest.Subscriber, n *mastertest.Minion, jid string) {
	s.Master.T.Helper()
	await.That(s.Master.T, "job "+jid, func() bool {
		for _, p := range payloads(s) {
			if n.OpenPublication(p).Str("jid") == jid {
				return true
			}
		}
		return false
	})
}

// TestMissedJob: a minion that loses its master gets the job that was published before it reached
// another master. So does every other minion that comes from the lost master: a minion ignores a
// job that it has received before. A minion that was connected all the time does not get the job
// twice.
func TestMissedJob(t *testing.T) {
	t.Parallel()
	ms := mastertest.StartCluster(t, 2)
	mastertest.AwaitLinks(t, ms)
	a, b := ms[0], ms[1]
	n := a.AcceptedMinion("min1", "min6")
	n.SignIn()
	staying := a.Subscribe()
	began := time.Now()
	await.That(t, "another word of b", func() bool { return a.Parts.Cluster.Pool.Status().Peers[0].Heard.After(began) })
	b.Subscribe()
	from := netip.MustParseAddr("127.0.0.1")
	await.That(t, "who listens at b", func() bool {
		return a.Parts.Cluster.Missed.HeldBy(b.Host, from) == 1
	})
	b.Stop()
	jid := a.Publish("*", "test.ping").Str("jid")
	back := a.Subscribe()
	arrived(back, n, jid)
	fresh := a.Subscribe()
	arrived(fresh, n, jid)
	second := a.Publish("*", "test.ping").Str("jid")
	arrived(fresh, n, second)
	var got []string
	for _, p := range payloads(staying) {
		got = append(got, n.OpenPublication(p).Str("jid"))
	}

	if len(got) != 2 || got[0] != jid || got[1] != second {
		t.Errorf("the one that stayed got %v, not %s and %s", got, jid, second)
	}
}
