package notify

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"saltern/master/internal/notify/alert"
	"saltern/master/internal/notify/rules"
	"saltern/test/check"
)

// bench is an outbox with one rule and one destination, and a clock.
type bench struct {
	t        *testing.T
	rule     rules.Rule
	outbox   *Outbox
	now      time.Time
	hushed   string // minion that is silenced
	elsewhen string // minion that the target leaves out
}

func (b *bench) silenced(_ string, a *alert.Alert, _ time.Time) bool { return a.Minion == b.hushed }
func (b *bench) selects(_ *rules.Rule, minion string) bool           { return minion != b.elsewhen }

func newBench(t *testing.T, change func(*rules.Rule)) *bench {
	b := &bench{
		t:      t,
		rule:   rules.Rule{Name: "r", On: []rules.Kind{rules.Failed}, Dedupe: time.Hour, Limit: 100},
		now:    time.Date(2026, 11, 29, 12, 0, 0, 0, time.Local),
		hushed: "-", elsewhen: "-",
	}
	if change != nil {
		change(&b.rule)
	}
	b.open(t.TempDir())
	return b
}

func (b *bench) open(dir string) {
	var err error
	b.outbox, err = OpenOutbox(dir, map[string]time.Time{"r/1": {}}, func(*alert.Alert) []string { return []string{"r/1"} })
	check.Must(b.t, err)
	b.t.Cleanup(func() { b.outbox.Close() })
}

// fail records that a minion failed.
func (b *bench) fail(minion string, at time.Time) alert.Alert {
	b.t.Helper()
	a := failure(minion, at)
	_, err := b.outbox.Record(a)
	check.Must(b.t, err)
	return a
}

// failAll records that minions failed, with one sync.
func (b *bench) failAll(n int, format string) {
	b.t.Helper()
	var all []alert.Alert
	for i := range n {
		all = append(all, failure(fmt.Sprintf(format, i), b.now))
	}
	_, err := b.outbox.Record(all...)
	check.Must(b.t, err)
}

func failure(minion string, at time.Time) alert.Alert {
	return alert.Alert{
		ID:     alert.Digest(minion, at.String()),
		Key:    alert.Digest(minion),
		Kind:   rules.Failed,
		Time:   at,
		Minion: minion,
		Title:  minion + " failed",
	}
}

// sendAll sends all that may be sent now, and returns the minions of each message.
func (b *bench) sendAll() (sent [][]string) {
	b.t.Helper()
	for {
		m, marks := b.outbox.next("r/1", &b.rule, b, b.now)
		_, err := b.outbox.Settle(marks...)
		check.Must(b.t, err)
		if m == nil {
			return sent
		}
		var minions []string
		for _, a := range m.Alerts {
			minions = append(minions, a.Minion)
		}
		sent = append(sent, minions)
		_, err = b.outbox.Settle(marksOf(m, Sent, b.now)...)
		check.Must(b.t, err)
	}
}

func (b *bench) want(want ...[]string) {
	b.t.Helper()
	if got := b.sendAll(); !slices.EqualFunc(got, want, slices.Equal[[]string]) {
		b.t.Errorf("sent %v, not %v", got, want)
	}
}

func TestOrderIsKept(t *testing.T) {
	b := newBench(t, nil)
	b.failAll(5, "m%d")
	b.want([]string{"m0"}, []string{"m1"}, []string{"m2"}, []string{"m3"}, []string{"m4"})
	b.want()
}

func TestRepetitionIsLeftOut(t *testing.T) {
	b := newBench(t, nil)
	b.fail("web", b.now)
	b.want([]string{"web"})

	for range 3 {
		b.now = b.now.Add(10 * time.Minute)
		b.fail("web", b.now)
		b.fail("db", b.now)
	}
	b.want([]string{"db"})

	b.now = b.now.Add(time.Hour)
	b.fail("web", b.now)
	m, _ := b.outbox.next("r/1", &b.rule, b, b.now)
	if m == nil || m.Repeated != 3 {
		t.Errorf("%+v does not count three repetitions", m)
	}
}

func TestSilenceAndTargetLeaveOut(t *testing.T) {
	b := newBench(t, func(r *rules.Rule) { r.Target = "G@a:b" })
	b.hushed, b.elsewhen = "quiet", "other"
	for _, id := range []string{"quiet", "web", "other", "db"} {
		b.fail(id, b.now)
	}
	b.want([]string{"web"}, []string{"db"})
	_, counts := b.outbox.counts("r/1")
	if counts[Silenced] != 1 || counts[Unselected] != 1 || counts[Sent] != 2 {
		t.Error(counts)
	}
}

// What happens in the quiet hours is sent as one message after them, also by a new owner that did not
// see them.
func TestQuietHoursEndWithASummary(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		t.Run(fmt.Sprint("restarted ", restarted), func(t *testing.T) {
			b := newBench(t, nil)
			dir := t.TempDir()
			b.open(dir)
			q, faults := rules.Parse(option(t, "[{on: failed, quiet: '11:00-13:00', to: {syslog: 'file:///dev/log'}}]"))
			if len(faults) > 0 {
				t.Fatal(faults)
			}
			b.rule.Quiet = q[0].Quiet

			for i := range 3 {
				b.fail(fmt.Sprint("m", i), b.now)
				if !restarted {
					b.want()
				}
				b.now = b.now.Add(time.Minute)
			}
			b.now = b.now.Add(2 * time.Hour)
			if restarted {
				check.Must(t, b.outbox.Close())
				b.open(dir)
			}
			b.want([]string{"m0", "m1", "m2"})
			b.fail("later", b.now)
			b.want([]string{"later"})
		})
	}
}

