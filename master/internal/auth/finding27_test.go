package auth_test

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"time"

	"saltern/master/internal/auth"
	"saltern/master/keys"
	"saltern/test/await"
	"saltern/test/check"
)

// TestFinding27CapturedKeys: who shows the public keys of accepted minions
// again and again waits with the strangers, and does not fill the queue of
// those minions.
func TestFinding27CapturedKeys(t *testing.T) {
	home := netip.MustParseAddrPort("10.0.0.1:1000")
	m := newMaster(t, options{auth: auth.Config{Workers: 2, Queue: 4, MaxWait: 2 * time.Second,
		Presence: provenAt{home.Addr(), "good"}}})
	ids := []string{"good", "other1", "other2", "other3"}
	for _, id := range ids {
		check.Must(t, m.keys.Put(id, keys.Accepted, publicText(t, "min6")))
	}

	load := newMinion(t, "good", "min6").load(t)
	load.Delete("token")
	for _, id := range ids { // the few that are let by at once
		for i := range 4 {
			l := load.Clone()
			l.Set("id", id)
			m.SignIn(t.Context(), l, 3, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 8, 0, byte(i)}), 1))
		}
	}

	ctx, stop := context.WithCancel(context.Background())
	var flood sync.WaitGroup
	for w := range 24 {
		flood.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				l := load.Clone()
				l.Set("id", ids[(w+i)%len(ids)])
				from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 9, byte(w), byte(i)}), 1)
				m.SignIn(ctx, l, 3, from)
			}
		})
	}

	await.Within(time.Minute, func() bool { return m.Stats().Busy >= 500 })
	n := newMinion(t, "good", "min6")
	for i := range 20 {
		if got := n.check(t, m.SignIn(context.Background(), n.load(t), 3, home)); got.Str("enc") != "pub" {
			t.Errorf("sign-in %d of the real minion: %v", i, got)
		}
	}

	stop()
	flood.Wait()
}
