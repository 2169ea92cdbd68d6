package users

import (
	"testing"

	"saltern/master/internal/local"
	"saltern/master/internal/mastertest"
	"saltern/master/value"
)

// A target that cannot be read selects nobody: the tools exit with status 2,
// "no minions matched", and nothing is published.
func TestUnreadableTarget(t *testing.T) {
	r := mastertest.Start(t, "nodegroups:\n  loop_a: N@loop_b\n  loop_b: N@loop_a\n")
	r.AcceptedMinion("web1", "min6")
	r.ListenToBus()
	for _, c := range []struct {
		tgt any
		typ string
	}{{"loop_a", "nodegroup"}, {"N@loop_b", "compound"}, {"web1 and", "compound"}, {"(", "pcre"}, {"web1", "colour"}} {
		load, ok := r.AskInClear("publish", "fun", "test.ping", "arg", []any{}, "tgt", c.tgt, "tgt_type", c.typ, "ret", "", "jid", "",
			"key", r.Key, "user", local.CurrentUser(), "kwargs", value.NewMap()).(*value.Map)
		if !ok {
			t.Errorf("%v (%s): no map", c.tgt, c.typ)
			continue
		}

		got := load.Map("load")
		if jid, has := got.Get("jid"); !has || jid != nil || len(got.List("minions")) != 0 || got.Str("error") == "" {
			t.Errorf("%v (%s): %v", c.tgt, c.typ, got)
		}
	}

	r.WantQuiet("targets that cannot be read", "salt/auth", "salt/master/")
}
