package target

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"saltern/master/value"
)

func TestPillarPattern(t *testing.T) {
	groups := value.NewMap("webs", "I@role:web* or J@role:w.*", "list", []any{"I@a:b?", "or", "N@webs"},
		"broken", int64(5))
	for _, c := range []struct {
		tgt       any
		typ, sep  string
		term      string
		isPattern bool
	}{
		{"role:web", "pillar", ":", "", false}, {"web*", "glob", ":", "", false}, {"role:web*", "grain", ":", "", false}, {"", "pillar", ":", "", false},
		{"I@role:web", "compound", ":", "", false}, {"web* or G@os:D*", "compound", ":", "", false}, {"N@webs", "compound", ":", "", false}, {"webs", "nodegroup", ":", "", false},
		{nil, "compound", ":", "", false}, {int64(5), "pillar", ":", "", false}, {[]any{int64(5)}, "compound", ":", "", false}, {"x I@", "compound", ":", "", false},

		{"secret:h*", "pillar", ":", "I@secret:h*", true}, {"secret:*", "pillar_exact", ":", "I@secret:*", true}, {"secret", "pillar_pcre", ":", "J@secret", true},
		{"secret:h*", "pillar", "ab", "I@secret:h*", true}, {"secret\n:h*", "pillar", ":", "I@secret\n:h*", true},
		{"web1 and I@x:[a-z]", "compound", ":", "I@x:[a-z]", true}, {"web1 and not J@x:y", "compound", ":", "J@x:y", true}, {"J|@x|y", "compound", ":", "J|@x|y", true},
		{[]any{"web1", "or", "I@x:y?"}, "compound", ":", "I@x:y?", true}, {"I@x:y?", "compound_pillar_exact", ":", "I@x:y?", true},

		// What the administrator wrote.
		{"I@role:web*", "compound", ":", "", false}, {"role:web*", "pillar", ":", "", false}, {"role:web*", "pillar", "", "", false}, {"role:w.*", "pillar_pcre", ":", "", false},
		{"( I@role:web* or J@role:w.* ) and db1", "compound", ":", "", false}, {"I@a:b?", "compound", ":", "", false},
		{"role:web*", "pillar", "|", "I@role:web*", true}, {"role:web*", "pillar_pcre", ":", "J@role:web*", true}, {"I@role:web** or I@role:web*", "compound", ":", "I@role:web**", true},
	} {
		t.Run(fmt.Sprint(c.typ, " ", c.tgt), func(t *testing.T) {
			term, found := OwnPillarPattern(c.tgt, c.typ, c.sep, groups)
			if found != c.isPattern || found && term != c.term {
				t.Errorf("%q %v", term, found)
			}
			if _, any := PillarPattern(c.tgt, c.typ, c.sep, groups); found && !any {
				t.Error("a pattern that is none")
			}
		})
	}

	for tgt, typ := range map[string]string{
		"webs":        "nodegroup",
		"N@webs":      "compound",
		"N@list":      "compound",
		"x or N@webs": "compound",
		"I@role:web*": "compound",
		"role:web*":   "pillar",
	} {
		if _, found := PillarPattern(tgt, typ, ":", groups); !found {
			t.Errorf("%s %s has no pattern, the administrator's neither", typ, tgt)
		}
	}
}

// TestTargetsWithoutPatternsAreExact: of 10,000 targets, those without a pattern select by pillars
// exactly the minions that they select when all pillar terms are exact. Whether a target has a
// pattern reveals nothing about any pillar (finding 15 of the second audit).
func TestTargetsWithoutPatternsAreExact(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 2026))
	pick := func(l ...string) string { return l[r.IntN(len(l))] }
	minions := pillars{}
	var ids []string
	for i := range 8 {
		id := fmt.Sprintf("%s%d", []string{"web", "db"}[i%2], i)
		ids = append(ids, id)
		minions[id] = value.NewMap("secret", pick("hunter2", "swordfish", "h*", "[h]unter2", "hunter?"), "roles", []any{
			pick("web", "db", "*"), "x"},
			"deep", value.NewMap("key", value.NewMap("a:b", pick("y", "Y*")), "*", "z"), "n", int64(r.IntN(3)), "is", r.IntN(2) == 0)
	}

	slices.Sort(ids)
	expr := func() string {
		return pick("secret", "roles", "deep", "deep:key", "deep:key:a:b", "*", "n", "is", "nosuch",
			"deep|key") + pick(":", ":", ":", "|", "") +
			pick("hunter2", "HUNTER2", "h*", "hunter?", "[h]unter2", "[a-m]*", "h.*", "web", "*", "y", "x",
				"z", "1", "True", "*:z", "a:b:y", "", "web*")
	}

	term := func() string {
		return pick("I@", "I@", "J@", "I|@", "J|@", "i@", "I @", "G@", "") + expr()
	}
	exactOf := map[string]string{
		"pillar":      "pillar_exact",
		"pillar_pcre": "pillar_exact",
		"compound":    "compound_pillar_exact",
	}

	plain := 0
	for range 10_000 {
		typ, tgt := pick("pillar", "pillar_pcre", "compound", "compound", "compound"), ""
		if typ != "compound" {
			tgt = expr()
		} else {
			tgt = pick("", "not ", "( ", "web* and ") + term()
			for range r.IntN(3) {
				tgt += pick(" and ", " or ", " and not ", " not ", "\x1cor\x1f") + term()
			}
			if strings.Contains(tgt, "(") {
				tgt += " )"
			}
		}

		if _, found := PillarPattern(tgt, typ, ":", nil); found {
			continue
		}

		matched, _, err := Resolve(ids, tgt, typ, Env{Source: minions})
		exactly, _, exactErr := Resolve(ids, tgt, exactOf[typ], Env{Source: minions})
		if (err != nil) != (exactErr != nil) || !slices.Equal(matched, exactly) {
			t.Errorf("%s %q selects %v, and exactly %v (%v, %v)", typ, tgt, matched, exactly, err, exactErr)
		}

		if len(matched) > 0 {
			plain++
		}
	}

	if plain < 200 {
		t.Errorf("only %d targets select anybody without a pattern", plain)
	}
}

// pillars are those of minions.
type pillars map[string]*value.Map

func (p pillars) Grains(string) (*value.Map, bool) { return nil, false }
func (p pillars) Pillar(id string) (*value.Map, bool) {
	m, ok := p[id]
	return m, ok
}
