package presence

import (
	"net/netip"
	"testing"
	"time"
)

func TestMissed(t *testing.T) {
	t0 := time.Unix(1000, 0)
	at := func(s float64) time.Time { return t0.Add(time.Duration(s * float64(time.Second))) }
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	m := newMissed()
	// Minions that come for the first time miss nothing.
	if _, ok := m.Arrive(a, 1, time.Time{}, at(0)); ok {
		t.Error("the first subscription")
	}
	// Cut, then back: as many as were cut.
	if back := m.Cut(a, 2, at(32), 2*time.Second, at(32)); len(back) != 0 {
		t.Errorf("back: %v", back)
	}
	if _, ok := m.Arrive(b, 2, time.Time{}, at(32)); ok {
		t.Error("another address")
	}
	for i, want := range []bool{true, true, false} {
		got, ok := m.Arrive(a, uint64(10+i), time.Time{}, at(33))
		if ok != want || ok && (!got.Since.Equal(at(30)) || got.ID != uint64(10+i)) {
			t.Errorf("%d: %v %v", i, got, ok)
		}
	}
	// Back before it is known that it was cut; not one that came before.
	m.Arrive(b, 20, time.Time{}, at(40))
	m.Arrive(b, 21, time.Time{}, at(43))
	back := m.Cut(b, 3, at(42), 0, at(45))
	if len(back) != 1 || back[0].ID != 21 || !back[0].Since.Equal(at(42)) || !back[0].At.Equal(at(43)) {
		t.Errorf("back: %v", back)
	}
	// The earlier cut first.
	m.Cut(b, 1, at(41), 0, at(46))
	if got, ok := m.Arrive(b, 22, time.Time{}, at(47)); !ok || !got.Since.Equal(at(41)) {
		t.Errorf("%v %v", got, ok)
	}
	// Who came back elsewhere is not waited for.
	m.Cut(a, 2, at(50), 0, at(50))
	m.Cut(a, 2, at(51), 0, at(51))
	m.Back(a, 3, at(52))
	m.Back(b, 3, at(52))
	for i, want := range []bool{true, false} {
		if got, ok := m.Arrive(a, uint64(30+i), time.Time{}, at(53)); ok != want || ok && !got.Since.Equal(at(51)) {
			t.Errorf("%d: %v %v", i, got, ok)
		}
	}
	// One that was moved here says so; the earlier of two times counts.
	if got, ok := m.Arrive(a, 40, at(54), at(55)); ok || !got.Moved || !got.Since.Equal(at(54)) {
		t.Errorf("moved here before it is known why: %v %v", got, ok)
	}
	if back := m.Cut(a, 2, at(55), time.Second, at(56)); len(back) != 1 || !back[0].Moved {
		t.Errorf("moved here: %v", back)
	}
	if got, ok := m.Arrive(a, 41, at(52), at(57)); !ok || !got.Since.Equal(at(52)) {
		t.Errorf("moved here, long unheard: %v %v", got, ok)
	}
	// Who comes back too late missed too much.
	if _, ok := m.Arrive(b, 23, time.Time{}, at(46+61)); ok {
		t.Error("after more than a minute")
	}
	m.Prune(at(1000))
	if len(m.cuts)+len(m.arrivals)+m.nCuts+m.nArrive != 0 {
		t.Errorf("left: %+v", m)
	}
}

func TestMissedBounds(t *testing.T) {
	m := newMissed()
	now := time.Unix(1000, 0)
	addr := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}) }
	for i := range maxCuts + 100 {
		m.Cut(addr(i), 1, now, 0, now)
		m.Arrive(addr(1<<20+i), uint64(i), time.Time{}, now)
	}
	if m.nCuts != maxCuts || m.nArrive != maxArrivals {
		t.Errorf("%d cuts, %d arrivals", m.nCuts, m.nArrive)
	}
	m.Prune(now.Add(time.Hour))
	if m.nCuts != 0 || m.nArrive != 0 {
		t.Errorf("%d cuts, %d arrivals after an hour", m.nCuts, m.nArrive)
	}
}
