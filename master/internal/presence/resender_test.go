package presence

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"saltern/master/cluster"
	"saltern/master/internal/publish"
	"saltern/master/value"
	"saltern/master/zmtp"
)

// noted are peers that note what they are told.
type noted struct {
	cuts    []cluster.Cut
	before  []cluster.Cut
	met     string
	brought []cluster.Job
}

func (*noted) Subscribed(cluster.Subs)     {}
func (n *noted) CutOff(cuts []cluster.Cut) { n.cuts = append(n.cuts, cuts...) }
func (n *noted) CutBefore(peer string, cuts []cluster.Cut) {
	n.met, n.before = peer, cuts
}
func (n *noted) Bring(_ string, jobs []cluster.Job) { n.brought = jobs }

// desk is a Resender with a clock of its own, and jobs that were published lately.
type desk struct {
	*Resender
	now    time.Time
	id     uint64
	peers  noted
	recent []publish.Recent
	silent map[uint64]time.Time
	told   []string
	sent   []string
	passed int // other publications since any time

	resending func() // called with each Resend; may be nil
}

var balancer = netip.MustParseAddr("10.9.0.1")

// deskPort is the publish port of a desk.
type deskPort struct{ d *desk }

func (p deskPort) Recent(since time.Time) (out []publish.Recent) {
	for _, r := range p.d.recent {
		if !r.At.Before(since) {
			out = append(out, r)
		}
	}
	return out
}

func (p deskPort) Passed(time.Time) int { return p.d.passed }

func (p deskPort) Resend(_ context.Context, _ uint64, r publish.Recent) error {
	if p.d.resending != nil {
		p.d.resending()
	}

	p.d.sent = append(p.d.sent, fmt.Sprint(r.JID, " ", r.Load.Str("tgt_type"), " ", r.Matched))
	return nil
}

func (p deskPort) Republish(_ context.Context, _, replacement publish.Recent) error {
	p.d.sent = append(p.d.sent, fmt.Sprint("all ", replacement.JID, " ", replacement.Load.Str("tgt_type"), " ", replacement.Matched))
	return nil
}

func (deskPort) Narrow(r publish.Recent, tgt any, typ string, ids []string) (publish.Recent, error) {
	return publish.Recent{JID: r.JID, Load: value.NewMap("tgt", tgt, "tgt_type", typ), Matched: ids}, nil
}

func (p deskPort) Silent(since time.Time, yield func(zmtp.Peer) bool) {
	for id, answered := range p.d.silent {
		if answered.Before(since) {
			yield(zmtp.Peer{ID: id, Answered: answered})
		}
	}
}

func newDesk(change func(*ResenderConfig)) *desk {
	d := &desk{now: at(0), silent: map[uint64]time.Time{}}
	cfg := ResenderConfig{
		Port:      deskPort{d},
		SilentFor: 6500 * time.Millisecond,
		Undelivered: func(load *value.Map, minions []string, why string) {
			d.told = append(d.told, fmt.Sprint(minions, " ", why))
		},
		Peers: &d.peers,
		Now:   func() time.Time { return d.now },
		Log:   slog.New(slog.DiscardHandler),
	}

	if change != nil {
		change(&cfg)
	}

	d.Resender = NewResender(cfg)
	return d
}

func (d *desk) job(second float64, jid string) {
	load := value.NewMap("jid", jid, "tgt", "*", "tgt_type", "glob")
	d.recent = append(d.recent,
		publish.Recent{At: at(second), Born: at(second), JID: jid, Load: load, Matched: []string{"a", "b", "c"}})
}

// come makes a subscription; missing is what its load balancer says, if it has moved it.
func (d *desk) come(from netip.Addr, missing time.Time) zmtp.Peer {
	d.id++
	p := zmtp.Peer{ID: d.id, Remote: netip.AddrPortFrom(from, 1), Via: balancer, Missing: missing}
	d.OnSubscribe(p, "")
	return p
}

// due is what is to be given to subscriptions, since when.
func (d *desk) due() (out []time.Time) {
	for len(d.resent) > 0 {
		out = append(out, (<-d.resent).Since)
	}
	return out
}

