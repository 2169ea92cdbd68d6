package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// promtool is Prometheus' own, from the PATH or from where make deps puts it.
func promtool() (string, error) {
	if path, err := exec.LookPath("promtool"); err == nil {
		return path, nil
	}
	cache := os.Getenv("SALTERN_CACHE")
	if cache == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		cache = filepath.Join(dir, "saltern")
	}
	return exec.LookPath(filepath.Join(cache, "promtool", "promtool"))
}

// TestAlerts has Prometheus check the alert rules, and run their tests.
func TestAlerts(t *testing.T) {
	tool, err := promtool()
	if err != nil {
		t.Skipf("SKIPPED: the alert rules are NOT CHECKED: %v: make deps brings promtool", err)
	}
	for _, args := range [][]string{{"check", "rules", "alerts.yaml"}, {"test", "rules", "alerts_test.yaml"}} {
		cmd := exec.Command(tool, args...)
		cmd.Dir = "../../docs/monitoring"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}

// TestAlertsAreTested: each alert has a test that it fires.
func TestAlertsAreTested(t *testing.T) {
	names := func(file, pattern string) (out []string) {
		b, err := os.ReadFile("../../docs/monitoring/" + file)
		if err != nil {
			t.Fatal(err)
		}

		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(b), -1) {
			out = append(out, m[1])
		}

		slices.Sort(out)
		return slices.Compact(out)
	}

	rules := names("alerts.yaml", `- alert: (\w+)`)
	tested := names("alerts_test.yaml", `(?s)alertname: (\w+)\n\s+eval_time: \w+\n\s+exp_alerts:\n\s+- exp_labels`)
	if len(rules) < 8 {
		t.Fatalf("only %v", rules)
	}

	for _, r := range rules {
		if !slices.Contains(tested, r) {
			t.Errorf("no test in alerts_test.yaml has %s fire", r)
		}
	}
}
