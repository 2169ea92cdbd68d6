package minions

import (
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/master/internal/mastertest"
	"saltern/master/value"
	"saltern/test/await"
)

// eventRequest returns a request that fires an event.
func eventRequest(n *mastertest.Minion, tag string) []byte {
	return n.Payload(n.Load("_minion_event", "tag", tag, "data", value.NewMap("a", 1)))
}

// refused says that the answer is one upon which a minion signs in and sends
// the same anew (salt/channel/client.py _crypted_transfer): in the clear.
func refused(t *testing.T, what string, b []byte, err error) {
	t.Helper()
	if err != nil || mastertest.Unpack(t, b) != "bad load" {
		t.Errorf("%s: %q %v", what, b, err)
	}
}

// TestFinding13ReplayAfterRestart: somebody has recorded requests with an effect,
// the master starts anew, and they are sent again: refused, no event, no second
// job. The minion's own repetition with another nonce is taken.
func TestFinding13ReplayAfterRestart(t *testing.T) {
	t.Parallel()
	const options = "peer:\n  min1: [test.ping]\n"
	r := mastertest.Start(t, options)
	n := r.AcceptedMinion("min1", "min6")
	r.ListenToBus()
	jid := r.Publish("*", "test.ping").Str("jid")
	recorded := map[string][]byte{
		"event": eventRequest(n, "my/own/event"),
		"job": n.Payload(n.Load("minion_pub", "fun", "test.ping", "arg", []any{}, "tgt", "*", "tgt_type",
			"glob", "ret", "")),
		"return": n.Payload(n.Load("_return", "jid", jid, "fun", "test.ping", "fun_args", []any{}, "return",
			true, "retcode", 0, "success", true)),
	}

	r.NewEvents()
	for what, payload := range recorded {
		if b, err := n.Send(payload); err != nil || mastertest.Unpack(t, b) == "bad load" {
			t.Fatalf("%s: %q %v", what, b, err)
		}
	}

	tags := mastertest.TagsOf(r.NewEvents())
	if !slices.Contains(tags, "my/own/event") ||
		!slices.ContainsFunc(tags, func(s string) bool { return strings.HasSuffix(s, "/new") }) || !slices.Contains(tags, "salt/job/"+jid+"/ret/min1") {
		t.Fatalf("the first time: %v", tags)
	}

	for range 2 {
		r = r.Restart(options)
		r.ListenToBus()
		n.TalkTo(r)
		for what, payload := range recorded {
			b, err := r.AskRaw(payload)
			refused(t, what, b, err)
		}

		r.WantQuiet("a recorded request")
	}

	if s := n.SignIn(); s.Str("enc") != "pub" {
		t.Fatalf("sign-in: %v", s)
	}

	if b, err := n.Send(n.Payload(n.Load("_return", "jid", jid, "fun", "test.ping", "fun_args", []any{},
		"return", true, "retcode", 0, "success", true))); err != nil || mastertest.Unpack(t, b) == "bad load" {
		t.Errorf("the minion's own repetition: %q %v", b, err)
	}

	if tags := mastertest.TagsOf(r.NewEvents()); !slices.Contains(tags, "salt/job/"+jid+"/ret/min1") {
		t.Errorf("the minion's own repetition: %v", tags)
	}
}

// TestFinding13ReplayAtAnotherMaster: what one master of a cluster has taken is
// not taken by another.
func TestFinding13ReplayAtAnotherMaster(t *testing.T) {
	t.Parallel()
	ms := mastertest.StartCluster(t, 2)
	mastertest.AwaitLinks(t, ms)
	a, b := ms[0], ms[1]
	n := a.AcceptedMinion("min1", "min6")
	await.That(t, "min1 at b", func() bool { return len(b.Parts.Keys.Accepted()) == 1 })
	a.ListenToBus()
	b.ListenToBus()
	payload := eventRequest(n, "my/own/event")
	if _, err := n.Send(payload); err != nil {
		t.Fatal(err)
	}

	await.That(t, "the event at b", func() bool { return slices.Contains(mastertest.TagsOf(b.NewEvents()), "my/own/event") })
	a.NewEvents()
	got, err := b.AskRaw(payload)
	refused(t, "at the other master", got, err)

	for _, r := range ms {
		for _, tag := range mastertest.TagsOf(r.NewEvents()) {
			if tag == "my/own/event" {
				t.Error("the event was fired again")
			}
		}
	}

	if got, err := n.TalkTo(b).Send(eventRequest(n, "my/own/event")); err != nil || mastertest.Unpack(t, got) == "bad load" {
		t.Errorf("anew at the other master: %q %v", got, err)
	}
}

// TestFinding13WrongClock: a minion whose clock is an hour behind is refused
// where requests may be ten minutes old; the log and the status say which and by
// how much.
func TestFinding13WrongClock(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, "request_server_ttl: 600\n")
	n := r.AcceptedMinion("min1", "min6")
	load := n.Load("_minion_event", "tag", "my/own/event", "data", value.NewMap())
	load.Set("ts", time.Now().Unix()-3600)
	b, err := n.Send(n.Payload(load))
	refused(t, "an hour behind", b, err)
	const want = "min1"
	if log := r.Log.String(); !strings.Contains(log, "was made 1h0m") || !strings.Contains(log, want) ||
		!strings.Contains(log, "set the clock") {
		t.Errorf("log:\n%s", log)
	}

	await.That(t, "the problem in the status", func() bool {
		return slices.ContainsFunc(r.Parts.Problems.List(), func(p control.Problem) bool {
			return p.What == control.MinionClockFault && strings.Contains(p.Text, want)
		})
	})

	load.Set("ts", time.Now().Unix()-300)
	load.Set("nonce", mastertest.NewNonce())
	if b, err := n.Send(n.Payload(load)); err != nil || mastertest.Unpack(t, b) == "bad load" {
		t.Errorf("five minutes behind: %q %v", b, err)
	}
}
