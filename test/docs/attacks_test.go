package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	attackTest = regexp.MustCompile(`(?m)^func (TestAttack([0-9]{2})\w*)\(\w+ \*testing\.T\)`)
	attackRow  = regexp.MustCompile(`(?m)^\| ([0-9]{2}) \|.*\| ([^|]+) \|$`)
	folder     = regexp.MustCompile("`([a-z/]+)`")
)

// TestAttacksHaveRows: docs/attacks.md has a row for each TestAttackNN and
// names its folder, or one above it; each row has tests where it says.
func TestAttacksHaveRows(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/attacks.md"))
	if err != nil {
		t.Fatal(err)
	}

	tests := numbered(t, attackTest)
	rows := attackRow.FindAllStringSubmatch(string(text), -1)
	if len(rows) < 34 {
		t.Errorf("docs/attacks.md has %d rows only", len(rows))
	}

	for _, row := range rows {
		number, found := row[1], tests[row[1]]
		delete(tests, number)
		var folders []string
		for _, m := range folder.FindAllStringSubmatch(row[2], -1) {
			folders = append(folders, m[1]+"/")
			if !slices.ContainsFunc(found, func(test string) bool { return strings.HasPrefix(at(test), m[1]+"/") }) {
				t.Errorf("row %s: no TestAttack%s is in or below %s", number, number, m[1])
			}
		}

		for _, test := range found {
			if !slices.ContainsFunc(folders, func(f string) bool { return strings.HasPrefix(at(test), f) }) {
				t.Errorf("row %s does not say that a test is in %s", number, test)
			}
		}
	}

	for number, found := range tests {
		t.Errorf("docs/attacks.md has no row %s, or two, for %s", number, strings.Join(found, ", "))
	}
}

// at is the folder of a test, with a slash at its end.
func at(test string) string {
	dir, _, _ := strings.Cut(test, " ")
	return dir + "/"
}
