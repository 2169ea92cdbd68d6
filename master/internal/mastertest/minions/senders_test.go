package minions

import (
	"slices"
	"strings"
	"testing"

	"saltern/master/event"
	"saltern/master/internal/mastertest"
	"saltern/master/value"
)

// TestFinding27Recursion: a minion's job cannot start further jobs, whichever
// of its functions would.
func TestFinding27Recursion(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, "peer:\n  .*: ['.*']\n")
	n := r.AcceptedMinion("web1", "min8")
	sub := r.Subscribe()
	for fun, want := range map[string]bool{
		"test.ping":                             true,
		"test.ping,test.version":                true,
		"publish.publish":                       false,
		"test.ping,publish.publish":             false,
		"test.ping,test.version,publish.runner": false,
	} {
		m, _ := n.Ask("minion_pub", "fun", fun, "arg", []any{}, "tgt", "web1", "tgt_type", "glob", "ret",
			"").(*value.Map)
		if out := sub.Published(); (m.Str("jid") != "") != want || (len(out) > 0) != want {
			t.Errorf("%s: answer %v, %d publications", fun, m, len(out))
		}
	}
}

// TestFinding27EventData: an event's data names its sender in all forms of the
// request. Salt's consumers of events look at this id alone.
func TestFinding27EventData(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, "")
	n := r.AcceptedMinion("web1", "min8")
	r.ListenToBus()
	forged := func() *value.Map {
		return value.NewMap("id", "db1", "data", value.NewMap("id", "db1"), "return", true)
	}
	n.Ask("_minion_event", "tag", "my/one", "data", forged())
	n.Ask("_minion_event", "events", []any{value.NewMap("tag", "my/list", "data", forged()),
		value.NewMap("tag", "my/bare", "id", "db1"), value.NewMap("tag", "my/text", "data", "db1"),
		value.NewMap("tag", "my/odd", "data", value.NewMap("id", []any{"db1"}))}, "pretag", "my/pre")
	found := 0
	for _, e := range r.NewEvents() {
		if len(e.Tag) > 3 && e.Tag[:3] == "my/" {
			found++
			if e.Data.Str("id") != "web1" {
				t.Errorf("%s speaks for %v", e.Tag, e.Data.Value("id"))
			}
		}
	}

	if found != 9 {
		t.Errorf("%d events", found)
	}
}

// TestMinionsSayNothingForTheMaster: by no event of a job, nor by its return, has a minion
// tools wait for others, or take the job for refused.
func TestMinionsSayNothingForTheMaster(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, "")
	n := r.AcceptedMinion("web1", "min8")
	r.ListenToBus()
	jid := r.Publish("web1", "test.ping").Str("jid")
	said := []any{"minions", []any{"ghost"}, "missing", []any{"ghost"}, "error", "x", "syndic",
		[]any{"ghost"}, "resource_id", "db1", "return", true}
	prog := event.Tag("job", jid, "prog", "web1", "0")
	start := event.Tag("job", jid, "start", "web1")
	n.Ask("_minion_event", append([]any{"tag", prog, "data", value.NewMap(said...)}, said...)...)
	n.Ask("_minion_event", "events", []any{value.NewMap("tag", start, "data", value.NewMap(said...))})
	n.Ask("_minion_event", "tag", "my/free", "data", value.NewMap(), "minions", []any{"a"})
	n.Ask("_return", append([]any{"jid", jid, "fun", "test.ping", "return", "of db1"}, said[:len(said)-2]...)...)
	said = slices.Concat(said[:8], said[10:]) // without resource_id, with which a return is refused
	n.Ask("_return", append([]any{"jid", jid, "fun", "test.ping"}, said...)...)

	found := map[string]bool{}
	for _, e := range r.NewEvents() {
		kind, ok := strings.CutPrefix(e.Tag, event.Tag("job", jid)+"/")
		if e.Tag == "my/free" {
			found[e.Tag] = e.Data.Value("minions") != nil
		}

		if !ok || kind == "new" || kind == "publish" {
			continue
		}

		found[kind] = true
		for i := 0; i < len(said); i += 2 {
			field := said[i].(string)
			if _, ok := e.Data.Get(field); ok && (field != "return" || !strings.HasPrefix(kind, "ret/")) {
				t.Errorf("%s has %s", kind, field)
			}
		}
	}

	for _, kind := range []string{"prog/web1/0", "start/web1", "ret/web1", "my/free"} {
		if !found[kind] {
			t.Errorf("%s is not on the bus: %v", kind, found)
		}
	}
}
