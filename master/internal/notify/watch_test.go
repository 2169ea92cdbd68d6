package notify

import (
	"encoding/json"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"saltern/master/cluster/wire"
	"saltern/master/event"
	"saltern/master/internal/notify/alert"
	"saltern/master/internal/notify/rules"
	"saltern/master/internal/presence"
	"saltern/master/value"
	"saltern/test/check"
)

var home = netip.MustParseAddr("10.1.2.3")

// connect makes a minion send its requests to one node, and subscribe at another.
func connect(requests, subscribes *node, id string) {
	requests.presence.SawRequest(id, home, time.Now())
	subscribes.set(func() { subscribes.subs = []presence.Subscription{{From: home, Topics: []string{""}}} })
}

func watched(t *testing.T, ids ...string) *world {
	w := newWorld(t, 2)
	for _, n := range w.nodes {
		n.accepted = ids
	}
	w.startAll()
	return w
}

// A minion that is connected to any node is not gone. When it leaves it is gone, once, and again after
// it was back.
func TestGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watched(t, "m")
		defer w.stopAll()
		connect(w.nodes[0], w.nodes[1], "m")
		time.Sleep(time.Hour)
		if n := len(w.messages("m")); n != 0 {
			t.Fatalf("%d messages about a minion that is connected", n)
		}
		if peer, ok := w.nodes[0].service.ConnectedTo("m"); !ok || peer != "n1" {
			t.Errorf("connected to %q, %t", peer, ok)
		}
		if peer, ok := w.nodes[1].service.ConnectedTo("m"); ok {
			t.Errorf("connected to %q, which is another master", peer)
		}

		leave := func() { w.nodes[1].set(func() { w.nodes[1].subs = nil }) }
		leave()
		time.Sleep(14 * time.Minute)
		if n := len(w.messages("m")); n != 0 {
			t.Errorf("%d messages before gone_for", n)
		}
		time.Sleep(3 * time.Hour)
		if n := len(w.messages("m")); n != 1 {
			t.Errorf("%d messages", n)
		}

		connect(w.nodes[1], w.nodes[1], "m")
		time.Sleep(10 * time.Minute)
		leave()
		time.Sleep(time.Hour)
		if n := len(w.messages("m")); n != 2 {
			t.Errorf("%d messages after it was back", n)
		}
	})
}

// After a restart of all masters, there is no second message about minions that were gone before.
func TestGoneSurvivesARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watched(t, "m")
		defer w.stopAll()
		time.Sleep(time.Hour)
		for range 3 {
			for _, n := range w.nodes {
				n.kill()
			}
			for _, n := range w.nodes {
				n.start()
			}
			time.Sleep(time.Hour)
		}
		if n := len(w.messages("m")); n != 1 {
			t.Errorf("%d messages", n)
		}
	})
}

// A minion that does not answer a job, nor a ping, is deaf. One that works for long answers the ping. A syndic answers no
// job, and nobody is told that.
func TestDeaf(t *testing.T) {
	// An event of this master has a []string, one of a peer what its bytes decode to.
	lists := []any{[]string{"m", "syndic"}, []any{"m", "syndic"}}
	for i, answers := range []bool{false, false, true} {
		minions := lists[i%2]
		synctest.Test(t, func(t *testing.T) {
			w := watched(t, "m", "syndic")
			defer w.stopAll()
			connect(w.nodes[0], w.nodes[1], "m")
			connect(w.nodes[0], w.nodes[1], "syndic")
			w.nodes[1].set(func() { w.nodes[1].subs = append(w.nodes[1].subs, w.nodes[1].subs...) })
			time.Sleep(time.Minute)
			tag := event.Tag("job", "20261129120000000000", "new")
			for _, n := range w.nodes {
				check.Must(t, n.bus.Fire(tag, value.NewMap("jid", "20261129120000000000", "minions", minions)))
			}

			time.Sleep(10*time.Minute + 30*time.Second)
			owner := w.nodes[w.owner]
			var pinged []string
			owner.set(func() { pinged = slices.Clone(owner.pinged) })
			if !slices.Equal(pinged, []string{"m"}) {
				t.Fatalf("pinged %v", pinged)
			}
			if answers {
				w.nodes[1].presence.SawRequest("m", home, time.Now())
			}
			time.Sleep(time.Hour)
			if n := len(w.messages("m")); n == 1 == answers {
				t.Errorf("answers %t: %d messages", answers, n)
			}
		})
	}
}

