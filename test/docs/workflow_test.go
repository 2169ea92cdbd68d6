package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestWorkflow: what makes a release from a tag can be read, starts at tags of versions
// only, calls targets that are there, and has no secret but the draft's token.
func TestWorkflow(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, ".github/workflows/release.yml"))
	if err != nil {
		t.Fatal(err)
	}

	var w struct {
		On struct {
			Push struct{ Tags, Branches []string }
		}
		Jobs map[string]struct{ Steps []struct{ Run string } }
	}

	if err := yaml.Unmarshal(text, &w); err != nil {
		t.Fatal(err)
	}

	if len(w.On.Push.Tags) != 1 || !strings.HasPrefix(w.On.Push.Tags[0], "v") ||
		len(w.On.Push.Branches) > 0 || strings.Contains(string(text), "secrets.") {
		t.Errorf("on %+v", w.On)
	}

	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}

	n := 0
	for _, j := range w.Jobs {
		for _, s := range j.Steps {
			if m := regexp.MustCompile(`^make ([a-z-]+)`).FindStringSubmatch(s.Run); m != nil {
				n++
				if !strings.Contains(string(makefile), "\n"+m[1]+":") {
					t.Errorf("the Makefile has no %s", m[1])
				}
			}
		}
	}

	if n == 0 {
		t.Error("nothing is made")
	}
}
