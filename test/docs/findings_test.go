package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// lastFinding is the number of the last finding of the audit before release.
const lastFinding = 28

var (
	findingTest = regexp.MustCompile(`(?m)^func (TestFinding([0-9]{2})\w*)\(\w+ \*testing\.T\)`)
	findingRow  = regexp.MustCompile("(?m)^\\| ([0-9]{2}) \\| [^|]+ \\| `([^`|]+)` \\|$")
)

// findings lists the tests of each finding as "folder name".
func findings(t *testing.T) map[string][]string { return numbered(t, findingTest) }

// numbered lists the tests that re finds, by their number, as "folder name".
// re's groups are the name and the number.
func numbered(t *testing.T, re *regexp.Regexp) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && path != root && strings.HasPrefix(e.Name(), "."):
			return filepath.SkipDir
		case e.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}

		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}

		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}

		for _, m := range re.FindAllStringSubmatch(string(text), -1) {
			out[m[2]] = append(out[m[2]], filepath.ToSlash(dir)+" "+m[1])
		}

		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	return out
}

// TestFindingsHaveTests: each finding of the audit has a test that is called
// after it, and CONTRIBUTING.md says in which package.
func TestFindingsHaveTests(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}

	rows := map[string]string{}
	for _, m := range findingRow.FindAllStringSubmatch(string(text), -1) {
		if _, twice := rows[m[1]]; twice {
			t.Errorf("CONTRIBUTING.md has two rows for finding %s", m[1])
		}
		rows[m[1]] = m[2]
	}

	tests := findings(t)
	var missing []string
	for n := 1; n <= lastFinding; n++ {
		number := fmt.Sprintf("%02d", n)
		found := tests[number]
		if len(found) == 0 {
			missing = append(missing, number)
			continue
		}

		slices.Sort(found)
		first, _, _ := strings.Cut(found[0], " ")
		row, ok := rows[number]
		switch {
		case !ok:
			t.Errorf("CONTRIBUTING.md has no row for finding %s, whose tests are %s: | %s | … | `%s` |",
				number, strings.Join(found, ", "), number, first)
		case !slices.ContainsFunc(found, func(f string) bool { return strings.HasPrefix(f, row+" ") }):
			t.Errorf("finding %s has no test in %s, but %s", number, row, strings.Join(found, ", "))
		}
	}

	if len(missing) > 0 {
		t.Errorf("no test named TestFindingNN for the findings %s", strings.Join(missing, ", "))
	}

	for number := range tests {
		if number < "01" || number > fmt.Sprintf("%02d", lastFinding) {
			t.Errorf("%s: there is no finding %s", strings.Join(tests[number], ", "), number)
		}
	}
}

// TestSecurityNamesTests: each test that SECURITY.md names is there.
func TestSecurityNamesTests(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "SECURITY.md"))
	if err != nil {
		t.Fatal(err)
	}

	have := map[string]bool{}
	for _, list := range findings(t) {
		for _, x := range list {
			_, name, _ := strings.Cut(x, " ")
			have[name] = true
		}
	}

	named := regexp.MustCompile(`TestFinding[0-9]{2}\w*`).FindAllString(string(text), -1)
	for _, n := range named {
		if !have[n] {
			t.Errorf("SECURITY.md names %s, which is not there", n)
		}
	}

	if len(named) < lastFinding {
		t.Errorf("only %d tests are named", len(named))
	}
}
