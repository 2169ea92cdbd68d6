package launch

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"saltern/master/event"
	"saltern/master/runner"
	"saltern/master/value"
	"saltern/test/check"
)

// someSyndics are the Syndics of a test.
type someSyndics []string

// Known implements Syndics.
func (s someSyndics) Known(id string) bool { return slices.Contains(s, id) }

// belowSyndic plays the minions of a job that are below the syndic db1, and web1 and web2 above it.
type belowSyndic struct {
	named   []any // whom the syndic names
	late    []any // whom it names after its minions have returned
	after   time.Duration
	returns []string // who returns the job
	busy    []string // who still runs it, once
}

func (b *belowSyndic) launcher(t *testing.T, known ...string) (*Launcher, *[]*value.Map) {
	bus := event.NewBus(time.Now, 1<<20)
	var published []*value.Map
	l, _ := withSteps(t, func(c *Config) {
		c.Bus = bus
		c.OrderMasters = true
		c.SyndicWait = 3 * time.Second
		c.Syndics = someSyndics(known)
		c.Publish = func(_ context.Context, load *value.Map, _ []string) error {
			published = append(published, load)
			busy := b.busy
			if load.Str("fun") == findJob {
				b.busy = nil
			}
			go b.play(t, bus, load, busy)
			return nil
		}
	})
	return l, &published
}

// play has the minions return a job. Those in busy say that they still run it.
func (b *belowSyndic) play(t *testing.T, bus *event.Bus, load *value.Map, busy []string) {
	jid := load.Str("jid")
	returns := func(ids []string, ret any) {
		for _, id := range ids {
			check.Must(t, bus.FireFor(id, event.Tag("job", jid, "ret", id), value.NewMap("return", ret)))
		}
	}
	if load.Str("fun") == findJob {
		returns(busy, value.NewMap("jid", "1"))
		return
	}

	time.Sleep(b.after)
	if b.named != nil {
		check.Must(t, bus.FireFor("db1", "syndic/db1/"+jid, value.NewMap("minions", b.named)))
	}
	// Others say the same of other minions.
	check.Must(t, bus.FireBy(event.Socket, "syndic/db1/"+jid, value.NewMap("minions", []any{"forged1"})))
	check.Must(t, bus.FireFor("web2", "syndic/db1/"+jid, value.NewMap("minions", []any{"forged2"})))
	check.Must(t, bus.FireFor("db1", "syndic/db1/20260102030405678901", value.NewMap("minions", []any{"other"})))
	returns(b.returns, true)
	if b.late != nil {
		check.Must(t, bus.FireFor("db1", "syndic/db1/"+jid, value.NewMap("minions", b.late)))
	}
}

