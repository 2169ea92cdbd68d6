package metrics

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestManual: what is served is in the manual, and the manual, the alert rules
// and the dashboard name nothing else.
func TestManual(t *testing.T) {
	var text strings.Builder
	if err := writeText(&text, document()); err != nil {
		t.Fatal(err)
	}

	name := regexp.MustCompile(`\bsaltern_[a-z_]+`)
	var served []string
	for _, l := range strings.Split(text.String(), "\n") {
		if rest, ok := strings.CutPrefix(l, "# TYPE "); ok {
			served = append(served, strings.Fields(rest)[0])
		}
	}

	dir := filepath.Join("..", "..", "docs", "monitoring")
	for _, file := range []string{"README.md", "alerts.yaml", "alerts_test.yaml", "dashboard.json"} {
		b, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}

		for _, n := range name.FindAllString(string(b), -1) {
			if !slices.Contains(served, n) && !strings.HasPrefix(n, "saltern_lb_") {
				t.Errorf("%s names %s, which is not served", file, n)
			}
		}

		for _, n := range served {
			if file == "README.md" && !strings.Contains(string(b), "`"+n+"`") {
				t.Errorf("%s does not name %s", file, n)
			}
		}
	}
}
