package unanswered

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"saltern/master/event"
	"saltern/master/value"
)

// near is a Presence.
type near struct {
	connected []string
	syndic    string

	mu      sync.Mutex
	listens []string // minions that are connected from an unknown address
	heard   map[string]time.Time
	answers []string
	forgot  []string
}

func (n *near) Connections() (ids []string, unattributed int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	ids = slices.Clone(n.connected)
	for _, id := range n.listens {
		if slices.Contains(n.forgot, id) {
			unattributed++
		} else {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, unattributed
}

func (n *near) Known(id string) bool { return id == n.syndic }

func (n *near) LastRequest(id string) (netip.Addr, time.Time, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	at, ok := n.heard[id]
	return netip.Addr{}, at, ok
}

func (n *near) SawAnswer(id string, _ time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.answers = append(n.answers, id)
}

func (n *near) ForgetAnswer(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.forgot = append(n.forgot, id)
}

// hear notes a request of a minion.
func (n *near) hear(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.heard[id] = time.Now()
}

// bench has a Tracker that runs on a real bus and a clock of its own.
type bench struct {
	*testing.T
	*Tracker
	near *near
	bus  *event.Bus
	jobs int

	ahead atomic.Int64 // how far the clock of the Tracker is ahead, in nanoseconds
}

// run calls test with a bench, in a bubble of synctest.
func run(t *testing.T, test func(b *bench)) {
	synctest.Test(t, func(t *testing.T) {
		n := &near{connected: []string{"a", "b"}, heard: map[string]time.Time{}}
		bus := event.NewBus(time.Now, 0)
		defer bus.Close()
		b := &bench{T: t, near: n, bus: bus}
		b.Tracker = New(bus, n, n, func() time.Time { return time.Now().Add(time.Duration(b.ahead.Load())) })
		go b.Tracker.Run(t.Context())
		test(b)
	})
}

func (b *bench) start(function string, minions ...string) (jid string) {
	b.Helper()
	b.jobs++
	jid = fmt.Sprintf("2026112912%010d", b.jobs)
	b.fire("new", value.NewMap("jid", jid, "fun", function, "user", "alice", "minions", minions), jid)
	return jid
}

func (b *bench) answer(minion, jid string) {
	b.Helper()
	b.fire("ret/"+minion, value.NewMap("jid", jid, "id", minion), jid)
}

func (b *bench) fire(kind string, data *value.Map, jid string) {
	b.Helper()
	if err := b.bus.Fire("salt/job/"+jid+"/"+kind, data); err != nil {
		b.Fatal(err)
	}
	synctest.Wait()
}

func (b *bench) wantDeaf(want ...string) {
	b.Helper()
	synctest.Wait()
	b.look()
	if got := b.Deaf(); !slices.Equal(got, want) {
		b.Errorf("deaf: %q, want %q", got, want)
	}
}

func (b *bench) wantOpen(minion string, want ...string) {
	b.Helper()
	list, _ := b.Of(minion)
	var got []string
	for _, job := range list {
		got = append(got, job.JID)
	}
	if !slices.Equal(got, want) {
		b.Errorf("open jobs of %s: %q, want %q", minion, got, want)
	}
}

// TestMinionOfTwoAddressesIsDeaf: a minion that is known to be connected by its answers alone is deaf while there is a
// subscription for each of its kind, and no longer when one of them has gone: nobody knows which.
func TestMinionOfTwoAddressesIsDeaf(t *testing.T) {
	run(t, func(b *bench) {
		b.near.listens = []string{"c", "d"}
		b.start("test.ping", "c", "d", "gone")
		time.Sleep(deafAfter)
		second := b.start("test.ping", "c", "d", "gone")
		time.Sleep(askedAgain)
		b.wantDeaf("c", "d")
		b.wantDeaf("c", "d") // their answers do not count any more

		b.near.mu.Lock()
		b.near.listens = []string{"d"}
		b.near.mu.Unlock()
		b.wantDeaf()
		b.answer("c", second)
		b.wantDeaf("d")
	})
}

func TestMinionThatAnswersNothingIsDeaf(t *testing.T) {
	run(t, func(b *bench) {
		first := b.start("test.ping", "a", "b", "gone")
		b.answer("b", first)
		time.Sleep(deafAfter)
		b.wantDeaf() // a may be at work
		second := b.start("test.ping", "a", "b", "gone")
		b.answer("b", second)
		time.Sleep(askedAgain)
		b.wantDeaf("a")
		b.near.mu.Lock()
		forgot := slices.Compact(slices.Clone(b.near.forgot))
		b.near.mu.Unlock()
		if !slices.Contains(forgot, "a") || slices.Contains(forgot, "b") {
			b.Errorf("answers of %q were revoked, want those of a", forgot)
		}
		b.wantOpen("a", first, second)
		b.wantOpen("b")
		b.answer("a", second)
		b.wantDeaf()
		b.wantOpen("a", first)
	})
}

// TestSyndicIsNotDeaf: a syndic answers no job, and none is open for it; not either for one that is known after the
// job has begun.
func TestSyndicIsNotDeaf(t *testing.T) {
	run(t, func(b *bench) {
		b.near.syndic = "b"
		for range 10 {
			b.start("test.ping", "a", "b")
			time.Sleep(deafAfter)
		}
		b.wantDeaf("a")
		b.wantOpen("b")

		b.near.syndic = "a"
		b.start("test.ping", "a")
		b.wantDeaf()
		b.wantOpen("a")
	})
}

func TestMinionAtWorkIsNotDeaf(t *testing.T) {
	run(t, func(b *bench) {
		long := b.start("cmd.run", "a")
		for range 20 {
			time.Sleep(askedAgain)
			poll := b.start("saltutil.find_job", "a")
			b.answer("a", poll)
			b.wantDeaf()
		}
		b.wantOpen("a", long)

		for range 20 { // it asks for files
			time.Sleep(askedAgain)
			b.start("saltutil.find_job", "a")
			b.near.hear("a")
			b.wantDeaf()
		}
	})
}

// TestMinionThatIgnoresPollsIsDeaf: polls that come every few seconds count as being asked again.
func TestMinionThatIgnoresPollsIsDeaf(t *testing.T) {
	run(t, func(b *bench) {
		long := b.start("cmd.run", "a")
		for range 100 {
			time.Sleep(5 * time.Second)
			b.start("saltutil.find_job", "a")
		}
		b.wantDeaf("a")
		b.wantOpen("a", long)
	})
}

func TestOldJobsAreForgotten(t *testing.T) {
	run(t, func(b *bench) {
		b.start("test.ping", "a")
		time.Sleep(keepFor + lookEvery)
		b.wantDeaf()
		b.wantOpen("a")
		if len(b.minions) != 0 {
			t.Errorf("%d minions are kept", len(b.minions))
		}
	})
}

// TestJobsAreBounded: of many jobs the first and the latest are kept, and a minion more than the bound is
// not tracked.
func TestJobsAreBounded(t *testing.T) {
	run(t, func(b *bench) {
		var all []string
		for range 100 {
			all = append(all, b.start("test.ping", "a", "a"))
		}
		b.wantOpen("a", append(all[:1:1], all[len(all)-maxJobs+1:]...)...)

		var many []string
		for i := range maxMinions + 10 {
			many = append(many, fmt.Sprintf("m%d", i))
		}
		b.start("test.ping", many...)
		if len(b.minions) != maxMinions {
			t.Errorf("%d minions", len(b.minions))
		}
	})
}

// TestLostEventsAreNoSilence: after events were lost, nobody seems deaf whose return was among them.
func TestLostEventsAreNoSilence(t *testing.T) {
	run(t, func(b *bench) {
		b.start("test.ping", "a")
		time.Sleep(time.Hour)
		b.take(event.Event{Tag: "salt/job/20261129120000000009/ret/b", Data: value.NewMap("jid", "20261129120000000009"), Lost: 1})
		if list, since := b.Of("a"); len(list) > 0 || !since.Equal(time.Now()) {
			t.Errorf("%v since %v", list, since)
		}
	})
}

// TestClockThatJumps: a clock that was ahead makes nobody deaf for years, and hides nobody.
func TestClockThatJumps(t *testing.T) {
	run(t, func(b *bench) {
		year := 365 * 24 * time.Hour
		b.ahead.Store(int64(year))
		b.start("test.ping", "a")
		b.ahead.Store(0)
		b.wantDeaf()
		time.Sleep(deafAfter)
		b.start("test.ping", "a")
		time.Sleep(askedAgain)
		b.wantDeaf("a")
		b.ahead.Store(int64(year))
		b.wantDeaf()
		b.wantOpen("a")
	})
}

// Whoever answers a job that was published, or a poll, listens. A run that a minion began itself tells nothing.
func TestAnswerOfAPublishedJob(t *testing.T) {
	run(t, func(b *bench) {
		b.answer("a", "20261129130000000001") // salt-call
		b.answer("b", b.start("test.ping", "a", "b"))
		b.fire("ret/c", value.NewMap("jid", "20261129130000000002", "id", "c", "fun", "saltutil.find_job"), "20261129130000000002")
		b.near.mu.Lock()
		defer b.near.mu.Unlock()
		if !slices.Equal(b.near.answers, []string{"b", "c"}) {
			b.Errorf("listening: %v", b.near.answers)
		}
	})
}
