package plan

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"saltern/master/value"
)

// TestClockAheadRunsEachTimeOnce: a clock goes ahead by up to three hours and comes back. Then no entry runs twice
// for one time, and each runs for all times for which it has not run while the clock was ahead.
func TestClockAheadRunsEachTimeOnce(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 3))
			every := []int{1, 2, 7, 30}[r.IntN(4)]
			p, problems := Read(value.NewMap("e", value.NewMap("function", "a.b", "cron", fmt.Sprintf("*/%d * * * *", every))),
				nil)
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			e := p.Entries[0]
			begin := time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)
			goesAhead := time.Duration(r.IntN(40)) * time.Minute
			comesBack := goesAhead + time.Duration(1+r.IntN(120))*time.Minute
			ahead := time.Duration(1+r.IntN(179*60)) * time.Second

			runs := map[time.Time]int{}
			var s State
			var last time.Time
			for gone := time.Duration(0); gone < 8*time.Hour; gone += 7 * time.Second {
				now := begin.Add(gone)
				if gone >= goesAhead && gone < comesBack {
					now = now.Add(ahead)
				}

				from := last
				first, forward, back := last.IsZero(), now.Sub(last) > time.Minute, now.Before(last)
				if first || back {
					from = now.Add(-Tick)
				}
				if back {
					s = e.CameBack(e.Shift(s, -ahead), now)
				}
				var ran time.Time // of several runs at once only the last takes place
				s = e.Walk(s, from, now, Look{Enabled: true, Splay: SameSplay}, func(at time.Time, _ string) bool {
					ran = at
					return true
				})
				if first || forward {
					s = s.WentForward(from, now)
				}
				if !ran.IsZero() {
					runs[ran.Truncate(time.Minute)]++
				}
				last = now
			}

			for at := begin.Add(comesBack + time.Minute).Truncate(time.Minute); at.Before(last); at = at.Add(time.Minute) {
				if want := at.Minute()%every == 0; runs[at] > 1 || want != (runs[at] == 1) {
					t.Errorf("ahead by %s from %s to %s: %d runs at %s", ahead, goesAhead, comesBack, runs[at], at)
				}
			}
			for at, n := range runs {
				if n > 1 {
					t.Errorf("%d runs at %s", n, at)
				}
			}
		})
	}
}
