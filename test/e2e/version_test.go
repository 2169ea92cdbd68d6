//go:build e2e

package e2e

import (
	"strings"
	"testing"
	"time"

	"saltern/test/lab"
)

// TestVersions: every program of a build says the same version.
func TestVersions(t *testing.T) {
	t.Parallel()
	want := ""
	for _, p := range []string{"applianced", "salt-master", "salt", "salt-key", "salt-run", "salt-cp",
		"saltern-image"} {
		r := lab.Run(t, 20*time.Second, lab.Bin(t, p), "--version")
		words := strings.Fields(strings.TrimSuffix(strings.TrimSpace(r.Out), ")"))
		if r.Code != 0 || len(words) < 2 {
			t.Errorf("%s --version: %d %s%s", p, r.Code, r.Out, r.Err)
			continue
		}

		v := words[len(words)-1]
		if want == "" {
			want = v
		}

		if words[0] != p || v != want {
			t.Errorf("%s: %q, the others say %s", p, strings.TrimSpace(r.Out), want)
		}
	}
}
