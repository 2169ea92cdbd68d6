package lbproxy

import (
	"math"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"saltern/internal/ratelimit"
)

// pool is a frontend with members of the given weights, all up.
func pool(t *testing.T, b Balance, weights ...int) (*frontend, []*member) {
	t.Helper()
	cfg := testConfig(Request)
	cfg.Frontends[0].Balance = b
	for i, w := range weights {
		cfg.Backends = append(cfg.Backends,
			Backend{Name: string(rune('a' + i)), Address: "127.0.0.1", Weight: w, RequestPort: 1000 + i})
	}

	p, err := New(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}

	ms := p.frontends[0].currentMembers()
	for _, m := range ms {
		m.state.Store(int32(Up))
	}

	return p.frontends[0], ms
}

func TestBalanceByWeight(t *testing.T) {
	for _, b := range []Balance{leastConn, roundRobin} {
		f, ms := pool(t, b, 100, 50, 250)
		for range 800 {
			if f.chooseMember(0, 0, netip.Addr{}) == nil {
				t.Fatal("nobody")
			}
		}
		for i, want := range []int64{200, 100, 500} {
			if n := ms[i].sessions.Load(); n < want-2 || n > want+2 {
				t.Errorf("%s: member %d has %d, want %d", b, i, n, want)
			}
		}
	}
}

// TestLeastConnTakesTurns: short connections, of which none is open when the
// next comes, go round by weight too.
func TestLeastConnTakesTurns(t *testing.T) {
	f, ms := pool(t, leastConn, 100, 100, 100)
	n := map[*member]int{}
	for range 300 {
		m := f.chooseMember(0, 0, netip.Addr{})
		m.sessionLeft(0, 0)
		n[m]++
	}
	for i, m := range ms {
		if n[m] < 99 || n[m] > 101 {
			t.Errorf("member %d got %d of 300", i, n[m])
		}
	}
}

// TestFirstTurnIsLeftToChance: many proxies with one session each must not all
// have it at the same master.
func TestFirstTurnIsLeftToChance(t *testing.T) {
	first := map[int]int{}
	for range 300 {
		f, ms := pool(t, leastConn, 100, 100, 100)
		first[slices.Index(ms, f.chooseMember(0, 0, netip.Addr{}))]++
	}
	for i := range 3 {
		if first[i] < 30 { // of about 100
			t.Errorf("the first turns were %v", first)
		}
	}
}

func TestPickTiers(t *testing.T) {
	f, ms := pool(t, leastConn, 100, 100, 100)
	pick := func(tried uint64) int {
		m := f.chooseMember(tried, 0, netip.Addr{})
		for i := range ms {
			if ms[i] == m {
				m.sessions.Add(-1)
				return i
			}
		}

		return -1
	}

	ms[0].state.Store(int32(Down))
	ms[1].state.Store(int32(Joining))
	if n := pick(0); n != 2 {
		t.Errorf("picked %d beside one that is up", n)
	}

	if n := pick(1 << 2); n == 2 || n < 0 {
		t.Errorf("picked %d after the one that is up was tried", n)
	}

	ms[2].state.Store(int32(Down))
	ms[0].lastUp.Store(5)
	ms[2].lastUp.Store(9)
	if n := pick(0); n != 2 {
		t.Errorf("picked %d instead of the last known good", n)
	}

	ms[2].backend.draining.Store(true)
	if n := pick(0); n != 0 {
		t.Errorf("picked %d instead of the last known good that is not drained", n)
	}

	ms[0].backend.maintenance.Store(true)
	ms[1].backend.removing.Store(true)
	if n := pick(0); n != -1 {
		t.Errorf("picked %d though all are closed", n)
	}

	if f.hasAlternative(0) {
		t.Error("another, though all are closed")
	}
}

