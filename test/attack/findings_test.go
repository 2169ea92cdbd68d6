//go:build attack

package attack

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"saltern/test/lab"
	"saltern/test/source"
)

// findings are the numbers of the audit.
const findings = 28

// findingTests runs the tests that are called after findings, of all packages,
// and prints a line for each finding.
func findingTests(t *testing.T) {
	cmd := exec.Command("go", "test", "-json", "-count=1", "-run", "^TestFinding", "./...")
	cmd.Dir = source.Root(t)
	cmd.Env = append(os.Environ(), "SALTERN_PYTHON="+filepath.Join(lab.Venv(t, lab.Newest), "python"))
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}

	if err != nil {
		t.Fatal(err)
	}

	ran := map[string][]string{} // number → tests
	bad, skipped := map[string][]string{}, map[string][]string{}
	var broken []string
	name := regexp.MustCompile(`^TestFinding(\d\d)\w*$`)
	for in := bufio.NewReaderSize(out, 1<<20); ; {
		text, err := in.ReadBytes('\n')
		if err != nil {
			break
		}

		var e struct{ Action, Package, Test string }
		if json.Unmarshal(text, &e) != nil || e.Action != "pass" && e.Action != "fail" && e.Action != "skip" {
			continue
		}

		m := name.FindStringSubmatch(e.Test)
		switch {
		case m == nil && e.Test == "" && e.Action == "fail":
			broken = append(broken, strings.TrimPrefix(e.Package, "saltern/"))
		case m == nil:
		case e.Action == "pass":
			ran[m[1]] = append(ran[m[1]], e.Test)
		case e.Action == "skip":
			skipped[m[1]] = append(skipped[m[1]], e.Test+" (skipped)")
		default:
			ran[m[1]] = append(ran[m[1]], e.Test)
			bad[m[1]] = append(bad[m[1]], e.Test+" failed")
		}
	}

	_ = cmd.Wait() // what failed is known from the events
	for n := 1; n <= findings; n++ {
		key := fmt.Sprintf("%02d", n)
		faults := bad[key]
		if len(ran[key]) == 0 {
			faults = append(faults, "no test TestFinding"+key+" ran")
		}
		slices.Sort(ran[key])
		line(t, fmt.Sprint(n), "its tests", strings.Join(append(ran[key], skipped[key]...), " "), faults...)
	}

	if len(broken) > 0 && len(bad) == 0 {
		line(t, "-", "packages", strings.Join(broken, " "), "did not pass")
	}

	for key := range maps.Keys(ran) {
		if key < "01" || key > fmt.Sprintf("%02d", findings) {
			t.Errorf("TestFinding%s is of no finding", key)
		}
	}
}
