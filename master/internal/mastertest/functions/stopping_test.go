package functions

import (
	"slices"
	"sync"
	"testing"

	"saltern/master/event"
	"saltern/master/internal/local"
	"saltern/master/internal/mastertest"
	"saltern/master/value"
	"saltern/test/await"
)

// TestStoppingMasterTellsTheOthers: while a master stops, its runs of the schedule end and it still takes
// jobs. The other master gets the events of all of these, so that its minions get the jobs.
func TestStoppingMasterTellsTheOthers(t *testing.T) {
	ms := mastertest.StartCluster(t, 2,
		"schedule: {s: {function: test.sleep, args: [3], seconds: 1, maxrunning: 3}}\n")
	mastertest.AwaitLinks(t, ms)
	owner := -1
	await.That(t, "an owner", func() bool {
		owner = slices.IndexFunc(ms, func(r *mastertest.Master) bool {
			_, own := r.Parts.Cluster.Pool.Own()
			return own
		})
		return owner >= 0
	})

	stops, other := ms[owner], ms[1-owner]
	stops.AcceptedMinion("web1", "min6")
	other.ListenToBus()
	await.That(t, "the end of a run", func() bool { return endedRuns(other.NewEvents(), stops.Host) > 0 })

	var accepted []string
	var publishing sync.WaitGroup
	publishing.Go(func() { accepted = publishUntilRefused(stops) })
	stops.Stop()
	publishing.Wait()

	events := other.NewEvents()
	// Three runs were in progress, and one of them may have ended before the stop.
	if n := endedRuns(events, stops.Host); n < 2 {
		t.Errorf("%d ends of runs came from the master that stopped", n)
	}

	tags := mastertest.TagsOf(events)
	for _, jid := range accepted {
		if tag := event.Tag("job", jid, "publish"); !slices.Contains(tags, tag) {
			t.Errorf("no %s came from the master that stopped", tag)
		}
	}
	if len(accepted) < 3 {
		t.Errorf("only %d jobs were accepted", len(accepted))
	}
}

// endedRuns returns the number of runs of a master's schedule that have ended.
func endedRuns(events []event.Event, master string) (n int) {
	for _, e := range events {
		if e.Tag == "__schedule_return" && e.Data.Str("id") == master {
			n++
		}
	}
	return n
}

// publishUntilRefused starts jobs on a master, one after the other, until it takes no more. It returns their
// job ids.
func publishUntilRefused(r *mastertest.Master) (accepted []string) {
	load := value.NewMap("cmd", "publish", "tgt", "*", "fun", "test.ping", "arg", []any{}, "tgt_type", "glob",
		"ret", "", "jid", "", "kwargs", value.NewMap(), "user", local.CurrentUser(), "key", r.Key)
	request := mastertest.Pack(r.T, value.NewMap("enc", "clear", "load", load, "version", 3))
	for {
		answer, err := r.AskRaw(request)
		if err != nil {
			return accepted
		}
		published, _ := mastertest.Unpack(r.T, answer).(*value.Map)
		if jid := published.Map("load").Str("jid"); jid != "" {
			accepted = append(accepted, jid)
		}
	}
}