// TestPickWhileStatesChange: whatever the checks find out at this moment, a
// client gets somebody. (It once got nobody when a state changed while it was
// being served.)
func TestPickWhileStatesChange(t *testing.T) {
	f, ms := pool(t, leastConn, 100)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := int32(0); ; i++ {
			select {
			case <-stop:
				return
			default:
				ms[0].state.Store(i % 4)
			}
		}
	})

	for i := range 200000 {
		if f.chooseMember(0, 0, netip.Addr{}) == nil {
			t.Errorf("nobody, pick %d", i)
			break
		}
	}

	close(stop)
	wg.Wait()
}

// TestDealDoesNotPileUp: a member that was down for long is not owed anything.
func TestDealDoesNotPileUp(t *testing.T) {
	f, ms := pool(t, roundRobin, 100, 100)
	ms[1].state.Store(int32(Down))
	for range 10000 {
		f.chooseMember(0, 0, netip.Addr{})
	}
	ms[1].state.Store(int32(Up))
	before := ms[1].sessions.Load()
	for range 100 {
		f.chooseMember(0, 0, netip.Addr{})
	}
	if n := ms[1].sessions.Load() - before; n < 45 || n > 60 {
		t.Errorf("got %d of 100 after its return", n)
	}
}

func TestSlowStart(t *testing.T) {
	f, ms := pool(t, leastConn, 100, 100)
	f.proxy.cfg.Health.SlowStart = 10 * time.Second
	ms[1].upAt.Store(1)
	for _, c := range []struct {
		at   time.Duration
		want float64
	}{{0, 0.1}, {500 * time.Millisecond, 0.1}, {5 * time.Second, 0.5}, {10 * time.Second, 1}, {time.Hour, 1}} {
		got := float64(ms[1].effectiveWeight(int64(c.at)+1)) / float64(ms[0].effectiveWeight(0))
		if math.Abs(got-c.want) > 0.01 {
			t.Errorf("after %v: %.2f of its weight, want %.2f", c.at, got, c.want)
		}
	}
}

func TestSourcesRate(t *testing.T) {
	s := newSources(&Frontend{Rate: 2, Burst: 4}, false)
	a, sec := netip.MustParseAddr("2001:db8::1"), int64(time.Second)
	same := netip.MustParseAddr("2001:db8::ffff")
	other := netip.MustParseAddr("2001:db8:0:1::1")

	for i := range 4 {
		if !s.admitSession(a, sec, standing{}) {
			t.Fatalf("refused %d of the burst", i)
		}
	}

	if s.admitSession(same, sec, standing{}) {
		t.Error("another address of the same /64 has a bucket of its own")
	}

	if !s.admitSession(other, sec, standing{}) {
		t.Error("another /64 is refused")
	}

	n := 0
	for range 5 {
		if s.admitSession(a, 2*sec, standing{}) {
			n++
		}
	}

	if n != 2 {
		t.Errorf("%d let in a second later, want 2", n)
	}

	if ratelimit.Source(netip.MustParseAddr("::ffff:10.0.0.1")) != netip.MustParseAddr("10.0.0.1") {
		t.Error("mapped IPv4 is not IPv4")
	}
}

// TestSourcesBound: any number of sources takes a bounded table, and the
// table empties again.
func TestSourcesBound(t *testing.T) {
	s := newSources(&Frontend{Rate: 1, Burst: 2, MaxPerSource: 10}, false)
	s.limit = 100
	for i := range 1000 {
		a := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
		if s.admitSession(a, 1, standing{}) {
			s.sessionEnded(a)
		}
	}

	if len(s.table) != 100 || s.overflowUses != 900 {
		t.Errorf("%d entries, overflow used %d times", len(s.table), s.overflowUses)
	}

	if s.overflow.sessions != 0 {
		t.Errorf("%d left open in the overflow", s.overflow.sessions)
	}

	s.forgetIdle(int64(time.Minute))
	if len(s.table) != 0 {
		t.Errorf("%d entries after a minute", len(s.table))
	}
}
