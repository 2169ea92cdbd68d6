//go:build e2e

package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/test/lab"
)

// The schedule of TestScheduleOverKills: a run is due every scheduleStep, and each entry has one in
// each schedulePeriod, which is longer than a takeover. (Of several runs of one entry that were due
// meanwhile, the new owner makes the last only.)
const (
	scheduleStep    = 3 * time.Second
	schedulePeriod  = 2 * time.Minute
	scheduleEntries = int(schedulePeriod / scheduleStep)
	schedulePeriods = 60
)

// scheduledRuns returns the option schedule, with the first run at begin.
func scheduledRuns(begin time.Time) map[string]any {
	entries := map[string]any{}
	for entry := range scheduleEntries {
		var when []any
		for period := range schedulePeriods {
			due := begin.Add(time.Duration(entry)*scheduleStep + time.Duration(period)*schedulePeriod)
			when = append(when, due.Format(time.TimeOnly))
		}
		entries[fmt.Sprintf("e%d", entry)] = map[string]any{
			"function": "note.run",
			"args":     []any{entry},
			"when":     when,
		}
	}
	return entries
}

// TestScheduleOverKills: a cluster of three has a run due every three seconds, and its owner is
// killed again and again. Each run begins exactly once. Only a run that the owner had recorded, and
// did not finish before it was killed, may be lost.
//
// SALTERN_SCHEDULE_KILLS is the number of kills.
func TestScheduleOverKills(t *testing.T) { endOwners(t, syscall.SIGKILL) }

// TestScheduleOverRestarts is like TestScheduleOverKills, with owners that end in good order: no run is
// lost.
func TestScheduleOverRestarts(t *testing.T) { endOwners(t, syscall.SIGTERM) }

// endOwners sends a signal to owner after owner of a cluster with a schedule, and checks its runs.
func endOwners(t *testing.T, end syscall.Signal) {
	t.Helper()
	kills, err := strconv.Atoi(os.Getenv("SALTERN_SCHEDULE_KILLS"))
	if err != nil || kills < 1 {
		t.Skip("SKIPPED: SALTERN_SCHEDULE_KILLS=50 (make e2e-schedule) ends the owner of a cluster with a schedule, a quarter of an hour")
	}

	shared := lab.Dir(t)
	noted := filepath.Join(shared, "noted")
	lab.WriteTree(t, shared, map[string]string{
		"ext/runners/note.py": "import time\ndef run(entry):\n    with open('" + noted +
			"', 'a') as file:\n        file.write(f'{time.time()} {entry}\\n')\n",
	})

	begin := time.Now().Truncate(time.Second).Add(30 * time.Second)
	c := lab.StartCluster(t, lab.ClusterConfig{
		NoLB: true,
		Options: map[string]any{
			"extension_modules": shared + "/ext",
			"schedule":          scheduledRuns(begin),
		},
	})
	lab.Eventually(t, 3*time.Minute, "the schedule runs", func() error {
		_, err := os.Stat(noted)
		return err
	})

	from := time.Now()
	var killed []ownerKill
	random := rand.New(rand.NewPCG(uint64(from.UnixNano()), 0))
	for kill := range kills {
		owner := ownerOf(t, c)
		since := time.Now()
		time.Sleep(time.Duration(random.Int64N(int64(3 * scheduleStep))))
		at := time.Now()
		if end == syscall.SIGKILL {
			killed = append(killed, ownerKill{since: since, at: at})
		}
		if err := syscall.Kill(owner.Master.PID(), end); err != nil {
			t.Fatal(err)
		}

		ended(t, owner.Master, 30*time.Second)
		took := time.Since(at)
		next := ownerOf(t, c)
		t.Logf("%s %d: %s, which took %.1f s to end, then %s after %.1f s", end, kill+1, owner.Addr, took.Seconds(), next.Addr,
			time.Since(at).Seconds())
		owner.StartMaster(t)
		owner.WaitReady(t)
	}

	to := time.Now()
	time.Sleep(time.Minute) // late runs end

	checkRuns(t, noted, begin, from, to, killed)
}

// checkRuns fails the test unless each run that was due between from and to has begun exactly once,
// leaving out those that were due just before a kill: these may not have begun.
func checkRuns(t *testing.T, noted string, begin, from, to time.Time, killed []ownerKill) {
	t.Helper()
	content, err := os.ReadFile(noted)
	if err != nil {
		t.Fatal(err)
	}

	type run struct{ entry, period int }
	times := map[run][]time.Time{}
	for line := range strings.Lines(string(content)) {
		var at float64
		var entry int
		if _, err := fmt.Sscan(line, &at, &entry); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		began := time.UnixMicro(int64(at * 1e6))
		since := began.Sub(begin.Add(time.Duration(entry) * scheduleStep))
		r := run{entry: entry, period: int(since / schedulePeriod)}
		times[r] = append(times[r], began)
	}

	due, once, cut := 0, 0, 0
	var latest time.Duration
	for period := range schedulePeriods {
		for entry := range scheduleEntries {
			at := begin.Add(time.Duration(entry)*scheduleStep + time.Duration(period)*schedulePeriod)
			if at.Before(from) || at.After(to) {
				continue
			}

			due++
			began := times[run{entry: entry, period: period}]
			switch {
			case len(began) == 1:
				once++
				latest = max(latest, began[0].Sub(at))
			case len(began) == 0 && killedAfter(killed, at):
				cut++
			default:
				t.Errorf("entry %d, due at %s, ran at %v", entry, at.Format(time.TimeOnly), began)
			}
		}
	}

	t.Logf("%d kills, %d runs due: %d began once, the latest %.1f s late, %d were killed with their owner", len(killed),
		due, once, latest.Seconds(), cut)
}

// ownerKill is the end of an owner.
type ownerKill struct {
	since time.Time // when it was seen to own the schedule
	at    time.Time // when it was killed
}

// killedAfter reports whether an owner was killed while a run that was due then could have been
// recorded and not yet begun.
func killedAfter(killed []ownerKill, due time.Time) bool {
	const mayTake = 4 * time.Second // the owner's tick, the record, and the start of Python
	for _, kill := range killed {
		recordable := due
		if kill.since.After(due) {
			recordable = kill.since
		}
		if kill.at.After(due) && kill.at.Sub(recordable) < mayTake {
			return true
		}
	}
	return false
}
