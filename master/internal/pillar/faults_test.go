package pillar

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"saltern/internal/control"
)

func TestFaults(t *testing.T) {
	t0 := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	at := func(min int) time.Time { return t0.Add(time.Duration(min) * time.Minute) }
	p := newFaults()
	expect := func(now time.Time, minion, text string, n int) {
		t.Helper()
		e, got := p.lastFault(now)
		if e == nil {
			e = &control.PillarError{}
		}

		if e.Minion != minion || e.Text != text || got != n {
			t.Errorf("at %s: %+v of %d, want %s %q of %d", now, *e, got, minion, text, n)
		}
	}

	expect(at(0), "", "", 0)
	p.noteFault("a", "first", at(0))
	p.noteFault("b", "second", at(1))
	expect(at(2), "b", "second", 2)

	// A minion that fails again is still one, with its newest text.
	p.noteFault("a", "third", at(3))
	expect(at(4), "a", "third", 2)

	// One that compiles again leaves the other's failure standing.
	if !p.forget("a") || p.forget("a") || p.forget("nobody") {
		t.Error("forget tells the wrong thing")
	}

	expect(at(5), "b", "second", 1)
	expect(at(11), "b", "second", 1)
	expect(at(12), "", "", 0)
	for i := range 2 * maxFaults {
		p.noteFault(fmt.Sprint("m", i), strings.Repeat("x", 3*maxFaultText), t0.Add(time.Duration(i)*time.Second))
	}

	e, n := p.lastFault(at(9))
	if n != maxFaults || e.Minion != fmt.Sprint("m", 2*maxFaults-1) || len(e.Text) != maxFaultText {
		t.Errorf("after a flood: %d minions, last %s with %d bytes", n, e.Minion, len(e.Text))
	}

	if p.forget("m0") || !p.forget(fmt.Sprint("m", maxFaults)) {
		t.Error("not the oldest made room")
	}
}
