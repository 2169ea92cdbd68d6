package peers

import (
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"saltern/master/event"
	"saltern/master/jobs"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// TestResultsOfSaltRunReachOtherMasters: the other masters get the results that Salt's own salt-run
// has stored by itself, and no job of which only a minion has fired the result.
func TestResultsOfSaltRunReachOtherMasters(t *testing.T) {
	t.Parallel()
	shared := t.TempDir()
	open := func(id string) (*jobs.Cluster, *jobs.Local, string) {
		log := slog.New(slog.DiscardHandler)
		dir := filepath.Join(t.TempDir(), "jobs")
		local, err := jobs.Open(jobs.Config{Dir: dir, Shared: true, Files: true}, log) // as a tool writes them
		check.Must(t, err)
		cluster, err := jobs.OpenCluster(jobs.ClusterConfig{
			ID:       id,
			Dir:      shared,
			Local:    local,
			Peers:    noPeers{},
			Degraded: func(error) {},
			Log:      log,
		})
		check.Must(t, err)
		return cluster, local, dir
	}

	const ofTool, ofMinion = "20261123011500123456", "20261123011500123457"
	first, local, dir := open("m1")
	for _, jid := range []string{ofTool, ofMinion} {
		_, err := local.SaveReturn(t.Context(), jobs.ReturnOf(value.NewMap("jid", jid, "id", "m1", "tgt", "m1",
			"fun", "runner.own.report", "return", value.NewMap("return", "done"))))
		check.Must(t, err)
	}
	await.That(t, "the files of both jobs", func() bool {
		found, _ := filepath.Glob(filepath.Join(dir, "*", "*", "m1", "return.p"))
		return len(found) == 2
	})

	bus := event.NewBus(time.Now, 1<<20)
	m := &Membership{Jobs: first, log: slog.New(slog.DiscardHandler)}
	var running sync.WaitGroup
	running.Go(func() { m.handOverResults(t.Context(), bus) })
	await.That(t, "a reader of the bus", func() bool { return bus.Stats().Subscribers == 1 })

	data := value.NewMap("fun", "runner.own.report")
	check.Must(t, bus.FireBy(event.Minion, "salt/run/"+ofMinion+"/ret", data))
	check.Must(t, bus.FireBy(event.Socket, "salt/run/"+ofMinion+"/new", data))
	check.Must(t, bus.FireBy(event.Socket, "salt/run/../../etc/ret", data))
	check.Must(t, bus.FireBy(event.Socket, "salt/run/"+ofTool+"/ret", data))
	bus.Close()
	running.Wait()
	check.Must(t, first.Close(await.Context(t)))

	second, _, _ := open("m2")
	t.Cleanup(func() { check.Must(t, second.Close(await.Context(t))) })
	rets, err := second.Returns(t.Context(), ofTool)
	check.Must(t, err)
	if got := rets.Map("m1").Map("return").Str("return"); got != "done" {
		t.Errorf("the other master has %v", rets)
	}
	if load, err := second.Load(t.Context(), ofMinion); err != nil || load != nil {
		t.Errorf("a job that no tool reported is handed over: %v, %v", load, err)
	}
}
