// Package notes writes the notes of a release. It checks that a release may have its version, and
// takes the text from CHANGELOG.md and docs/compatibility.md.
package notes

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// version matches a semantic version (semver.org) without build metadata. Of pre-releases it
// accepts only names that package managers sort before the release.
var version = regexp.MustCompile(`^(0|[1-9][0-9]{0,8})(\.(0|[1-9][0-9]{0,8})){2}(-(alpha|beta|rc)\.(0|[1-9][0-9]{0,8}))?$`)

// Check returns an error unless a release may have this version.
func Check(v string) error {
	if version.MatchString(v) {
		return nil
	}
	return fmt.Errorf("VERSION=%s: a release is called 1.2.3 or 1.2.3-rc.1 (alpha, beta, rc)", v)
}

// unreleased is the heading of changes that are in no release yet.
const unreleased = "Unreleased"

// errNone means that a section is missing or empty.
var errNone = errors.New("there is nothing below this heading")

// Section returns the text below the heading of the second level whose first word is name or
// [name], up to the next heading of that level.
func Section(text, name string) (string, error) {
	var out []string
	in, fenced := false, false
	for line := range strings.Lines(text) {
		fenced = fenced != strings.HasPrefix(strings.TrimSpace(line), "```")
		if head, ok := strings.CutPrefix(line, "## "); ok && !fenced {
			if in {
				break
			}
			in = headed(head, name)
			continue
		}

		if in {
			out = append(out, line)
		}
	}

	if body := strings.TrimSpace(strings.Join(out, "")); body != "" {
		return body, nil
	}

	return "", fmt.Errorf("## %s: %w", name, errNone)
}

// headed reports whether a heading is the name, or the name as a version followed by a date.
func headed(head, name string) bool {
	head = strings.TrimSpace(head)
	if head == name {
		return true
	}
	words := strings.Fields(head)
	return len(words) > 0 && strings.Trim(words[0], "[]") == name
}

// Changes returns the section of CHANGELOG.md about a version. A pre-release or a trial build without
// a section gets the unreleased changes.
func Changes(changelog, v string, trial bool) (string, error) {
	body, err := Section(changelog, v)
	if errors.Is(err, errNone) && (trial || strings.Contains(v, "-")) {
		body, err = Section(changelog, unreleased)
	}
	if err != nil {
		return "", fmt.Errorf("CHANGELOG.md: %w; call the section %q %q, with the date behind it, and commit that",
			err, "## "+unreleased, "## "+v)
	}
	return body, nil
}

// Release holds the facts of the notes.
type Release struct {
	Version       string
	Commit        string // commit in git; in a trial it may end with -dirty
	Time          time.Time
	Go            string // the version of Go that built the programs
	Changelog     string // the text of CHANGELOG.md
	Compatibility string // the text of docs/compatibility.md
	Trial         bool
}

// compatibility is the heading in docs/compatibility.md that the notes repeat.
const compatibility = "Releases of Salt"

// Text returns the notes, in Markdown.
func (r Release) Text() ([]byte, error) {
	if err := Check(r.Version); err != nil {
		return nil, err
	}

	changes, err := Changes(r.Changelog, r.Version, r.Trial)
	if err != nil {
		return nil, err
	}

	serves, err := Section(r.Compatibility, compatibility)
	if err != nil {
		return nil, fmt.Errorf("docs/compatibility.md: %w", err)
	}

	var b bytes.Buffer
	fmt.Fprintf(&b, "# Saltern %s\n\nFrom commit %s of %s, built with %s. Links lead into the source of this "+
		"version;\n"+
		"docs/release.md says how to verify the files, docs/install.md how to install them.\n",
		r.Version, r.Commit, r.Time.UTC().Format("2 January 2006"), r.Go)

	if r.Trial {
		b.WriteString("\n**A trial, no release.**\n")
	}

	fmt.Fprintf(&b, "\n## Changes\n\n%s\n\n## %s\n\n%s\n", changes, compatibility, serves)
	return b.Bytes(), nil
}
