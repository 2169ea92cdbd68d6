package presence

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"saltern/master/cluster"
)

var (
	began    = time.Unix(1_700_000_000, 0)
	addressA = netip.MustParseAddr("10.0.0.1")
	addressB = netip.MustParseAddr("10.0.0.2")
)

// at is a time in seconds after the beginning.
func at(s float64) time.Time { return began.Add(time.Duration(s * float64(time.Second))) }

// TestMissed: who comes from an address within a minute after a cut there may have missed what was
// published since, whoever was cut, and whichever is known first.
func TestMissed(t *testing.T) {
	minute := Mark{Since: at(30), Until: at(90), Crowd: 2}
	for name, tt := range map[string]struct {
		from  netip.Addr
		came  float64 // 0: it comes after the mark
		comes float64
		since time.Time // zero: nothing is missing
	}{
		"for the first time":           {from: addressB, comes: 40},
		"after the cut":                {from: addressA, comes: 40, since: at(30)},
		"too late":                     {from: addressA, comes: 90},
		"before the cut is known":      {from: addressA, came: 31, since: at(30)},
		"before it":                    {from: addressA, came: 29},
		"long before the cut is known": {from: addressA, came: 30.5, comes: 0, since: at(30)},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMissed()
			var since time.Time
			if tt.came > 0 {
				if a, missed := m.Arrive(tt.from, 1, at(tt.came), at(tt.came)); missed {
					t.Errorf("%+v", a)
				}
			}

			if back := m.Mark(addressA, minute, at(35)); len(back) > 0 {
				since = back[0].Since
			}

			if tt.came == 0 {
				if a, missed := m.Arrive(tt.from, 1, at(tt.comes), at(tt.comes)); missed {
					since = a.Since
				}
			}

			if !since.Equal(tt.since) {
				t.Errorf("what is missing: since %v, not %v", since, tt.since)
			}
		})
	}
}

// TestCutEndsWithItsMinute: what two masters tell each other of cuts, at each of their
// reconnects, ends with the minute of the cut (S3). It went on for as long as there were
// reconnects, and a job ran a second time two minutes later.
func TestCutEndsWithItsMinute(t *testing.T) {
	a, b := newDesk(nil), newDesk(nil)
	a.PeerCutOff([]cluster.Cut{{From: addressA, Since: at(0), Until: at(0).Add(returnWithin), Crowd: 3}})
	for second := 10.0; second < 200; second += 7 {
		a.now, b.now = at(second), at(second)
		b.PeerCutOff(a.pendingCuts())
		a.PeerCutOff(b.pendingCuts())
		for name, d := range map[string]*desk{"a": a, "b": b} {
			d.come(addressA, time.Time{})
			if missed, want := len(d.due()) > 0, second < returnWithin.Seconds(); missed != want {
				t.Fatalf("%s after %v s: something is missing: %v", name, second, missed)
			}
		}
	}
}

// TestMarksAreTheSameInAnyOrder: masters that hear the same marks, in any order and however often,
// give the same to who comes.
func TestMarksAreTheSameInAnyOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var told []Mark
		for range 1 + r.IntN(8) {
			since := at(r.Float64() * 20)
			told = append(told, Mark{Since: since, Until: since.Add(returnWithin), Crowd: r.IntN(5)})
		}

		one, other := newMissed(), newMissed()
		one.base, other.base = began, began
		for _, m := range told {
			one.Mark(addressA, m, at(20))
		}

		for _, i := range append(r.Perm(len(told)), r.Perm(len(told))...) {
			other.Mark(addressA, told[i], at(21))
		}

		for _, second := range []float64{25, 61, 70, 80, 81} {
			x, missed := one.Arrive(addressA, 1, at(second), at(second))
			y, also := other.Arrive(addressA, 1, at(second), at(second))
			if missed != also || !x.Since.Equal(y.Since) {
				t.Fatalf("at %v: %+v %v, and %+v %v; of %v", second, x, missed, y, also, told)
			}
		}
	}
}