// TestAskBelowSyndics: who answers belongs to the job, not to the list of accepted keys: minions below a syndic are
// awaited once the syndic has named them, or when they return, and the syndic is not.
func TestAskBelowSyndics(t *testing.T) {
	low := []any{"low1", "low2"}
	for _, tt := range []struct {
		name, target, kind string
		play               belowSyndic
		known              []string
		expected           string
		returns            int
		took               time.Duration
	}{
		{
			name: "all answer", target: "*",
			play:     belowSyndic{named: low, returns: []string{"web1", "web2", "low1", "low2"}},
			known:    []string{"db1"},
			expected: "[web1 web2 low1 low2]", returns: 4, took: 3 * time.Second,
		},
		{
			name: "the syndic is known by this job alone", target: "*",
			play:     belowSyndic{named: low, returns: []string{"web1", "web2", "low1", "low2"}},
			expected: "[web1 web2 low1 low2]", returns: 4, took: 3 * time.Second,
		},
		{
			name: "a syndic that is a minion, too", target: "*",
			play:     belowSyndic{named: low, returns: []string{"db1", "web1", "web2", "low1", "low2"}},
			known:    []string{"db1"},
			expected: "[web1 web2 db1 low1 low2]", returns: 5, took: 3 * time.Second,
		},
		{
			name: "none of this master", target: "low*",
			play:     belowSyndic{named: low, returns: []string{"low1", "low2"}, after: time.Second},
			known:    []string{"db1"},
			expected: "[low1 low2]", returns: 2, took: 3 * time.Second,
		},
		{
			name: "named when it has returned", target: "low*",
			play:     belowSyndic{late: low, returns: []string{"low1", "low2"}},
			expected: "[low1 low2]", returns: 2, took: 3 * time.Second,
		},
		{
			name: "named when it has returned, by a syndic that is not known", target: "*",
			play:     belowSyndic{late: low, returns: []string{"web1", "web2", "low1", "low2"}},
			expected: "[web1 web2 low1 low2]", returns: 4, took: 3 * time.Second,
		},
		{
			name: "a minion that names nobody", target: "*",
			play:     belowSyndic{named: []any{}, returns: []string{"web1", "web2"}},
			expected: "[db1 web1 web2]", returns: 2, took: 10 * time.Second,
		},
		{
			name: "one does not answer", target: "low*",
			play:     belowSyndic{named: low, returns: []string{"low1"}},
			expected: "[low1 low2]", returns: 1, took: 10 * time.Second, // timeout, gather_job_timeout and syndic_wait
		},
		{
			name: "one runs it for long", target: "low*",
			play:     belowSyndic{named: low, returns: []string{"low1"}, busy: []string{"low2"}},
			expected: "[low1 low2]", returns: 1, took: 12 * time.Second, // and gather_job_timeout once more
		},
		{
			name: "nobody", target: "nobody",
			expected: "[]", took: 5 * time.Second,
		},
		{
			name: "nobody but the syndic", target: "db*",
			known:    []string{"db1"},
			expected: "[]", took: 5 * time.Second,
		},
		{
			name: "a list", target: "low1,web1", kind: "list",
			play:     belowSyndic{named: []any{"low1", "low2", "web2"}, returns: []string{"web1", "low1", "low2", "web2"}},
			expected: "[web1 low1]", returns: 4, took: 3 * time.Second,
		},
		{
			name: "names that are several in a list", target: "low* or db1", kind: "compound",
			play:     belowSyndic{named: []any{"low1", ",web1,web2,", ",", "../x", ""}, returns: []string{"low1", ",web1,web2,"}},
			known:    []string{"db1"},
			expected: "[low1]", returns: 2, took: 3 * time.Second,
		},
		{
			name: "a syndic that names what the target does not select", target: "low*",
			play:     belowSyndic{named: []any{"low1", "other", "web1"}, returns: []string{"low1"}},
			expected: "[low1]", returns: 1, took: 3 * time.Second,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, _ := tt.play.launcher(t, tt.known...)
				began := time.Now()
				a, err := l.Ask(t.Context(), runner.Question{Target: tt.target, TargetType: tt.kind, Fun: "test.ping"})
				check.Must(t, err)
				if got := fmt.Sprint(a.Expected); got != tt.expected || len(a.Returns) != tt.returns {
					t.Errorf("expected %s, %d returns: %v", got, len(a.Returns), a.Returns)
				}
				if took := time.Since(began); took != tt.took {
					t.Errorf("it took %s, want %s", took, tt.took)
				}
			})
		})
	}
}

// TestStartNamed: a job for minions of this master names them at once; one that only minions below a syndic get waits
// until the syndic says so, and is not taken for one that nobody gets.
func TestStartNamed(t *testing.T) {
	for _, tt := range []struct {
		target any
		kind   string
		after  time.Duration
		want   string
		took   time.Duration
	}{
		{"web*", "", 0, "[web1 web2]", 0},
		{"*", "", 0, "[web1 web2]", 0},
		{[]any{"low1", "web1"}, "list", 0, "[web1 low1]", 0},
		{"low*", "", time.Second, "[low1]", time.Second},
		{"low*", "", 4 * time.Second, "[]", 3 * time.Second},
	} {
		t.Run(fmt.Sprint(tt.target, tt.after), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				play := belowSyndic{named: []any{"low1"}, after: tt.after}
				l, published := play.launcher(t, "db1")
				j, err := l.NewFor(t.Context(), l.Own("test.ping", nil, tt.target, tt.kind, ""), Behalf{User: "ann", Account: "pam/ann"})
				check.Must(t, err)
				began := time.Now()
				ids, err := l.StartNamed(t.Context(), j)
				check.Must(t, err)
				if got := fmt.Sprint(ids); got != tt.want || time.Since(began) != tt.took {
					t.Errorf("%s in %s", got, time.Since(began))
				}
				if sent := (*published)[0]; value.Repr(sent.Value("tgt")) != value.Repr(tt.target) {
					t.Errorf("sent to %s", value.Repr(sent.Value("tgt")))
				}
				synctest.Wait()
				time.Sleep(tt.after)
			})
		})
	}
}