// TestMovedTakesNoMark: a session that a load balancer has moved is given what it missed by
// its own word, never what another one from its address has missed (S3: a job ran again two
// minutes later on a minion that was connected all the time).
func TestMovedTakesNoMark(t *testing.T) {
	d := newDesk(nil)
	d.OnDisconnect(d.come(addressA, time.Time{}), nil)
	d.due() // it has gone itself
	d.now = at(50)
	d.come(addressA, at(48))
	if due := d.due(); len(due) != 1 || !due[0].Equal(at(48).Add(-lossMargin)) {
		t.Errorf("one that was moved: %v", due)
	}
	d.come(addressA, time.Time{})
	if due := d.due(); len(due) != 1 || due[0].After(at(-2)) {
		t.Errorf("one that comes by itself: %v", due)
	}
}

// TestMovedBeforeItWasGivenWhatItMissed: the master that had to give a subscription what it
// missed when it came may die before. Then the load balancer moves it, and the next master
// gives it that. One that came long ago was given it, and takes no mark.
func TestMovedBeforeItWasGivenWhatItMissed(t *testing.T) {
	for name, row := range map[string]struct {
		began, now float64
		since      float64 // what is missing
	}{
		"it has just come":                              {began: 48, now: 50, since: 10},
		"the minute was over when it moved":             {began: 65, now: 72, since: 10},
		"the minute was over when it came":              {began: 71, now: 72, since: 72 - 2 - 5},
		"it came so long ago that it has been given it": {began: 30, now: 50, since: 50 - 2 - 5},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(nil)
			d.now = at(10)
			d.PeerCutOff([]cluster.Cut{{From: addressA, Since: at(10), Until: at(70), Crowd: 1}})
			d.now = at(row.now)
			d.checkSilent()
			d.OnSubscribe(zmtp.Peer{
				ID:      1,
				Remote:  netip.AddrPortFrom(addressA, 1),
				Via:     balancer,
				Missing: at(row.now - 2),
				Began:   at(row.began),
			}, "")
			due := d.due()
			if len(due) != 1 || !due[0].Equal(at(row.since)) {
				t.Errorf("what is missing: since %v, not %v", due, at(row.since))
			}
		})
	}
}

// TestFrozenBalancer: subscriptions that answer no PING count as cut, though their connection
// stays, once and from their last answer on; who comes back by another way is given what was
// published meanwhile (S5).
func TestFrozenBalancer(t *testing.T) {
	d := newDesk(nil)
	var subs []zmtp.Peer
	for range 3 {
		subs = append(subs, d.come(addressA, time.Time{}))
	}

	other := d.come(addressB, time.Time{})
	for _, p := range subs {
		d.silent[p.ID] = at(10)
	}

	d.silent[other.ID] = at(10)
	for second := 11.0; second < 30; second++ {
		d.now = at(second)
		d.silent[other.ID] = d.now // it answers
		d.checkSilent()
		d.tellPeers()
	}

	if n := len(d.peers.cuts); n != 1 || d.peers.cuts[0].Crowd != 3 || d.peers.cuts[0].From != addressA {
		t.Errorf("told: %+v", d.peers.cuts)
	}

	d.come(addressA, time.Time{})
	d.come(addressB, time.Time{})
	if due := d.due(); len(due) != 1 || due[0].After(at(10).Add(-answerMargin)) {
		t.Errorf("due: %v", due)
	}

	d.now = at(31) // they answer again, and stop once more
	for _, p := range subs {
		d.silent[p.ID] = d.now
	}

	d.checkSilent()
	d.now = at(40)
	d.silent[other.ID] = d.now
	d.checkSilent()
	d.tellPeers()

	if len(d.peers.cuts) != 2 {
		t.Errorf("a second time: %+v", d.peers.cuts)
	}
}

