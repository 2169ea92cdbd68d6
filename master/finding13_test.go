package master

import (
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/master/value"
)

// eventOf is a request that fires an event.
func (n *scriptedMinion) eventOf(tag string) []byte {
	return n.payload(n.load("_minion_event", "tag", tag, "data", value.NewMap("a", 1)))
}

// refused says that the answer is one upon which a minion signs in and sends
// the same anew (salt/channel/client.py _crypted_transfer): in the clear.
func refused(t *testing.T, what string, b []byte, err error) {
	t.Helper()
	if err != nil || unpack(t, b) != "bad load" {
		t.Errorf("%s: %q %v", what, b, err)
	}
}

// TestFinding13ReplayAfterRestart: somebody has recorded requests with an effect,
// the master starts anew, and they are sent again: refused, no event, no second
// job. The minion's own repetition with another nonce is taken.
func TestFinding13ReplayAfterRestart(t *testing.T) {
	t.Parallel()
	const options = "peer:\n  min1: [test.ping]\n"
	r := startMaster(t, options)
	n := r.accepted("min1", "min6")
	r.listen()
	jid := r.job("*", "test.ping").Str("jid")
	recorded := map[string][]byte{
		"event": n.eventOf("my/own/event"),
		"job": n.payload(n.load("minion_pub", "fun", "test.ping", "arg", []any{}, "tgt", "*", "tgt_type",
			"glob", "ret", "")),
		"return": n.payload(n.load("_return", "jid", jid, "fun", "test.ping", "fun_args", []any{}, "return",
			true, "retcode", 0, "success", true)),
	}

	r.seen()
	for what, payload := range recorded {
		if b, err := n.send(payload); err != nil || unpack(t, b) == "bad load" {
			t.Fatalf("%s: %q %v", what, b, err)
		}
	}

	tags := tagsOf(r.seen())
	if !slices.Contains(tags, "my/own/event") ||
		!slices.ContainsFunc(tags, func(s string) bool { return strings.HasSuffix(s, "/new") }) || !slices.Contains(tags, "salt/job/"+jid+"/ret/min1") {
		t.Fatalf("the first time: %v", tags)
	}

	for range 2 {
		r = r.again(options)
		r.listen()
		n.at(r)
		for what, payload := range recorded {
			b, err := r.raw(payload)
			refused(t, what, b, err)
		}

		r.quiet("a recorded request")
	}

	if s := n.signIn(); s.Str("enc") != "pub" {
		t.Fatalf("sign-in: %v", s)
	}

	if b, err := n.send(n.payload(n.load("_return", "jid", jid, "fun", "test.ping", "fun_args", []any{},
		"return", true, "retcode", 0, "success", true))); err != nil || unpack(t, b) == "bad load" {
		t.Errorf("the minion's own repetition: %q %v", b, err)
	}

	if tags := tagsOf(r.seen()); !slices.Contains(tags, "salt/job/"+jid+"/ret/min1") {
		t.Errorf("the minion's own repetition: %v", tags)
	}
}

// TestFinding13ReplayAtAnotherMaster: what one master of a cluster has taken is
// not taken by another.
func TestFinding13ReplayAtAnotherMaster(t *testing.T) {
	t.Parallel()
	ms := masters(t, 2)
	joined(t, ms)
	a, b := ms[0], ms[1]
	n := a.accepted("min1", "min6")
	until(t, "min1 at b", func() bool { return len(b.m.keys.Accepted()) == 1 })
	a.listen()
	b.listen()
	payload := n.eventOf("my/own/event")
	if _, err := n.send(payload); err != nil {
		t.Fatal(err)
	}

	until(t, "the event at b", func() bool { return slices.Contains(tagsOf(b.seen()), "my/own/event") })
	a.seen()
	got, err := b.raw(payload)
	refused(t, "at the other master", got, err)

	for _, r := range ms {
		for _, tag := range tagsOf(r.seen()) {
			if tag == "my/own/event" {
				t.Error("the event was fired again")
			}
		}
	}

	if got, err := n.at(b).send(n.eventOf("my/own/event")); err != nil || unpack(t, got) == "bad load" {
		t.Errorf("anew at the other master: %q %v", got, err)
	}
}

// TestFinding13WrongClock: a minion whose clock is an hour behind is refused
// where requests may be ten minutes old; the log and the status say which and by
// how much.
func TestFinding13WrongClock(t *testing.T) {
	t.Parallel()
	r := startMaster(t, "request_server_ttl: 600\n")
	n := r.accepted("min1", "min6")
	load := n.load("_minion_event", "tag", "my/own/event", "data", value.NewMap())
	load.Set("ts", time.Now().Unix()-3600)
	b, err := n.send(n.payload(load))
	refused(t, "an hour behind", b, err)
	const want = "min1"
	if log := r.log.String(); !strings.Contains(log, "was made 1h0m") || !strings.Contains(log, want) ||
		!strings.Contains(log, "set the clock") {
		t.Errorf("log:\n%s", log)
	}

	until(t, "the problem in the status", func() bool {
		return slices.ContainsFunc(r.m.problems.List(), func(p control.Problem) bool {
			return p.What == control.MinionClockFault && strings.Contains(p.Text, want)
		})
	})

	load.Set("ts", time.Now().Unix()-300)
	load.Set("nonce", newNonce())
	if b, err := n.send(n.payload(load)); err != nil || unpack(t, b) == "bad load" {
		t.Errorf("five minutes behind: %q %v", b, err)
	}
}
