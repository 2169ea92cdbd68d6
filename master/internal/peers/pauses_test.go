package peers

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"saltern/master/event"
	"saltern/master/runner"
	"saltern/master/value"
)

// pausedMaster is a master of a cluster that is connected to others by connectBuses.
type pausedMaster struct {
	*Pauses
	bus     *event.Bus
	running string // job id of its orchestration
	fail    error

	mu      sync.Mutex
	changes []runner.PauseChange
}

// startPaused starts a cluster of masters with these ids. Each runs the orchestration that bears its
// id. Masters whose id begins with "old" answer nothing, and are connected; those whose id begins
// with "off" are not connected.
func startPaused(t *testing.T, ids ...string) map[string]*pausedMaster {
	all := map[string]*pausedMaster{}
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	for _, id := range ids {
		m := &pausedMaster{bus: newTestBus(), running: id}
		all[id] = m
		m.Pauses = NewPauses(PausesConfig{
			Others: othersOf(id, m.bus, ids),
			Change: func(c runner.PauseChange) (bool, error) {
				m.mu.Lock()
				defer m.mu.Unlock()
				found := c.JID == m.running
				if found && m.fail == nil {
					m.changes = append(m.changes, c)
				}
				return found, m.fail
			},
		})
		if !strings.HasPrefix(id, "old") && !strings.HasPrefix(id, "off") {
			running.Go(func() { m.Run(t.Context()) })
		}
	}

	buses := map[string]*event.Bus{}
	for id, m := range all {
		buses[id] = m.bus
	}
	joinBuses(t, &running, buses)
	synctest.Wait()
	return all
}

// othersOf returns the others of these masters as the one with this id asks them; see startPaused.
func othersOf(id string, bus *event.Bus, ids []string) Others {
	return Others{
		ID:   id,
		Bus:  bus,
		Fire: func(tag string, data *value.Map) { _ = bus.Fire(tag, data) },
		Peers: func() map[string]bool {
			peers := map[string]bool{}
			for _, other := range ids {
				if other != id {
					peers[other] = !strings.HasPrefix(other, "off")
				}
			}
			return peers
		},
		Log: slog.New(slog.DiscardHandler),
	}
}

func newTestBus() *event.Bus { return event.NewBus(time.Now, 1<<20) }

// joinBuses passes the events of each bus to the others, as the cluster does.
func joinBuses(t *testing.T, running *sync.WaitGroup, buses map[string]*event.Bus) {
	for id, bus := range buses {
		sub := bus.Subscribe("others", 4096, func(string) bool { return true })
		running.Go(func() {
			defer sub.Close()
			eachEvent(t.Context(), sub, func(e event.Event) {
				if e.Origin == event.Peer {
					return
				}
				e.Maker, e.Origin = e.Origin, event.Peer
				for other, at := range buses {
					if other != id {
						_ = at.Relay(e)
					}
				}
			})
		})
	}
}

// TestPausesReachTheMasterThatRuns: a change comes into effect at the master that runs the
// orchestration, once, or the error names who does not run it and who has not answered.
func TestPausesReachTheMasterThatRuns(t *testing.T) {
	for _, c := range []struct {
		name, jid string
		masters   []string
		want      []string      // in the error; none: there is no error
		within    time.Duration // the most that the call takes
	}{
		{name: "at the third", jid: "c3", masters: []string{"c1", "c2", "c3"}},
		{name: "with an old one", jid: "c3", masters: []string{"c1", "old", "c3"}},
		{name: "with one away", jid: "c3", masters: []string{"c1", "off", "c3"}},
		{name: "nowhere", jid: "c9", masters: []string{"c1", "c2", "c3"}, want: []string{"this master, or on c2, c3;"}},
		{name: "alone", jid: "c9", masters: []string{"c1"}, want: []string{"on this master;"}},
		{name: "nowhere known, one away", jid: "off", masters: []string{"c1", "c2", "off"},
			want: []string{"on this master, or on c2; not known of off,"}},
		{name: "at an old one", jid: "old", masters: []string{"c1", "c2", "old"},
			want: []string{"on this master, or on c2; not known of old,"}, within: inquiryTime},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := startPaused(t, c.masters...)
				began := time.Now()
				change := runner.PauseChange{JID: c.jid, Action: runner.Pause, Step: "two", Seconds: 7}
				err := all["c1"].ChangePauses(t.Context(), change)
				if took := time.Since(began); took > c.within {
					t.Errorf("it took %s", took)
				}

				for _, text := range c.want {
					if err == nil || !strings.Contains(err.Error(), text) {
						t.Errorf("error %v, want %q", err, text)
					}
				}
				if len(c.want) == 0 && err != nil {
					t.Error(err)
				}

				for id, m := range all {
					want := id == c.jid && len(c.want) == 0
					if got := slices.Equal(m.changes, []runner.PauseChange{change}); got != want || !want && len(m.changes) > 0 {
						t.Errorf("%s: changes %v", id, m.changes)
					}
				}
			})
		})
	}
}

// TestPauseThatCannotBeStored: the caller reads why, and where.
func TestPauseThatCannotBeStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := startPaused(t, "c1", "c2", "c3")
		all["c2"].fail = errors.New("the disk is full")
		err := all["c1"].ChangePauses(t.Context(), runner.PauseChange{JID: "c2", Action: runner.Kill})
		if err == nil || !strings.Contains(err.Error(), "on c2: the disk is full") {
			t.Error(err)
		}
	})
}

// TestNobodyElseOrdersPauses: events of minions, tools and runners that look like a master's change
// nothing, and do not pass for an answer.
func TestNobodyElseOrdersPauses(t *testing.T) {
	for _, maker := range []event.Origin{event.Minion, event.Socket, event.Runner, event.Hook, event.Internal} {
		synctest.Test(t, func(t *testing.T) {
			all := startPaused(t, "c1", "c2")
			order := value.NewMap("ask", "x", "jid", "c2", "action", "kill", "step", "__all__", "seconds", int64(0))
			_ = all["c2"].bus.FireBy(maker, event.TagRunPause, order) // as if c2's own
			if maker != event.Internal {
				_ = all["c1"].bus.FireBy(maker, event.TagRunPause, order)
			}
			synctest.Wait()
			if got := all["c2"].changes; len(got) > 0 {
				t.Errorf("%s: %v", maker, got)
			}
		})
	}
}

// TestManyPausesAtOnce: each of many callers at one moment gets an answer of its own.
func TestManyPausesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := startPaused(t, "c1", "c2", "c3")
		var callers sync.WaitGroup
		errs := make(chan error, 500)
		for range cap(errs) {
			callers.Go(func() {
				errs <- all["c1"].ChangePauses(t.Context(), runner.PauseChange{JID: "c2", Action: runner.Pause, Step: "a"})
			})
		}
		callers.Wait()

		close(errs)
		for err := range errs {
			if err != nil {
				t.Error(err)
			}
		}
	})
}