// Beyond the limit nothing is lost: what was held back follows as one message when there is room.
func TestLimitHoldsBack(t *testing.T) {
	b := newBench(t, func(r *rules.Rule) { r.Limit = 3 })
	for i := range 2 {
		b.fail(fmt.Sprint("m", i), b.now)
	}
	b.want([]string{"m0"}, []string{"m1"})

	b.now = b.now.Add(time.Minute)
	b.failAll(10, "n%d")
	m, _ := b.outbox.next("r/1", &b.rule, b, b.now)
	if want := b.now.Add(-time.Minute).Add(time.Hour); m == nil || !m.Until.Equal(want) {
		t.Errorf("the last message does not say until when others are held back: %+v", m)
	}
	b.want([]string{"n0"})

	b.now = b.now.Add(30 * time.Minute)
	b.want()
	b.now = b.now.Add(30 * time.Minute)
	b.want([]string{"n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9"})
}

// However many fail, no more messages are sent than the limit, and each alert is in one message.
func TestStormIsBounded(t *testing.T) {
	b := newBench(t, func(r *rules.Rule) { r.Limit = 10 })
	messages, seen := 0, map[string]int{}
	for minute := range 180 {
		b.now = b.now.Add(time.Minute)
		b.failAll(20, fmt.Sprintf("m%d-%%d", minute))
		for _, minions := range b.sendAll() {
			messages++
			for _, id := range minions {
				seen[id]++
			}
		}
	}
	b.now = b.now.Add(time.Hour)
	for _, minions := range b.sendAll() {
		messages++
		for _, id := range minions {
			seen[id]++
		}
	}

	if messages > 4*10 || len(seen) != 180*20 {
		t.Errorf("%d messages about %d alerts", messages, len(seen))
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s is in %d messages", id, n)
		}
	}
}

// When very many alerts are left out at once, their marks are split into records that the disk
// takes.
func TestManyAreLeftOut(t *testing.T) {
	b := newBench(t, nil)
	b.hushed = "hushed"
	var all []alert.Alert
	for i := range maxEntries {
		a := failure("hushed", b.now.Add(time.Duration(i)))
		all = append(all, a)
	}
	_, err := b.outbox.Record(all...)
	check.Must(t, err)
	for calls := 1; ; calls++ {
		_, marks := b.outbox.next("r/1", &b.rule, b, b.now)
		if len(marks) == 0 {
			break
		}
		if len(marks) > maxTogether || calls > maxEntries/maxTogether {
			t.Fatalf("%d marks at call %d", len(marks), calls)
		}
		_, err := b.outbox.Settle(marks...)
		check.Must(t, err)
	}
	b.want()
}

// Three thousand minions fail at once: each is recorded before it gets an answer, with few syncs.
func TestCrowd(t *testing.T) {
	b := newBench(t, nil)
	var all sync.WaitGroup
	began := time.Now()
	for i := range 3000 {
		all.Go(func() {
			if _, err := b.outbox.Record(failure(fmt.Sprint("m", i), b.now)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	t.Logf("the last of 3,000 was recorded after %s", time.Since(began))
	if n := len(b.outbox.Pending(5000)); n != 3000 {
		t.Errorf("%d are recorded", n)
	}
}

func TestOldAlertsExpire(t *testing.T) {
	b := newBench(t, nil)
	b.fail("old", b.now.Add(-25*time.Hour))
	b.fail("new", b.now)
	b.want([]string{"new"})
	if _, counts := b.outbox.counts("r/1"); counts[Expired] != 1 {
		t.Error(counts)
	}
}

// What was sent by a clock that was ahead does not hold back what comes when the clock is right.
func TestClockThatWasAhead(t *testing.T) {
	b := newBench(t, func(r *rules.Rule) { r.Limit = 3 })
	const ahead = 30 * 24 * time.Hour
	right := b.now
	b.now = right.Add(ahead)
	b.fail("web", b.now)
	b.want([]string{"web"})

	b.now = right
	b.fail("web", b.now)
	b.want([]string{"web"})
	check.Must(t, b.outbox.Prune(b.now))

	b.now = right.Add(2 * time.Hour)
	for range 2 {
		b.fail("web", b.now)
		b.now = b.now.Add(time.Minute)
	}
	b.want([]string{"web"})

	b.fail("db", b.now)
	b.want([]string{"db"})
	b.fail("mail", b.now)
	m, _ := b.outbox.next("r/1", &b.rule, b, b.now)
	if m == nil || m.Until.After(b.now.Add(window)) {
		t.Errorf("messages are held back for longer than the window: %+v", m)
	}
}

// An alert by a clock that was ahead does not keep the ones behind it.
func TestPruneBehindAClockThatWasAhead(t *testing.T) {
	b := newBench(t, nil)
	b.fail("ahead", b.now.Add(10*keepFor))
	b.failAll(5, "m%d")
	b.settleAll(Sent)
	check.Must(t, b.outbox.Prune(b.now.Add(keepFor+time.Hour)))
	if n := len(b.outbox.order); n != 1 {
		t.Errorf("%d alerts are left", n)
	}
}

// A summary of the same alerts has the same id, in whatever order a master has learned of them.
func TestSummaryOfTheSameAlerts(t *testing.T) {
	ids := map[string]bool{}
	for _, order := range [][]string{{"a", "b", "c"}, {"c", "a", "b"}} {
		b := newBench(t, nil)
		for _, minion := range order {
			b.fail(minion, b.now)
		}
		b.outbox.lines["r/1"].blocked = true
		m, _ := b.outbox.next("r/1", &b.rule, b, b.now)
		ids[m.ID] = true
	}
	if len(ids) != 1 {
		t.Error("another id")
	}
}