// TestRestartedMinion: a job is not given again to a minion that was started anew since, nor
// when that cannot be told, and this is said (S6).
func TestRestartedMinion(t *testing.T) {
	for name, tt := range map[string]struct {
		returned, started []string
		passed            int
		age               time.Duration
		sent, told        string
	}{
		"none was":                 {sent: "1 glob [a b c]"},
		"one was":                  {started: []string{"b"}, sent: "1 list [a c]", told: "[b] " + whyStarted},
		"one was, and returned":    {started: []string{"b"}, returned: []string{"b"}, sent: "1 list [a c]"},
		"all were":                 {started: []string{"a", "b", "c"}, told: "[a b c] " + whyStarted},
		"after many others":        {passed: maxPassed + 1, returned: []string{"a"}, told: "[b c] " + whyPassed},
		"longer ago than is known": {age: 2 * startedFor, told: "[a b c] " + whyUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			started := NewStarted()
			d := newDesk(func(c *ResenderConfig) {
				c.Started = started
				c.Returned = func(context.Context, string) (map[string]bool, error) { return set(tt.returned...), nil }
			})

			d.passed = tt.passed
			d.now = at(10).Add(tt.age)
			for _, id := range tt.started {
				started.Saw(id, 1, at(5))
			}

			d.job(1, "1")
			for range 3 { // three that come give one message
				d.resend(t.Context(), Arrival{At: d.now, Since: at(0)})
			}

			sent := slices.Compact(d.sent)
			if fmt.Sprint(sent) != "["+tt.sent+"]" || fmt.Sprint(d.told) != "["+tt.told+"]" {
				t.Errorf("sent %q, told %q", sent, d.told)
			}
		})
	}
}

// TestLateJobOfAPeer: a job that comes late goes to all but who has returned it or was started
// since; one that is too late to nobody, which is told (S7).
func TestLateJobOfAPeer(t *testing.T) {
	started := NewStarted()
	started.Saw("c", 9, at(20))
	d := newDesk(func(c *ResenderConfig) {
		c.Started = started
		c.Returned = func(context.Context, string) (map[string]bool, error) { return set("a"), nil }
	})

	d.now = at(60)
	load := value.NewMap("jid", "1", "tgt", "*", "tgt_type", "glob")
	for _, age := range []time.Duration{55 * time.Second, lateFor + time.Second} {
		if err := d.PublishLate(t.Context(), load, []string{"a", "b", "c"}, age, 3); err != nil {
			t.Error(err)
		}
	}

	want := []string{"[c] " + whyStarted, "[a b c] " + whyTooLate}
	if !slices.Equal(d.sent, []string{"all 1 list [b]"}) || !slices.Equal(d.told, want) {
		t.Errorf("sent %q, told %q", d.sent, d.told)
	}
}

// TestSentAgainWithoutReturns: when it cannot be known who has returned, the job is sent as it
// was: minions know their last jobs.
func TestSentAgainWithoutReturns(t *testing.T) {
	looks := 0
	d := newDesk(func(c *ResenderConfig) {
		c.Returned = func(context.Context, string) (map[string]bool, error) {
			looks++
			return set("a"), errors.New("gone")
		}
	})

	d.job(0, "1")
	for range 3 {
		d.resend(t.Context(), Arrival{At: d.now})
	}

	if len(d.sent) != 3 || looks != 1 {
		t.Errorf("sent %q after %d looks", d.sent, looks)
	}
}

// many is a desk with jobs whose returns are looked for.
func many(jobs int, returned func() map[string]bool) *desk {
	d := newDesk(func(c *ResenderConfig) {
		c.Returned = func(context.Context, string) (map[string]bool, error) { return returned(), nil }
	})
	for i := range jobs {
		d.job(0, fmt.Sprintf("20261123212926%06d", i))
	}
	return d
}

// TestManySentAgain: the returns of many jobs are looked for on the disk one right
// after the other, and none is sent to who has returned it.
func TestManySentAgain(t *testing.T) {
	dir := t.TempDir()
	d := many(1000, func() map[string]bool {
		_, err := os.ReadDir(dir)
		return map[string]bool{"a": err == nil, "b": true, "c": true}
	})

	d.resend(t.Context(), Arrival{At: d.now})
	if len(d.sent) > 0 {
		t.Errorf("%d of 1000 jobs were sent again", len(d.sent))
	}

	for range 10000 { // without a pause
		if _, err := d.readReturns(t.Context(), "20261123212926088739"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestJobCacheHangs: one that hangs is waited for once, not for each job.
func TestJobCacheHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := make(chan struct{})
		d := many(200, func() map[string]bool { <-answers; return nil })
		began := time.Now()
		d.resend(t.Context(), Arrival{At: d.now})
		if took := time.Since(began); len(d.sent) != 200 || took != returnsWait {
			t.Errorf("%d of 200 sent after %v", len(d.sent), took)
		}
		close(answers)
	})
}

