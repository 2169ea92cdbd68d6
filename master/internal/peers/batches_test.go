package peers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"saltern/master/event"
	"saltern/master/runner"
	"saltern/master/value"
)

// fakeBatches are the batches of a master: the one whose job id is id.
type fakeBatches struct {
	id    string
	tgt   string
	fail  error
	takes time.Duration // how long a stop takes, whatever its context says

	mu      sync.Mutex
	stopped int
	shown   int
	listed  int
	many    int // how many batches Active lists
}

func (f *fakeBatches) Status(_ context.Context, jid string) (*value.Map, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shown++
	if jid != f.id {
		return nil, nil
	}
	return value.NewMap("jid", jid, "tgt", f.tgt, "pending", int64(3)), nil
}

func (f *fakeBatches) Active(context.Context) ([]*value.Map, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listed++
	if f.fail != nil {
		return nil, f.fail
	}
	var list []*value.Map
	for range f.many {
		list = append(list, value.NewMap("jid", f.id, "master", f.id, "tgt", f.tgt))
	}
	return list, nil
}

func (f *fakeBatches) Stop(_ context.Context, jid string) (bool, error) {
	if jid != f.id {
		return false, nil
	}
	<-time.After(f.takes)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopped++
	return f.stopped == 1 && f.fail == nil, f.fail
}

func (f *fakeBatches) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stopped
}

// startBatches starts a cluster of masters as startPaused does. Each runs the batch that bears its id.
func startBatches(t *testing.T, ids ...string) (map[string]*Batches, map[string]*fakeBatches) {
	all, own, buses := map[string]*Batches{}, map[string]*fakeBatches{}, map[string]*event.Bus{}
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	for _, id := range ids {
		buses[id] = newTestBus()
		own[id] = &fakeBatches{id: id, tgt: "web*", many: 1}
		b := NewBatches(othersOf(id, buses[id], ids), own[id])
		all[id] = b
		if !strings.HasPrefix(id, "old") && !strings.HasPrefix(id, "off") {
			running.Go(func() { b.Run(t.Context()) })
		}
	}
	joinBuses(t, &running, buses)
	synctest.Wait()
	return all, own
}

// TestBatchesAreStoppedAtTheirMaster: a batch is stopped on the master that runs it, once, or the error
// names who did not answer.
func TestBatchesAreStoppedAtTheirMaster(t *testing.T) {
	for _, c := range []struct {
		name, jid, owner string
		masters          []string
		want             string // in the error
	}{
		{name: "by its owner", jid: "c3", owner: "c3", masters: []string{"c1", "c2", "c3"}},
		{name: "by asking all", jid: "c3", masters: []string{"c1", "c2", "c3"}},
		{name: "with one away", jid: "c3", masters: []string{"c1", "off", "c3"}},
		{name: "nowhere", jid: "c9", masters: []string{"c1", "c2", "c3"}},
		{name: "of itself", jid: "c9", owner: "c1", masters: []string{"c1", "off"}},
		{name: "nowhere known", jid: "off", masters: []string{"c1", "c2", "off"}, want: "off did not answer"},
		{name: "owner away", jid: "off", owner: "off", masters: []string{"c1", "c2", "off"}, want: "the master off runs the batch of the job off, and was not asked"},
		{name: "owner removed", jid: "c9", owner: "gone", masters: []string{"c1", "c2"}, want: "is no master of this cluster any more"},
		{name: "of an older version", jid: "old", owner: "old", masters: []string{"c1", "c2", "old"}, want: "the master old runs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all, own := startBatches(t, c.masters...)
				status, statusErr := all["c1"].Status(t.Context(), c.jid, c.owner)
				for i := range 2 {
					stopped, err := all["c1"].Stop(t.Context(), c.jid, c.owner)
					known := own[c.jid] != nil && c.want == ""
					if stopped != (known && i == 0) || (status != nil) != known || (err != nil) != (statusErr != nil) {
						t.Errorf("%d: stopped %t, status %v, errors %v and %v", i, stopped, status, err, statusErr)
					}
					if c.want == "" && err != nil || c.want != "" && !strings.Contains(fmt.Sprint(err), c.want) {
						t.Errorf("error %v, want %q", err, c.want)
					}
				}
				synctest.Wait()
				for id, f := range own {
					if id != c.jid && f.count() > 0 {
						t.Errorf("%s stops a batch that it does not have", id)
					}
				}
			})
		})
	}
}

// TestMasterThatIsAwayIsNotAsked: an order to stop a batch does not wait for the master that runs it, and
// does not come into effect after the caller was told that it did not.
func TestMasterThatIsAwayIsNotAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fired := 0
		others := othersOf("c1", newTestBus(), []string{"c1", "off"})
		others.Fire = func(string, *value.Map) { fired++ }
		b := NewBatches(others, &fakeBatches{})
		p := NewPauses(PausesConfig{Others: others})
		for _, owner := range []string{"off", "gone", ""} {
			if _, err := b.Stop(t.Context(), "off", owner); err == nil {
				t.Errorf("owner %q: no error", owner)
			}
		}
		if err := p.ChangePauses(t.Context(), runner.PauseChange{JID: "off", Action: runner.Kill}); err == nil {
			t.Error("pauses: no error")
		}
		if fired > 0 {
			t.Errorf("%d questions", fired)
		}
	})
}

