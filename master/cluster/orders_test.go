package cluster

import (
	"slices"
	"testing"
	"time"

	"saltern/master/event"
	"saltern/master/msgpack"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// TestPeersOrderForThemselves: an event orders nothing here if a peer reports that somebody without
// the right has made it, whether or not that peer should have withheld the event. Events that the
// peer made itself take effect, and so do events for which a peer of an older version names no
// maker (second audit, 1).
func TestPeersOrderForThemselves(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ids, port := hosts(t, 2)
	a, err := start(t, await.Context(t), ids[0], port, 0, dir, nil)
	check.Must(t, err)
	const jid = "20260102030405678901"
	job := "salt/job/" + jid
	packed, err := msgpack.Marshal(value.NewMap("jid", jid, "id", "web1", "act", "accept", "result", true,
		"fun", "cmd.run", "tgt", "*", "return", 1),
		msgpack.Modern)
	check.Must(t, err)
	orders := []string{job + "/publish", job + "/new", job + "/ret/web1", "salt/key", "salt/auth",
		"rotate_cluster_aes_key", event.TagLoginLocked, event.TagPillarsCleared, event.TagGitFetch, "key"}
	var seq uint64
	arrive := func(maker, tag string) {
		seq++
		b, err := packItem("1", Events, &item{seq: seq, tag: tag, maker: maker, packed: packed})
		check.Must(t, err)
		got, err := parseItem(b)
		check.Must(t, err)

		if a.inbox.handleBatch(await.Context(t), ids[1], Events, []arrived{got}) != 1 {
			t.Fatalf("%s of %q is not acknowledged", tag, maker)
		}
	}

	for _, maker := range []string{makerRunner, makerHook, makerTool, "/of a later version", "db1"} {
		for _, tag := range orders {
			if maker == makerTool && (tag == "salt/key" || tag == "salt/auth") {
				continue // a peer vouches for these: the maker is not told
			}
			arrive(maker, tag)
		}
		arrive(maker, "my/"+maker)
	}

	if n := a.count(&a.jobs) + a.count(&a.changed) + a.count(&a.returns); n != 0 {
		t.Errorf("%d jobs, keys and returns", n)
	}

	for _, tag := range orders {
		if a.has(&a.events, ids[1]+" "+tag) {
			t.Errorf("%s is on the bus", tag)
		}
	}

	want := map[string]event.Origin{
		"my/" + makerRunner:      event.Runner,
		"my/" + makerHook:        event.Hook,
		"my/" + makerTool:        event.Socket,
		"my//of a later version": event.Runner,
		"my/db1":                 event.Minion,
	}

	for tag, maker := range want {
		if !a.has(&a.events, ids[1]+" "+tag) || a.makers[tag] != maker {
			t.Errorf("%s: %v, made by %s", tag, a.has(&a.events, ids[1]+" "+tag), a.makers[tag])
		}
	}

	for _, tag := range orders {
		arrive("", tag)
	}

	if a.count(&a.jobs) != 1 || a.count(&a.changed) != 2 ||
		!a.has(&a.events, ids[1]+" "+event.TagLoginLocked) || !a.has(&a.events, ids[1]+" "+job+"/new") {
		t.Errorf("of the master itself: %v, %v, %v", a.jobs, a.changed, a.events)
	}
}

// TestMakersAreNames: the names of makers that a peer gets, and how they are parsed.
func TestMakersAreNames(t *testing.T) {
	bus := event.NewBus(time.Now, 0)
	sub := bus.Subscribe("t", 10, nil)
	var told []string
	for _, c := range []struct {
		tag string
		by  event.Event
	}{
		{"x", event.Event{}}, {"x", event.Event{Origin: event.Runner}}, {"x", event.Event{Origin: event.Hook}}, {"x", event.Event{Origin: event.Socket}},
		{"salt/key", event.Event{Origin: event.Socket}}, {"salt/key", event.Event{Origin: event.Runner}}, {"x", event.Event{Origin: event.Minion, Minion: "web1"}},
	} {
		c.by.Tag, c.by.Data = c.tag, value.NewMap()
		check.Must(t, bus.Relay(c.by))
		sent := (<-sub.C).AtPeer()
		text := makerText(sent)
		told = append(told, text)
		got := madeBy(text, event.Event{Tag: c.tag})
		vouched := c.tag == "salt/key" && sent.Maker == event.Socket
		if got.Origin != event.Peer || got.Minion != sent.Minion || got.Maker != sent.Maker && !vouched {
			t.Errorf("%+v is read as %+v", sent, got)
		}
	}

	if want := []string{"", makerRunner, makerHook, makerTool, "", makerRunner, "web1"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}