// TestThreeStormsInAMinute: a crowd behind one address comes anew with each change of the nodes, and all of
// it is given what it missed each time.
func TestThreeStormsInAMinute(t *testing.T) {
	const crowd = 200
	m := newMissed()
	for storm := range 4 {
		now := at(float64(15 * storm))
		m.Mark(addressA, Mark{Since: now.Add(-5 * time.Second), Until: now.Add(returnWithin), Crowd: crowd}, now)
		for i := range crowd {
			if _, missed := m.Arrive(addressA, uint64(storm*crowd+i), now.Add(time.Second), now.Add(time.Second)); !missed {
				t.Fatalf("storm %d: minion %d is given nothing", storm, i)
			}
		}
	}
}

// TestMissedBounds: what comes from outside in any number is bounded, and goes with its time.
func TestMissedBounds(t *testing.T) {
	m := newMissed()
	now := began
	addr := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}) }
	mark := Mark{Since: now.Add(-time.Second), Until: now.Add(returnWithin), Crowd: 1}
	for i := range maxMarks + 100 {
		m.Mark(addr(i), mark, now)
		m.Arrive(addr(1<<20+i), uint64(i), now, now)
	}

	if m.markCount != maxMarks || m.arrivalCount != maxArrivals || m.refusedRounds != 100 {
		t.Errorf("%d marks, %d arrivals, %d refused", m.markCount, m.arrivalCount, m.refusedRounds)
	}

	given := 0
	for i := range 1000 { // somebody who subscribes again and again
		if _, missed := m.Arrive(addr(7), uint64(i), now, now); missed {
			given++
		}
	}

	if given != minRounds+roundsEach {
		t.Errorf("given %d times", given)
	}

	for i := range 1000 { // within a moment there is one mark, however often it is told
		m.Mark(addr(7), Mark{Since: mark.Since.Add(time.Duration(i)), Until: mark.Until}, now)
	}

	if n := len(m.marks[addr(7)]); n > 2 {
		t.Errorf("%d marks of one moment", n)
	}

	m.Prune(now.Add(time.Hour))
	if m.markCount != 0 || m.arrivalCount != 0 || len(m.marks)+len(m.arrivals)+len(m.rounds) != 0 {
		t.Errorf("left after an hour: %+v", m)
	}
}

// TestMarksAreSorted: the earliest mark counts.
func TestMarksAreSorted(t *testing.T) {
	m := newMissed()
	for _, s := range []float64{30, 10, 20, -5} {
		m.Mark(addressA, Mark{Since: at(s), Until: at(s).Add(returnWithin)}, at(31))
	}
	if !slices.IsSortedFunc(m.marks[addressA], func(a, b Mark) int { return a.Since.Compare(b.Since) }) {
		t.Errorf("%v", m.marks[addressA])
	}
	if a, missed := m.Arrive(addressA, 1, at(32), at(32)); !missed || a.Since.After(at(-5)) ||
		a.Since.Before(at(-5).Add(-markStep)) {
		t.Errorf("%+v %v", a, missed)
	}
}

// TestMovedTakesNoRound: what is given to who comes from an address is bounded, but for those that a load
// balancer moves: they came once.
func TestMovedTakesNoRound(t *testing.T) {
	m := newMissed()
	m.Mark(addressA, Mark{Since: at(0), Until: at(60), Crowd: 1}, at(1))
	used := 0
	for id := uint64(0); ; id++ {
		if _, missed := m.Arrive(addressA, id, at(2), at(2)); !missed {
			break
		}
		used++
	}
	for id := range uint64(100) {
		if a, missed := m.Arrive(addressA, 1000+id, at(2), at(3)); !missed || a.Since.After(at(0)) {
			t.Fatalf("after %d rounds, one that was moved: %+v, %v", used, a, missed)
		}
	}
}
