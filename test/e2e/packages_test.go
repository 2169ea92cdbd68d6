//go:build e2e && appliance

package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/test/lab"
	"saltern/test/wheel"
)

// TestPythonPackages: a package that is added on one node has its ext_pillar and its
// runner on the others, a newer one takes its place, and without it the module is
// gone; no master is restarted.
func TestPythonPackages(t *testing.T) {
	if lab.Peer() {
		t.Skip("the stand-in has no applianced python")
	}

	t.Parallel()
	nodes := threeNodes(t, lab.NewNetwork(t, "pkg", "10.84"))
	for _, n := range nodes {
		n.Change(t, "settings.master.options.ext_pillar", []any{map[string]any{"try_pillar": map[string]any{}}})
		n.Launch(t)
	}

	for _, n := range nodes {
		n.WaitReady(t, 3)
	}

	n1, n2, n3 := nodes[0], nodes[1], nodes[2]
	n3.StartMinion(t, "m1", lab.Newest)
	n2.Ping(t, 90*time.Second, "m1")
	began := pids(t, nodes)
	dir := lab.Dir(t)
	file := filepath.Join(dir, "out") // minions of 3008 hide the pillar in what they print
	lab.WriteTree(t, filepath.Join(n1.Shared, "srv/salt"),
		map[string]string{"try.sls": file +
			":\n  file.managed:\n    - contents: {{ salt['pillar.get']('try', 'nothing') | json }}\n"})
	says := func(want string) {
		t.Helper()
		lab.Eventually(t, 60*time.Second, "the pillar", func() error {
			r := n2.Tool(t, "salt", "m1", "state.apply", "try", "--out=json")
			if b, _ := os.ReadFile(file); r.Code != 0 || strings.TrimSpace(string(b)) != want {
				return fmt.Errorf("%q; %.500s %.300s", b, r.Out, r.Err)
			}
			return nil
		})
	}

	add := func(version, text string) {
		t.Helper()
		w := wheel.Pillar("saltext.try", text)
		w.Version = version
		info := "saltext_try-1.0.dist-info/entry_points.txt"
		w.Files["saltext_try-"+version+".dist-info/entry_points.txt"] = w.Files[info]

		if version != "1.0" {
			delete(w.Files, info)
		}

		if r := n1.Applianced(t, "python", "add", "--yes", w.Write(t, dir)); r.Code != 0 {
			t.Fatalf("add: %+v", r)
		}

		for i, n := range nodes {
			lab.Eventually(t, 60*time.Second, fmt.Sprintf("the package on node %d", i+1), func() error {
				if r := n.Applianced(t, "python", "list", "--json"); r.Code != 0 ||
					!strings.Contains(r.Out, `"here": true`) || !strings.Contains(r.Out, version) {
					return fmt.Errorf("%+v", r)
				}
				return nil
			})
		}
	}

	says("nothing")
	add("1.0", "hello")
	says("hello")
	if r := n2.Tool(t, "salt-run", "tryrun.say", "--out=json"); !strings.Contains(r.Out, "hello") {
		t.Errorf("the runner: %+v", r)
	}

	add("2.0", "hello again")
	says("hello again")
	if r := n3.Applianced(t, "python", "remove", "--yes", "saltext.try"); r.Code != 0 {
		t.Errorf("remove: %+v", r)
	}

	says("nothing")
	if now := pids(t, nodes); !maps.Equal(now, began) {
		t.Errorf("masters were restarted: %v, %v", began, now)
	}
}
