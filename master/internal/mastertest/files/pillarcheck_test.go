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

// TestPillarCheckOnThreeMasters: each master of a cluster finds an entry of ext_pillar with another value in
// Go by its own check, says so in its status.json, and has Salt's module run it from then on. A minion
// that asks them in turn has a whole pillar all the while.
func TestPillarCheckOnThreeMasters(t *testing.T) {
	ms := mastertest.StartCluster(t, 3, "saltern_pillar_check: 1\nsaltern_renderer_python: "+mastertest.SaltPython(t)+
		"\npillar_roots: {base: [%DIR%/pillars/base]}\n"+`
ext_pillar:
  - cmd_yaml: 'echo "started: $(cat /proc/$PPID/comm)"; echo "id: %s"'
  - cmd_json: 'echo {\"after\":1}'
`)
	mastertest.AwaitLinks(t, ms)

	for i, r := range ms {
		writePillarFiles(r, "v: {{ 1 }}\n")
		n := r.AcceptedMinion("min1", "min6")
		isByPython := func() bool {
			p := n.Pillar()
			by := p.Str("started")
			p.Delete("started")
			if p.Len() != 3 || p.Value("v") != int64(1) || p.Str("id") != "min1" || p.Value("after") != int64(1) {
				t.Fatalf("master %d: %v", i, p)
			}
			return strings.HasPrefix(by, "python")
		}
		if isByPython() {
			t.Fatalf("master %d: Python runs the command before the check", i)
		}

		await.That(t, "the entry in status.json", func() bool {
			b, err := os.ReadFile(r.Path("cache", control.StatusFile))
			var s control.Status
			if err != nil || json.Unmarshal(b, &s) != nil {
				return false
			}
			for _, p := range s.Problems {
				if p.What == control.PillarCheckFault {
					return strings.HasPrefix(p.Text, "ext_pillar cmd_yaml (entry ")
				}
			}
			return false
		})
		if !isByPython() {
			t.Errorf("master %d: the command runs as before, after a check that found a difference", i)
		}
	}
}