// A rule gets no notices, and no codes, that it did not ask for. There is one message about a
// problem that two nodes see.
func TestProblemOfAThirdNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.rules = "[{name: r, on: node, to: {syslog: 'file:///dev/log'}}]"
		w.startAll()
		defer w.stopAll()
		for i, n := range w.nodes {
			n.set(func() {
				n.problems = []alert.Problem{
					{Node: n.name(), Scope: "n3", Code: "SCA-104", Subject: "n3", Title: "away", Since: time.Now()},
					{Node: n.name(), Scope: n.name(), Code: "SCA-999", Title: "worth knowing", Notice: true, Since: time.Now()},
				}
			})
			time.Sleep(time.Duration(i) * 30 * time.Second)
		}
		time.Sleep(10 * time.Minute)
		if n := len(w.messages("")); n != 1 {
			t.Errorf("%d messages", n)
		}
	})
}

// A minion that another master has heard by a clock that is ahead is gone when it is gone.
func TestGoneByAClockThatIsAhead(t *testing.T) {
	all, faults := rules.Parse(option(t, failedRule))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	now := time.Now()
	w, err := openWatch(all, nil, filepath.Join(t.TempDir(), "told"), now, slog.New(slog.DiscardHandler))
	check.Must(t, err)

	heard := map[string]time.Time{"m": now.Add(24 * time.Hour)}
	w.gone(t.Context(), []string{"m"}, view{heard: heard}, true, now)
	heard["m"] = now
	for at := now; at.Before(now.Add(15 * time.Minute)); at = at.Add(rules.LookEvery) {
		w.gone(t.Context(), []string{"m"}, view{heard: heard}, true, at)
	}
	if len(w.gone(t.Context(), []string{"m"}, view{heard: heard}, true, now.Add(15*time.Minute))) != 1 {
		t.Error("it is not gone")
	}
}

// A condition that was told by a clock that was ahead is forgotten when it has ended.
func TestToldByAClockThatWasAhead(t *testing.T) {
	w, err := openWatch(nil, nil, filepath.Join(t.TempDir(), "told"), time.Now(), slog.New(slog.DiscardHandler))
	check.Must(t, err)
	now := time.Now().Round(0)
	a := alert.NewKey("m", "aa:bb", now)
	w.note(&a, now.Add(24*time.Hour))
	w.look(t.Context(), true, nil, now)
	w.look(t.Context(), true, nil, now.Add(settleFor+time.Minute))
	if len(w.told) > 0 {
		t.Error(w.told)
	}
}

// FuzzMessage: whatever a peer sends, it is refused, or within the bounds.
func FuzzMessage(f *testing.F) {
	now := time.Now()
	a := alert.NewKey("m", "aa:bb", now)
	for _, m := range []peerMessage{
		{Alerts: []alert.Alert{a}, Pending: true},
		{Marks: []Mark{{Alert: a.ID, To: a.ID, Key: a.Key, At: now, Outcome: Sent, Message: a.ID}}},
		{Silences: []Silence{{Name: "x", Until: now.Add(time.Hour), Set: now}}},
		{Seen: []sighting{{"m", home, now.UnixMilli()}}, Subscribers: &subscribers{Unnamed: map[netip.Addr]int{home: 3}}},
	} {
		text, err := json.Marshal(&m)
		check.Must(f, err)
		f.Add(text)
	}
	f.Add([]byte(`{"subscribers":{"unnamed":{"1.2.3.4":9223372036854775807,"1.2.3.5":-1}}}`))

	f.Fuzz(func(t *testing.T, text []byte) {
		packed, err := wire.Pack([]any{messageKind, text})
		check.Must(t, err)
		if !IsMessage(packed) {
			t.Fatal("not recognised")
		}
		m, err := parseMessage(packed)
		if err != nil {
			return
		}
		for _, a := range m.Alerts {
			if !alert.IsDigest(a.ID) || len(a.Title) > 400 {
				t.Errorf("%+v", a)
			}
		}
		n := 0
		if m.Subscribers != nil {
			for range m.Subscribers.each {
				n++
			}
		}
		if n > maxSubscribed || len(m.Seen) > maxSightings {
			t.Errorf("%d subscriptions", n)
		}
	})
}

// Messages of other kinds between masters are not taken for those of this package.
func TestOtherMessages(t *testing.T) {
	for _, v := range []any{[]any{int64(6), []byte("x")}, []any{int64(1), "x", "y"}, []any{int64(64)}, "x", nil} {
		packed, err := wire.Pack(v)
		check.Must(t, err)
		if IsMessage(packed) {
			t.Errorf("%v", v)
		}
	}
}
