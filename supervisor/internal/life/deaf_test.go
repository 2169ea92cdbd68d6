package life

import (
	"testing"
	"time"
)

// TestHearing: a holder of the virtual address that hears nobody gives it up within some seconds,
// and does not take it back before somebody is heard, but for a try now and then (S1). One that
// hears its minions keeps it, though all other nodes are gone.
func TestHearing(t *testing.T) {
	const (
		deaf  = 100 // seconds: when the node hears nobody any more
		waits = int(deafFor / time.Second)
		retry = int(retryDeaf / time.Second)
	)
	for name, tt := range map[string]struct {
		others   int
		heardTo  int // the last second at which somebody is heard again and again
		again    int // from then on as well; 0: never
		givenUp  int // the second in which the address is first given up; 0: never
		backAt   int // the first second after that in which the node is fit
		heldFrom int
	}{
		"all is well":                 {others: 2, heardTo: 4000},
		"deaf":                        {others: 2, heardTo: deaf, givenUp: deaf + waits, backAt: deaf + waits + retry},
		"deaf for half a minute":      {others: 2, heardTo: deaf, again: deaf + 30, givenUp: deaf + waits, backAt: deaf + 30},
		"alone":                       {others: 0, heardTo: 0},
		"the others are gone":         {others: 2, heardTo: 4000},
		"it gets the address, is new": {others: 2, heardTo: 0, heldFrom: 50, givenUp: 50 + waits, backAt: 50 + waits + retry},
	} {
		t.Run(name, func(t *testing.T) {
			var h hearing
			givenUp, backAt := 0, 0
			holds := false
			heard := now
			for second := range 300 {
				at := now.Add(time.Duration(second) * time.Second)
				if second <= tt.heardTo || tt.again > 0 && second >= tt.again {
					heard = at
				}
				err := h.fit(holds, tt.others, heard, at)
				holds = err == nil && second >= tt.heldFrom
				if err != nil && givenUp == 0 {
					givenUp = second
				}
				if err == nil && givenUp > 0 && backAt == 0 {
					backAt = second
				}
			}
			if d := givenUp - tt.givenUp; d < 0 || d > 1 || backAt-tt.backAt > 1 || backAt < tt.backAt {
				t.Errorf("given up at %d, not %d; fit again at %d, not %d", givenUp, tt.givenUp, backAt, tt.backAt)
			}
		})
	}
}

// TestHearingTriesLessOften: a node that stays deaf disturbs the others ever less often.
func TestHearingTriesLessOften(t *testing.T) {
	var h hearing
	tries, holds := 0, true
	for second := range 4 * 3600 {
		err := h.fit(holds, 2, now, now.Add(time.Duration(second)*time.Second))
		if err == nil && !holds {
			tries++
		}
		holds = err == nil
	}
	if tries > 20 {
		t.Errorf("%d times in four hours", tries)
	}
}
