package notes

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestCheck(t *testing.T) {
	for v, ok := range map[string]bool{
		"1.2.3": true, "0.1.0": true, "10.20.30": true, "1.2.3-rc.1": true, "1.2.3-beta.12": true, "1.2.3-alpha.0": true,
		"": false, "v1.2.3": false, "1.2": false, "1.2.3.4": false, "01.2.3": false, "1.02.3": false, "1.2.3-rc1": false, "1.2.3-rc.01": false,
		"1.2.3-pre.1": false, "1.2.3+5": false, "1.2.3-5-gabc1234": false, "1.2.3\n": false, "1.2.3 ": false, "668c88d": false, "1.2.3-rc.1-dirty": false,
		"9999999999.0.0": false, "../1.2.3": false,
	} {
		if err := Check(v); (err == nil) != ok {
			t.Errorf("%q: %v", v, err)
		}
	}
}

const changelog = `# Changelog

What an administrator notices.

## Unreleased

- new

## [1.2.3] (2026-11-24)

### Added

- a thing, as
  ` + "```" + `
## no heading
  ` + "```" + `

### Fixed

- another

## 1.2.0 - 2026-10-01

- old

## 1.1.0
`

func TestChanges(t *testing.T) {
	for _, c := range []struct {
		version string
		trial   bool
		want    string // all of it, or a part of the error
		err     bool
	}{
		{"1.2.0", false, "- old", false},
		{"1.2.3", false, "### Added\n\n- a thing, as\n  ```\n## no heading\n  ```\n\n### Fixed\n\n- another", false},
		{"1.2.3-rc.1", false, "- new", false},
		{"1.3.0", true, "- new", false},
		{"1.3.0", false, `call the section "## Unreleased" "## 1.3.0"`, true},
		{"1.2", false, "CHANGELOG.md", true},
		{"1.1.0", false, "nothing below", true}, // an empty section
	} {
		got, err := Changes(changelog, c.version, c.trial)
		if c.err && (err == nil || !strings.Contains(err.Error(), c.want)) || !c.err && (err != nil || got != c.want) {
			t.Errorf("%s: %q %v, want %q", c.version, got, err, c.want)
		}
	}
}

func TestText(t *testing.T) {
	r := Release{
		Version:       "1.2.3",
		Commit:        "abc1234",
		Time:          time.Date(2026, 11, 24, 23, 0, 0, 0, time.UTC),
		Go:            "go1.26.8",
		Changelog:     changelog,
		Compatibility: "# C\n\n## Releases of Salt\n\n3008\n\n## The measure\n\nfigures\n",
	}

	b, err := r.Text()
	if err != nil {
		t.Fatal(err)
	}

	for _, want := range []string{"# Saltern 1.2.3\n", "abc1234 of 24 November 2026", "go1.26.8",
		"\n- another\n", "## Releases of Salt\n\n3008\n"} {
		if !strings.Contains(string(b), want) {
			t.Errorf("no %q in\n%s", want, b)
		}
	}

	for _, not := range []string{"- old", "- new", "figures", "trial"} {
		if strings.Contains(string(b), not) {
			t.Errorf("%q is in\n%s", not, b)
		}
	}

	r.Trial = true
	if b, err := r.Text(); err != nil || !strings.Contains(string(b), "**A trial, no release.**") {
		t.Errorf("a trial: %v\n%s", err, b)
	}

	r.Compatibility = ""
	if _, err := r.Text(); err == nil || !strings.Contains(err.Error(), "docs/compatibility.md") {
		t.Errorf("without a statement: %v", err)
	}
}

// TestStatement: the documents of this tree have what the notes repeat, and it names
// the releases of Salt that the tests have.
func TestStatement(t *testing.T) {
	read := func(path string) string {
		b, err := os.ReadFile("../../../" + path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}

	tested := strings.Fields(regexp.MustCompile(`(?m)^SALT +:= (.*)$`).FindStringSubmatch(read("Makefile"))[1])
	section, err := Section(read("docs/compatibility.md"), compatibility)
	if err != nil {
		t.Fatal(err)
	}

	var named []string
	for _, v := range regexp.MustCompile(`\b300[0-9]\.[0-9]+\b`).FindAllString(section, -1) {
		if !slices.Contains(named, v) {
			named = append(named, v)
		}
	}

	slices.Sort(named)
	if !slices.Equal(named, tested) {
		t.Errorf("docs/compatibility.md names %q, the Makefile tests %q", named, tested)
	}

	if _, err := Section(read("CHANGELOG.md"), unreleased); err != nil {
		t.Errorf("CHANGELOG.md: %v", err)
	}
}
