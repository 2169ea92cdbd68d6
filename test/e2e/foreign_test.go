//go:build e2e

package e2e

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/test/lab"
)

// TestForeign: a node of programs for another kind of machine, which qemu-user runs,
// serves real minions: they sign in, answer, and get states and pillars.
func TestForeign(t *testing.T) {
	if os.Getenv("SALTERN_FOREIGN") == "" {
		t.Skip("NOT TESTED: by hand: make test-arm64")
	}

	for _, p := range []string{"applianced", "salt-master", "salt-api", "salt"} {
		f, err := elf.Open(filepath.Join(filepath.Dir(lab.Bin(t, p)), "../packages/arm64", p))
		if err != nil {
			t.Fatal(err)
		}

		if f.Machine != elf.EM_AARCH64 {
			t.Errorf("%s is for %s", p, f.Machine)
		}

		if err := f.Close(); err != nil {
			t.Error(err)
		}

		if r := lab.Run(t, time.Minute, lab.Bin(t, p), "--version"); r.Code != 0 || r.Out == "" {
			t.Errorf("%s --version: %+v", p, r)
		}
	}

	etc := t.TempDir()
	lab.WriteTree(t, etc, map[string]string{"master": "user: root\ntimeout: 12\n"})
	if r := lab.Run(t, time.Minute, lab.Bin(t, "salt-master"), "-c", etc, "--check"); r.Code != 0 && r.Code != 2 {
		t.Errorf("salt-master --check: %+v", r)
	}

	n := lab.StartNode(t, lab.NodeConfig{
		Options: map[string]any{"auto_accept": true},
		Extra: map[string]any{"programs": map[string]any{
			"master": lab.Bin(t, "salt-master"),
			"lb":     lab.Bin(t, "applianced"),
		}},
		States: map[string]string{"hello.sls": "hello:\n  test.succeed_with_changes:\n    - name: {{ pillar['greeting'] }}\n"},
		Pillar: map[string]string{
			"top.sls":   "base:\n  '*':\n    - greet\n",
			"greet.sls": "greeting: hello {{ grains['id'] }}\n",
		},
	})

	var ids []string
	for _, v := range lab.Versions() {
		id := "m" + strings.ReplaceAll(v, ".", "-")
		ids = append(ids, id)
		lab.StartMinion(t, n, id, v, nil)
	}

	n.Ping(t, 90*time.Second, ids...)
	m, err := n.JSON(t, "*", "state.apply", "hello")
	if err != nil {
		t.Fatal(err)
	}

	for _, id := range ids {
		if text := fmt.Sprint(m[id]); !strings.Contains(text, "hello "+id) || !strings.Contains(text, "result:true") {
			t.Errorf("state.apply on %s: %s", id, text)
		}
	}
}
