package virtualaddress

import (
	"testing"
	"time"

	"saltern/supervisor/internal/vip"
)

// checker asks a hearing as keepalived does.
type checker struct {
	hearing hearing
	holds   bool
	failed  int // checks in a row
}

// check returns whether the node has the address afterwards; one that is fit gets it.
func (c *checker) check(others int, heard lastHeard, at time.Time) bool {
	if c.hearing.judge(c.holds, others, heard, at) == nil {
		c.failed = 0
		c.holds = true
	} else if c.failed++; c.failed >= vip.Fall {
		c.holds = false
	}
	return c.holds
}

// TestHearing: a holder of the virtual address that hears nobody gives it up within eight seconds,
// and does not take it back before somebody is heard, but for a try now and then (S1). One that
// hears its minions keeps it, though all other nodes are gone.
func TestHearing(t *testing.T) {
	const (
		deaf  = 100 // seconds: when the node hears nobody any more
		slack = 2   // from one check to the next
		waits = int(deafFor / time.Second)
		retry = int(retryDeaf / time.Second)
	)

	for name, tt := range map[string]struct {
		others  int
		heardTo int           // the last second at which somebody is heard again and again
		again   int           // from then on as well; 0: never
		front   bool          // heard are minions, not nodes
		clock   time.Duration // by which the load balancer's clock differs
		givenUp int           // the second in which the address is first given up; 0: never
		backAt  int           // the first second after that in which the node has it
	}{
		"all is well": {others: 2, heardTo: 4000},
		"deaf": {
			others:  2,
			heardTo: deaf,
			givenUp: deaf + waits,
			backAt:  deaf + waits + retry,
		},
		"deaf for half a minute": {
			others:  2,
			heardTo: deaf,
			again:   deaf + 30,
			givenUp: deaf + waits,
			backAt:  deaf + 30,
		},
		"deaf for a moment":                 {others: 2, heardTo: deaf, again: deaf + 5},
		"alone":                             {others: 0, heardTo: 0},
		"the others are gone":               {others: 2, heardTo: 4000, front: true},
		"the others are gone, clock behind": {others: 2, heardTo: 4000, front: true, clock: -time.Hour},
		"the others are gone, clock ahead":  {others: 2, heardTo: 4000, front: true, clock: time.Hour},
		"deaf, the balancer's clock is ahead": {
			others:  2,
			heardTo: deaf,
			front:   true,
			clock:   time.Hour,
			givenUp: deaf + waits,
			backAt:  deaf + waits + retry,
		},
	} {
		for phase := range 20 {
			node := checker{holds: true}
			givenUp, backAt := 0, 0
			heard := lastHeard{nodes: now, front: now}
			for check := range 150 {
				second := 2*check + phase/10
				at := now.Add(time.Duration(second)*time.Second + time.Duration(phase%10)*100*time.Millisecond)
				said := min(second, tt.heardTo)
				if tt.again > 0 && second >= tt.again {
					said = second
				}

				if tt.front {
					heard.front = now.Add(time.Duration(said)*time.Second + tt.clock)
				} else {
					heard.nodes = now.Add(time.Duration(said) * time.Second)
				}

				holds := node.check(tt.others, heard, at)
				if !holds && givenUp == 0 {
					givenUp = second
				}

				if holds && givenUp > 0 && backAt == 0 {
					backAt = second
				}
			}

			late := givenUp - tt.givenUp
			if late < 0 || late > slack || backAt < tt.backAt-slack || backAt > tt.backAt+2*slack {
				t.Errorf("%s: given up at %d, not %d; had again at %d, not %d", name, givenUp, tt.givenUp,
					backAt, tt.backAt)
			}
		}
	}
}

// TestHearingOfAStarvedMachine: one that is stopped for some seconds, again and again, heard nobody because it
// did not run. It keeps the address as long as it hears somebody whenever it runs for three seconds.
func TestHearingOfAStarvedMachine(t *testing.T) {
	for _, stopped := range []time.Duration{5 * time.Second, 8 * time.Second, time.Minute} {
		node := checker{holds: true}
		at := now
		for round := range 50 {
			heard := lastHeard{nodes: at}
			at = at.Add(stopped)

			// The first check after the stop comes before anything that others sent.
			if !node.check(2, heard, at) {
				t.Fatalf("stopped for %s: given up in round %d", stopped, round)
			}

			at = at.Add(vip.CheckEvery)
			if !node.check(2, lastHeard{nodes: at}, at) {
				t.Fatalf("stopped for %s: given up in round %d, when others are heard", stopped, round)
			}
		}
	}
}

// TestHearingTriesLessOften: a node that stays deaf disturbs the others ever less often.
func TestHearingTriesLessOften(t *testing.T) {
	node := checker{holds: true}
	tries := 0
	for check := range 2 * 3600 {
		held := node.holds
		if node.check(2, lastHeard{nodes: now}, now.Add(time.Duration(check)*vip.CheckEvery)) && !held {
			tries++
		}
	}
	if tries > 20 {
		t.Errorf("%d times in four hours", tries)
	}
}
