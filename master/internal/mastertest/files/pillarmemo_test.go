package files

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"saltern/internal/control"
	"saltern/master/internal/mastertest"
	"saltern/test/await"
)

// TestPillarMemo has two minions of a master with saltern_pillar_memo: an SLS that
// reads what they have in common is rendered once, one that reads the id for each;
// status.json counts it.
func TestPillarMemo(t *testing.T) {
	r := mastertest.Start(t,
		"saltern_pillar_memo: True\nsaltern_renderer_python: "+mastertest.SaltPython(t)+
			"\npillar_roots: {base: [%DIR%/pillars/base]}\n")
	writePillarFiles(r, "shared: {{ salt['grains.get']('nosuch', 'none') }}{{ saltenv }}\n")
	one, two := r.AcceptedMinion("min1", "min6"), r.AcceptedMinion("min2", "min7")
	for range 2 {
		for _, n := range []*mastertest.Minion{one, two} {
			if got := n.Pillar().Str("shared"); got != "nonebase" {
				t.Errorf("shared: %q", got)
			}
		}
	}

	memo := func() control.PillarMemo {
		if s := r.Parts.Pillars.Stats().Memo; s != nil {
			return *s
		}
		return control.PillarMemo{}
	}

	if s := memo(); s.Misses != 1 || s.Hits != 3 || s.Alone != 0 || s.Bytes == 0 {
		t.Errorf("shared: %+v", s)
	}

	writePillarFiles(r, "id: {{ grains['id'] }}\n")
	for range 2 {
		if a, b := one.Pillar().Str("id"), two.Pillar().Str("id"); a != "min1" || b != "min2" {
			t.Errorf("%q and %q", a, b)
		}
	}

	if s := memo(); s.Misses != 3 || s.Hits != 5 {
		t.Errorf("the id: %+v", s)
	}

	await.That(t, "the counts in status.json", func() bool {
		b, err := os.ReadFile(r.Path("cache", control.StatusFile))
		var s control.Status
		return err == nil && json.Unmarshal(b, &s) == nil && s.PillarMemo != nil && s.PillarMemo.Hits == 5
	})
}

func TestPillarMemoThatDoesNothing(t *testing.T) {
	for _, option := range []string{"renderer_whitelist: [jinja, yaml]", "pillar_source_merging_strategy: aggregate"} {
		r := mastertest.Start(t, "saltern_pillar_memo: True\n"+option+"\n")
		if !strings.Contains(r.Log.String(), "saltern_pillar_memo does nothing") {
			t.Errorf("%s: no warning:\n%s", option, r.Log.String())
		}
	}
	r := mastertest.Start(t, "saltern_pillar_memo: True\n")
	if strings.Contains(r.Log.String(), "saltern_pillar_memo does nothing") {
		t.Error("a warning for nothing")
	}
}
