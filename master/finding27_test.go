package master

import (
	"testing"

	"saltern/master/value"
)

// TestFinding27Recursion: a minion's job cannot start further jobs, whichever
// of its functions would.
func TestFinding27Recursion(t *testing.T) {
	t.Parallel()
	r := startMaster(t, "peer:\n  .*: ['.*']\n")
	n := r.accepted("web1", "min8")
	sub := r.subscribe()
	for fun, want := range map[string]bool{"test.ping": true, "test.ping,test.version": true, "publish.publish": false, "test.ping,publish.publish": false, "test.ping,test.version,publish.runner": false} {
		m, _ := n.ask("minion_pub", "fun", fun, "arg", []any{}, "tgt", "web1", "tgt_type", "glob", "ret", "").(*value.Map)
		if out := sub.published(); (m.Str("jid") != "") != want || (len(out) > 0) != want {
			t.Errorf("%s: answer %v, %d publications", fun, m, len(out))
		}
	}
}

// TestFinding27EventData: an event's data names its sender in all forms of the
// request. Salt's consumers of events look at this id alone.
func TestFinding27EventData(t *testing.T) {
	t.Parallel()
	r := startMaster(t, "")
	n := r.accepted("web1", "min8")
	r.listen()
	forged := func() *value.Map {
		return value.NewMap("id", "db1", "data", value.NewMap("id", "db1"), "return", true)
	}
	n.ask("_minion_event", "tag", "my/one", "data", forged())
	n.ask("_minion_event", "events", []any{value.NewMap("tag", "my/list", "data", forged()), value.NewMap("tag", "my/bare", "id", "db1"), value.NewMap("tag", "my/text", "data", "db1"),
		value.NewMap("tag", "my/odd", "data", value.NewMap("id", []any{"db1"}))}, "pretag", "my/pre")
	found := 0
	for _, e := range r.seen() {
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
