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

// TestClockFarAheadSilencesNoEntry: a clock goes ahead by more than three hours and comes back. Then each entry runs
// once for each time for which it has not run.
func TestClockFarAheadSilencesNoEntry(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 4))
		cron := []string{"30 14,16 * * *", "*/7 * * * *", "0 12 * * *", "15 */3 * * *"}[r.IntN(4)]
		goesAhead := time.Duration(r.IntN(12*60)) * time.Minute
		comesBack := goesAhead + time.Duration(1+r.IntN(300))*time.Minute
		ahead := 3*time.Hour + time.Duration(1+r.IntN(27*3600))*time.Second
		t.Run(fmt.Sprintf("%s ahead by %s from %s to %s", cron, ahead, goesAhead, comesBack), func(t *testing.T) {
			p, problems := Read(value.NewMap("e", value.NewMap("function", "a.b", "cron", cron)), nil)
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			e := p.Entries[0]
			begin := time.Date(2026, 3, 3, 4, 0, 0, 0, time.UTC)
			end := begin.Add(comesBack + 2*ahead)
			due := map[time.Time]bool{}
			e.Walk(State{}, begin.Add(comesBack+time.Minute), end, Look{Enabled: true, Splay: SameSplay},
				func(at time.Time, _ string) bool { due[at] = true; return true })

			runs, early := map[time.Time]int{}, map[time.Time]bool{}
			walk := func(s State, from, to time.Time, visit func(at time.Time)) State {
				for ; from.Before(to); from = from.Add(time.Minute) { // as a master does, in small steps
					until := from.Add(time.Minute)
					if until.After(to) {
						until = to
					}
					s = e.Walk(s, from, until, Look{Enabled: true, Splay: SameSplay}, func(at time.Time, _ string) bool {
						visit(at)
						return true
					})
				}
				return s
			}
			wentAhead, cameBack := begin.Add(goesAhead), begin.Add(comesBack)
			s := walk(State{}, begin, begin.Add(Tick), func(time.Time) {}).WentForward(begin, begin.Add(Tick))
			s = walk(s, begin.Add(Tick), wentAhead, func(time.Time) {})
			s = e.Resume(e.Shift(s, ahead), wentAhead.Add(ahead)).WentForward(wentAhead, wentAhead.Add(ahead))
			s = walk(s, wentAhead.Add(ahead), cameBack.Add(ahead), func(at time.Time) { early[at] = true })
			s = e.CameBack(e.Shift(s, -ahead), cameBack)
			walk(s, cameBack.Add(-Tick), end, func(at time.Time) { runs[at]++ })

			for at := range due {
				if runs[at] == 0 && !early[at] {
					t.Errorf("no run at %s", at)
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

// TestLeftRunSurvivesAClockBehind: the next owner, whose clock is behind, makes the run that the owner before has
// left, once.
func TestLeftRunSurvivesAClockBehind(t *testing.T) {
	for _, behind := range []time.Duration{time.Second, 2 * time.Second, 45 * time.Second, time.Hour, 5 * time.Hour} {
		for what, cron := range map[string]string{"each minute": "* * * * *", "each hour": "0 * * * *"} {
			t.Run(fmt.Sprint(what, " behind by ", behind), func(t *testing.T) {
				p, problems := Read(value.NewMap("e", value.NewMap("function", "a.b", "cron", cron)), nil)
				if len(problems) > 0 {
					t.Fatal(problems)
				}
				e := p.Entries[0]
				began := time.Date(2026, 3, 3, 4, 0, 0, 0, time.UTC)
				looked := time.Date(2026, 3, 3, 14, 0, 0, 0, time.UTC)
				s := State{Started: true, LastRun: looked, Since: began, LeftAt: looked.Add(Tick)}

				now := looked.Add(-behind)
				s = e.CameBack(e.Shift(s, -behind), now)
				left := 0
				end := looked.Add(30 * time.Second)
				e.Walk(s, now.Add(-Tick), end, Look{Enabled: true, Splay: SameSplay}, func(at time.Time, _ string) bool {
					if at.Second() != 0 || at.Minute() != 0 && cron == "0 * * * *" {
						left++
					}
					return true
				})
				if left != 1 {
					t.Errorf("the run that was left took place %d times", left)
				}
			})
		}
	}
}