// TestSlowStop: a stop that nobody confirms in time is not called undone, and holds up neither a status
// nor another stop. One that could not begin in time is not carried out.
func TestSlowStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, own := startBatches(t, "c1", "c2", "c3")
		own["c2"].takes = inquiryTime + time.Second
		var callers sync.WaitGroup
		for range 3 * orderWorkers {
			callers.Go(func() {
				_, err := all["c1"].Stop(t.Context(), "c2", "c2")
				if err == nil || !strings.Contains(err.Error(), "it is not known whether the batch is stopped: ask again") {
					t.Error(err)
				}
			})
		}

		synctest.Wait()
		began := time.Now()
		status, err := all["c3"].Status(t.Context(), "c2", "c2")
		if took := time.Since(began); status == nil || err != nil || took > 0 {
			t.Errorf("%v, %v after %s", status, err, took)
		}
		callers.Wait()
		time.Sleep(time.Minute)
		if n := own["c2"].count(); n != orderWorkers {
			t.Errorf("%d stops, want %d", n, orderWorkers)
		}
	})
}

// TestManyAskForOneStatus: callers at one time share a question, and each gets a map of its own. What was
// true before a stop is not shown after it.
func TestManyAskForOneStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, own := startBatches(t, "c1", "c2")
		var callers sync.WaitGroup
		ask := func() {
			status, err := all["c1"].Status(t.Context(), "c2", "c2")
			if err != nil || status.Str("tgt") != "web*" {
				t.Errorf("%v, %v", status, err)
			}
			status.Set("tgt", "changed")
		}
		for range 500 {
			callers.Go(ask)
		}
		left, cancel := context.WithCancel(t.Context())
		cancel()
		_, _ = all["c1"].Status(left, "c2", "c2") // who has left makes nobody else fail
		callers.Wait()
		ask()
		if n := own["c2"].shown; n > 2 {
			t.Errorf("%d questions", n)
		}

		before := own["c2"].shown
		if _, err := all["c1"].Stop(t.Context(), "c2", "c2"); err != nil {
			t.Error(err)
		}
		ask()
		time.Sleep(shownFor + time.Millisecond)
		ask()
		if n := own["c2"].shown - before; n != 2 {
			t.Errorf("%d questions after the stop", n)
		}
	})
}

// TestListOfBatches: the batches of all masters are listed; of a master that is away, that fails or has too many
// the list says so. Callers at one time share a question.
func TestListOfBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, own := startBatches(t, "c1", "c2", "c3", "c4", "off", "old")
		own["c3"].fail = errors.New("the disk is broken")
		own["c4"].many = 3_000
		own["c2"].tgt = strings.Repeat("web,", maxListedTarget)

		var callers sync.WaitGroup
		for range 50 {
			callers.Go(func() {
				list, unknown := all["c1"].Active(t.Context())
				by := map[string]int{}
				for _, status := range list {
					by[status.Str("master")]++
					if len(status.Str("tgt")) > 100 {
						t.Error("the target is long")
					}
				}
				why := fmt.Sprint(unknown)
				if by["c2"] != 1 || by["c4"] < 100 || by["c4"] > 2900 || len(by) != 2 || len(unknown) != 4 ||
					!strings.Contains(why, "disk is broken") || !strings.Contains(why, fmt.Sprint(3_000-by["c4"], " more batches")) ||
					!strings.Contains(why, "old:the master did not answer") || !strings.Contains(why, "off:the master did not answer") {
					t.Errorf("%v, %s", by, why)
				}
			})
		}
		callers.Wait()
		if n := own["c2"].listed; n != 1 {
			t.Errorf("%d questions", n)
		}
	})
}

// TestBatchThatCannotBeStopped: the caller reads why, and where; a long target fits into an event.
func TestBatchThatCannotBeStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, own := startBatches(t, "c1", "c2")
		own["c2"].fail = errors.New("the disk is full")
		own["c2"].tgt = strings.Repeat("web,", maxBatchTarget)
		if _, err := all["c1"].Stop(t.Context(), "c2", "c2"); !strings.Contains(fmt.Sprint(err), "on c2: the disk is full") {
			t.Error(err)
		}
		status, err := all["c1"].Status(t.Context(), "c2", "c2")
		if got := status.Str("tgt"); err != nil || len(got) > 200 {
			t.Errorf("%v, the target has %d bytes", err, len(got))
		}
	})
}

// TestNobodyElseStopsBatches: events of minions, tools and runners that look like a master's stop nothing.
func TestNobodyElseStopsBatches(t *testing.T) {
	for _, maker := range []event.Origin{event.Minion, event.Socket, event.Runner, event.Hook, event.Internal} {
		synctest.Test(t, func(t *testing.T) {
			all, own := startBatches(t, "c1", "c2")
			order := value.NewMap("ask", "x", "jid", "c2", "do", stopBatch)
			_ = all["c2"].Bus.FireBy(maker, event.TagBatchAsk, order) // as if c2's own
			if maker != event.Internal {
				_ = all["c1"].Bus.FireBy(maker, event.TagBatchAsk, order)
			}
			synctest.Wait()
			if own["c2"].count() > 0 {
				t.Errorf("by %s", maker)
			}
		})
	}
}