// TestNewcomer: a master that comes while minions are on their way is told who they are, what they
// may lack, and the jobs, which it may not know.
func TestNewcomer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(nil)
		d.job(-20, "1")
		d.job(-3, "2")
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { d.Run(ctx) })
		d.PeerSubscribed("b", netip.Addr{}, cluster.Subs{addressA: 3})
		d.PeerLost("b", at(-4))
		d.PeerConnected("c")
		synctest.Wait()
		time.Sleep(gatherCuts)
		synctest.Wait()
		cancel()
		wg.Wait()
		cut := d.peers.before
		if d.peers.met != "c" || len(cut) != 1 || cut[0].Crowd != 3 ||
			!cut[0].Until.Equal(at(-4).Add(returnWithin)) || !cut[0].Since.Equal(at(-4).Add(-lossMargin)) {
			t.Errorf("it was told %+v", d.peers)
		}

		if jobs := d.peers.brought; len(jobs) != 1 || jobs[0].Load.Str("jid") != "2" || jobs[0].Age != 3*time.Second {
			t.Errorf("it was brought %+v", jobs)
		}

		if !d.Remembers("2", 3*time.Second) || d.Remembers("1", 3*time.Second) || d.Remembers("3", time.Minute) {
			t.Error("what it has")
		}
	})
}

// TestTopicsOfOneSubscription: with zmq_filtering a connection has several topics, and counts once.
func TestTopicsOfOneSubscription(t *testing.T) {
	d := newDesk(nil)
	d.PeerCutOff([]cluster.Cut{{From: addressA, Since: at(-1), Until: at(59), Crowd: 2}})
	p := d.come(addressA, time.Time{})
	d.OnSubscribe(p, "broadcast")
	d.OnSubscribe(p, "0123456789012345678901234567890123456789")
	if due := d.due(); len(due) != 1 {
		t.Errorf("%d due", len(due))
	}
}

// TestGoneBeforeItIsGiven: a subscription that goes before it was given what it missed is owed that
// when it is back, and one that was given it is not.
func TestGoneBeforeItIsGiven(t *testing.T) {
	for _, given := range []bool{false, true} {
		d := newDesk(nil)
		d.job(-20, "1")
		p := d.come(addressA, at(-30))
		a := <-d.resent
		if given {
			d.resend(t.Context(), a)
		}

		d.now = at(2)
		d.OnDisconnect(p, nil)
		d.now = at(3)
		d.come(addressA, time.Time{})
		due := d.due()
		if len(due) != 1 || due[0].After(at(-30)) == !given {
			t.Errorf("given %v, and owed since %v", given, due)
		}
	}
}

// TestFirstFromAnIsland: a minion that was started anew at a master that was cut off may come here
// before that master tells of it. It is not given what the process before may have run; nor does
// anybody wait for long for a master that is gone.
func TestFirstFromAnIsland(t *testing.T) {
	for _, c := range []struct {
		name string
		back time.Duration // until the island is heard
		told bool          // which process is new
		want string
		took time.Duration
	}{
		{"comes back", time.Second, true, "1 list [b c]", time.Second},
		{"is gone", time.Hour, false, "1 glob [a b c]", waitForStarts},
		{"is heard", 0, true, "1 list [b c]", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				started := NewStarted()
				d := newDesk(func(cfg *ResenderConfig) {
					cfg.Started = started
					cfg.Now = func() time.Time { return at(0).Add(time.Since(began)) }
					cfg.Unheard = func() bool { return time.Since(began) < c.back }
				})

				d.job(-4, "1")
				time.AfterFunc(c.back-time.Millisecond, func() {
					if c.told {
						started.Learn([]cluster.Start{{ID: "a", Process: 7, Age: time.Since(began) + 2*time.Second}},
							d.cfg.Now())
					}
				})

				var took time.Duration
				d.resending = func() { took = time.Since(began) }

				ctx, cancel := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				wg.Go(func() { d.Run(ctx) })
				synctest.Wait()
				d.come(addressA, at(-5))
				time.Sleep(time.Minute)
				cancel()
				wg.Wait()

				if len(d.sent) != 1 || d.sent[0] != c.want || took < c.took || took > c.took+3*waitStep {
					t.Errorf("%q after %v, want %s after %v", d.sent, took, c.want, c.took)
				}
			})
		})
	}
}
