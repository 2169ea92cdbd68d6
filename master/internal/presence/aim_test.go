package presence

import (
	"fmt"
	"strings"
	"testing"

	"saltern/master/value"
)

func set(ids ...string) map[string]bool {
	out := map[string]bool{}
	for _, id := range ids {
		out[id] = true
	}
	return out
}

// TestAim: a job that is sent again leaves out who has returned it, as far as that can be said,
// and always who has been started anew since (S6); when that cannot be said it is in doubt.
func TestAim(t *testing.T) {
	matched := []string{"a", "b", "c"}
	many := map[string]bool{}
	for i := range maxNamedIDs + 1 {
		many[fmt.Sprint("m", i)] = true
	}

	for name, tt := range map[string]struct {
		load              *value.Map
		matched           []string
		returned, started map[string]bool
		want              string
	}{
		"nobody has returned": {
			load:    value.NewMap("tgt", "*", "tgt_type", "glob"),
			matched: matched,
			want:    "same",
		},
		"some have": {
			load:     value.NewMap("tgt", "*", "tgt_type", "glob"),
			matched:  matched,
			returned: set("a", "c"),
			want:     "list [b]",
		},
		"without a type": {
			load:     value.NewMap("tgt", "*"),
			matched:  matched,
			returned: set("a", "c"),
			want:     "list [b]",
		},
		"all have": {
			load:     value.NewMap("tgt", "a,b,c", "tgt_type", "list"),
			matched:  matched,
			returned: set("a", "b", "c", "d"),
			want:     "nobody",
		},
		"one was started": {
			load:    value.NewMap("tgt", "*", "tgt_type", "glob"),
			matched: matched,
			started: set("b"),
			want:    "list [a c]",
		},
		"all were": {
			load:    value.NewMap("tgt", ".*", "tgt_type", "pcre"),
			matched: matched,
			started: set("a", "b", "c"),
			want:    "nobody",
		},
		"returned, of a grain": {
			load:     value.NewMap("tgt", "os:Debian", "tgt_type", "grain"),
			matched:  matched,
			returned: set("c", "a"),
			want:     "compound [G@os:Debian and not L@a,c]",
		},
		"started, of a grain": {
			load:    value.NewMap("tgt", "os:Debian", "tgt_type", "grain"),
			matched: matched,
			started: set("x"),
			want:    "compound [G@os:Debian and not L@x]",
		},
		"of a grain with a delimiter": {
			load:    value.NewMap("tgt", "os|Debian", "tgt_type", "grain", "delimiter", "|"),
			started: set("x"),
			want:    "compound [G|@os|Debian and not L@x]",
		},
		"of a compound": {
			load:    value.NewMap("tgt", "G@os:Debian or web*", "tgt_type", "compound"),
			started: set("x"),
			want:    "compound [( G@os:Debian or web* ) and not L@x]",
		},
		"of a network": {
			load:    value.NewMap("tgt", "10.0.0.0/8", "tgt_type", "ipcidr"),
			started: set("x"),
			want:    "compound [S@10.0.0.0/8 and not L@x]",
		},
		"unknown minions, a glob": {
			load:    value.NewMap("tgt", "web*", "tgt_type", "glob"),
			started: set("x"),
			want:    "compound [web* and not L@x]",
		},
		"unknown minions, a list": {
			load:    value.NewMap("tgt", []any{"a", "b"}, "tgt_type", "list"),
			started: set("x"),
			want:    "compound [L@a,b and not L@x]",
		},
		"an odd glob": {
			load:    value.NewMap("tgt", "E@.*", "tgt_type", "glob"),
			started: set("x"),
			want:    "doubt",
		},
		"a glob that is a word": {
			load:    value.NewMap("tgt", "not", "tgt_type", "glob"),
			started: set("x"),
			want:    "doubt",
		},
		"a target over two lines": {
			load:    value.NewMap("tgt", "a\nb", "tgt_type", "grain"),
			started: set("x"),
			want:    "doubt",
		},
		"an unknown type, started": {
			load:    value.NewMap("tgt", "x", "tgt_type", "new"),
			started: set("x"),
			want:    "doubt",
		},
		"an unknown type, returned": {
			load:     value.NewMap("tgt", "x", "tgt_type", "new"),
			returned: set("x"),
			want:     "same",
		},
		"too many have returned": {
			load:     value.NewMap("tgt", "os:x", "tgt_type", "grain"),
			returned: many,
			want:     "same",
		},
		"too many have, one is started": {
			load:     value.NewMap("tgt", "os:x", "tgt_type", "grain"),
			returned: many,
			started:  set("y"),
			want:     "compound [G@os:x and not L@y]",
		},
		"too many were started": {
			load:    value.NewMap("tgt", "os:x", "tgt_type", "grain"),
			started: many,
			want:    "doubt",
		},
	} {
		t.Run(name, func(t *testing.T) {
			to := narrowTarget(tt.load, tt.matched, tt.returned, tt.started)
			got := fmt.Sprint(to.typ, " ", to.tgt)
			switch {
			case to.nobody:
				got = "nobody"
			case to.unknown:
				got = "doubt"
			case to.unchanged:
				got = "same"
			}

			if got != tt.want {
				t.Errorf("%s, not %s", got, tt.want)
			}
		})
	}
}

// FuzzAim: whatever the target, who was started is named or nothing is sent.
func FuzzAim(f *testing.F) {
	f.Add("*", "glob", ":", "a", "b")
	f.Add("G@os:x and not b", "compound", "|", "a", "a")
	f.Add("", "list", "", "a,b", "x y")
	f.Fuzz(func(t *testing.T, tgt, typ, delimiter, matched, started string) {
		load := value.NewMap("tgt", tgt, "tgt_type", typ, "delimiter", delimiter)
		to := narrowTarget(load, strings.Split(matched, ","), nil, set(started))
		if to.nobody || to.unknown {
			return
		}
		if to.unchanged {
			t.Fatalf("sent as it was, though %q was started", started)
		}

		switch words := to.tgt.(type) {
		case []string:
			if to.typ == "list" {
				for _, id := range words {
					if id == started {
						t.Fatalf("for %q", words)
					}
				}
				return
			}

			if words[len(words)-1] != "L@"+started {
				t.Fatalf("%q", words)
			}
		default:
			t.Fatalf("%v", to)
		}
	})
}

// managedBy holds the resources of minions.
type managedBy map[string][]string

func (m managedBy) Managed(minion string) []string { return m[minion] }

// TestResourcesOfAStartedMinionAreExcluded: a minion that has restarted runs no earlier job on its
// resources either.
func TestResourcesOfAStartedMinionAreExcluded(t *testing.T) {
	k := &Resender{cfg: ResenderConfig{Resources: managedBy{"web1": {"d1", "d2"}}}}
	started := set("web1")
	k.addManaged(started)
	load := value.NewMap("tgt", []any{"d1", "d2"}, "tgt_type", "list")
	if to := narrowTarget(load, []string{"d1", "d2"}, nil, started); !to.nobody {
		t.Errorf("sent again to %v", to.tgt)
	}

	started = set("web2")
	k.addManaged(started)
	load = value.NewMap("tgt", "*", "tgt_type", "glob")
	if to := narrowTarget(load, []string{"web1", "web2", "d1"}, nil, started); fmt.Sprint(to.tgt) != "[web1 d1]" {
		t.Errorf("sent again to %v", to.tgt)
	}
}
