package master

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"saltern/internal/control"
)

// TestPillarMemo has two minions of a master with saltern_pillar_memo: an SLS that
// reads what they have in common is rendered once, one that reads the id for each;
// status.json counts it.
func TestPillarMemo(t *testing.T) {
	r := startMaster(t,
		"saltern_pillar_memo: True\nsaltern_renderer_python: "+saltPython(t)+
			"\npillar_roots: {base: [%DIR%/pillars/base]}\n")
	r.pillarFiles("shared: {{ salt['grains.get']('nosuch', 'none') }}{{ saltenv }}\n")
	one, two := r.accepted("min1", "min6"), r.accepted("min2", "min7")
	for range 2 {
		for _, n := range []*scriptedMinion{one, two} {
			if got := n.pillar().Str("shared"); got != "nonebase" {
				t.Errorf("shared: %q", got)
			}
		}
	}

	memo := func() control.PillarMemo {
		if s := r.m.pillars.Stats().Memo; s != nil {
			return *s
		}
		return control.PillarMemo{}
	}

	if s := memo(); s.Misses != 1 || s.Hits != 3 || s.Alone != 0 || s.Bytes == 0 {
		t.Errorf("shared: %+v", s)
	}

	r.pillarFiles("id: {{ grains['id'] }}\n")
	for range 2 {
		if a, b := one.pillar().Str("id"), two.pillar().Str("id"); a != "min1" || b != "min2" {
			t.Errorf("%q and %q", a, b)
		}
	}

	if s := memo(); s.Misses != 3 || s.Hits != 5 {
		t.Errorf("the id: %+v", s)
	}

	until(t, "the counts in status.json", func() bool {
		b, err := os.ReadFile(r.path("cache", control.StatusFile))
		var s control.Status
		return err == nil && json.Unmarshal(b, &s) == nil && s.PillarMemo != nil && s.PillarMemo.Hits == 5
	})
}

func TestPillarMemoThatDoesNothing(t *testing.T) {
	for _, option := range []string{"renderer_whitelist: [jinja, yaml]", "pillar_source_merging_strategy: aggregate"} {
		r := startMaster(t, "saltern_pillar_memo: True\n"+option+"\n")
		if !strings.Contains(r.log.String(), "saltern_pillar_memo does nothing") {
			t.Errorf("%s: no warning:\n%s", option, r.log.String())
		}
	}
	r := startMaster(t, "saltern_pillar_memo: True\n")
	if strings.Contains(r.log.String(), "saltern_pillar_memo does nothing") {
		t.Error("a warning for nothing")
	}
}
