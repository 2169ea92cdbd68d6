package acl

import (
	"testing"

	"saltern/master/value"
)

// TestWords: who reads all events and fires hooks, and whom nothing is granted.
func TestWords(t *testing.T) {
	m := value.NewMap
	for name, c := range map[string]struct {
		perms                 []any
		events, hooks, grants bool
	}{
		"nothing": {nil, false, false, false},
		"empty things": {l(nil, m(), m("web*", l()), m("web*", nil), m("web*", ""), m("a", l("b"), "c", l("d")), int64(1)),
			false, false, false},
		"a function":      {l("test.ping"), false, false, true},
		"on some minions": {l(m("web*", l(".*")), "@runner", "@wheel"), false, false, true},
		"@events":         {l("@events"), true, false, true},
		"@hook":           {l("@hook"), false, true, true},
		"both":            {l("@hook", "test.ping", "@events"), true, true, true},
		"all":             {l(".*", "@runner", "@wheel"), true, true, true},
		"all, other spelling": {l(m("*", l("test.ping", "^.*$")), m("@runners", l(".*")), "@wheels"),
			true, true, true},
		"all but wheel":           {l(".*", "@runner"), false, false, true},
		"all but runners":         {l(".*", "@wheel", "@jobs"), false, false, true},
		"all but some functions":  {l("(?!cmd).*", "@runner", "@wheel"), false, false, true},
		"all runners but some":    {l(".*", m("@runner", l("(?!auth).*")), "@wheel"), false, false, true},
		"wheel on conditions":     {l(".*", "@runner", m("@wheel", l(m(".*", m("args", l("x")))))), false, false, true},
		"words that look like it": {l("@event", "events", "@hooks", "hook", "@eventsx"), false, false, true},
		"a list below a word":     {l(m("@events", l("x")), m("@hook", l("x"))), false, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := MayReadEvents(c.perms); got != c.events {
				t.Errorf("reads events: %v", got)
			}

			if got := MayFireHooks(c.perms); got != c.hooks {
				t.Errorf("fires hooks: %v", got)
			}

			if got := Grants(c.perms); got != c.grants {
				t.Errorf("is granted something: %v", got)
			}
		})
	}
}

// TestWordsOfConfiguration: the words are good expressions, and a list below one is not.
func TestWordsOfConfiguration(t *testing.T) {
	for _, c := range []struct {
		grants any
		faults int
	}{
		{l("@events", "@hook", "test.*"), 0},
		{l(value.NewMap("@events", l("salt/job/*"))), 1},
		{l(value.NewMap("@hook", nil), "@events"), 1},
	} {
		f := Faults{Target: func(string) error { return nil }}
		f.External("external_auth", value.NewMap("pam", value.NewMap("ann", c.grants)))
		if len(f.List) != c.faults {
			t.Errorf("%v: %v", c.grants, f.List)
		}
	}
}
