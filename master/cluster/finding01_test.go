package cluster

import (
	"testing"
	"time"

	"saltern/master/event"
	"saltern/master/msgpack"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// TestFinding01Forwarding: an event that a minion made arrives at the other masters as an ordinary
// event or as that minion's own return, whatever its tag is and whether or not the minion's master
// has withheld it.
func TestFinding01Forwarding(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ids, port := hosts(t, 2)
	a, err := start(t, await.Context(t), ids[0], port, 0, dir, nil)
	check.Must(t, err)
	b, err := start(t, await.Context(t), ids[1], port, 1, dir, func(c *Config) { c.Peers = ids[:1] })
	check.Must(t, err)
	await.That(t, "link", func() bool { s := b.Status(); return len(s.Peers) == 1 && s.Peers[0].Connected })
	jid := "20261123011500123456"
	job := "salt/job/" + jid
	bus := event.NewBus(time.Now, 0)
	sub := bus.Subscribe("t", 100, nil)
	bad := []string{job + "/publish", job + "/new", "salt/key", "salt/auth", "rotate_cluster_aes_key", job + "/ret/db1"}
	data := func() *value.Map {
		return value.NewMap("jid", jid, "id", "evil", "act", "accept", "result", true, "fun", "cmd.run",
			"tgt", "*", "return", 1)
	}

	for _, tag := range bad {
		check.Must(t, bus.FireFor("evil", tag, data()))
		b.Forward(<-sub.C)
	}

	for i, tag := range bad { // from a master that does not withhold
		packed, err := msgpack.Marshal(data(), msgpack.Modern)
		check.Must(t, err)
		a.inbox.handleBatch(await.Context(t), ids[1], Jobs,
			[]arrived{{inc: "9", duty: Jobs, seq: uint64(i + 1), tag: tag, packed: packed, maker: "evil"}})
	}

	for _, tag := range []string{job + "/start/newton", job + "/ret/evil", "my/tag"} {
		id := "evil"
		if tag == job+"/start/newton" {
			id = "newton"
		}
		check.Must(t, bus.FireFor(id, tag, data()))
		b.Forward(<-sub.C)
	}

	check.Must(t, bus.Fire("last", data()))
	b.Forward(<-sub.C)
	await.That(t, "the last events", func() bool {
		return a.has(&a.events, ids[1]+" last") && a.has(&a.events, ids[1]+" my/tag") &&
			a.has(&a.events, ids[1]+" "+job+"/start/newton") && a.count(&a.returns) == 1
	})

	if n := a.count(&a.jobs) + a.count(&a.changed); n != 0 {
		t.Errorf("%d jobs or keys came of events of a minion", n)
	}

	for _, tag := range bad {
		if a.has(&a.events, ids[1]+" "+tag) {
			t.Errorf("%s was taken", tag)
		}
	}

	if n := b.Status().Withheld; n < uint64(len(bad)) {
		t.Errorf("%d withheld", n)
	}
}
