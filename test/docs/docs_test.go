// Package docs holds the documents to what is there: links lead somewhere,
// and targets of make exist.
package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

const root = "../.."

// results are documents that come out of measurements on a large machine; a
// checkout may be without them for a while.
var results = map[string]bool{"docs/compatibility.md": true, "docs/performance.md": true}

func documents(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/tutorials/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}

		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}

			name, err := filepath.Rel(root, f)
			if err != nil {
				t.Fatal(err)
			}

			out[name] = string(b)
		}
	}

	if len(out) < 8 {
		t.Fatalf("only %d documents found", len(out))
	}

	return out
}

var (
	fence   = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.*?) *$`)
	port    = regexp.MustCompile(`(?m)dport (\{[^}]*\}|[0-9][0-9-]*)|Port: *([0-9]{4,5})`)
	target  = regexp.MustCompile("(?m)(?:`|^    |^)make ([a-z][a-z0-9-]*)")
)

// anchor is what GitHub makes of a heading.
func anchor(text string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(text) {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			b.WriteRune(r)
		case r == ' ':
			b.WriteByte('-')
		}
	}
	return b.String()
}

func anchors(text string) map[string]bool {
	out := map[string]bool{"": true}
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		out[anchor(m[1])] = true
	}
	return out
}

func TestLinks(t *testing.T) {
	docs := documents(t)
	n := 0
	for name, text := range docs {
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}

			n++
			file, frag, _ := strings.Cut(m[1], "#")
			to := name
			if file != "" {
				to = filepath.Join(filepath.Dir(name), file)
			}

			if _, err := os.Stat(filepath.Join(root, to)); err != nil && !results[to] {
				t.Errorf("%s links to %s, which is not there", name, m[1])
				continue
			}

			if other, ok := docs[to]; ok && !anchors(other)[frag] {
				t.Errorf("%s links to %s; there is no such heading", name, m[1])
			}
		}
	}

	if n < 20 {
		t.Errorf("only %d links found", n)
	}
}

// TestWhere: the functions that docs/flows.md names are in the files that it names.
func TestWhere(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, "docs/flows.md"))
	if err != nil {
		t.Fatal(err)
	}

	n := 0
	for _, m := range regexp.MustCompile("`(\\w+)` in \\[([^]]+)\\]").FindAllStringSubmatch(string(b), -1) {
		n++
		code, err := os.ReadFile(filepath.Join(root, m[2]))
		if err != nil {
			t.Error(err)
		} else if !regexp.MustCompile(`(?m)^func (\([^)]*\) )?` + m[1] + `\(`).Match(code) {
			t.Errorf("%s has no function %s", m[2], m[1])
		}
	}

	if n < 10 {
		t.Errorf("only %d functions found", n)
	}
}

// TestParts: no part of the tree is described twice, or not there.
func TestParts(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, "docs/architecture.md"))
	if err != nil {
		t.Fatal(err)
	}

	_, parts, found := strings.Cut(string(b), "## Where things live")
	parts, _, end := strings.Cut(parts, "\n## ")
	if !found || !end {
		t.Fatal("docs/architecture.md has no section of where things live")
	}

	seen := map[string]bool{}
	for _, row := range regexp.MustCompile(`(?m)^\| (`+"`.*?`"+`) \|`).FindAllStringSubmatch(parts, -1) {
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			if seen[m[1]] {
				t.Errorf("%s has two rows", m[1])
			}
			seen[m[1]] = true
			if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
				t.Error(err)
			}
		}
	}

	if len(seen) < 50 {
		t.Errorf("only %d parts found", len(seen))
	}
}

func TestMakeTargets(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}

	n := 0
	for name, text := range documents(t) {
		for _, m := range target.FindAllStringSubmatch(text, -1) {
			n++
			if !strings.Contains(string(b), "\n"+m[1]+":") {
				t.Errorf("%s names make %s, which the Makefile does not have", name, m[1])
			}
		}
	}

	if n < 5 {
		t.Errorf("only %d targets found", n)
	}
}

func TestAnchor(t *testing.T) {
	for text, want := range map[string]string{
		"Differences from Salt 3008.3": "differences-from-salt-30083", "The load balancer's file": "the-load-balancers-file",
		"appliance.yaml": "applianceyaml", "A one-node appliance": "a-one-node-appliance",
	} {
		if got := anchor(text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// TestPorts: every port that the image's firewall lets in, and every port that a node
// has by default, is in the table of docs/network.md.
func TestPorts(t *testing.T) {
	read := func(name string) string {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}

	_, table, found := strings.Cut(read("docs/network.md"), "## Ports")
	table, _, ended := strings.Cut(table, "\n## ")
	if !found || !ended {
		t.Fatal("docs/network.md has no section Ports with one behind it")
	}

	n := 0
	for _, source := range []string{read("image/profile/overlay/usr/lib/saltern/nftables.conf"),
		read("supervisor/settings/settings.go")} {
		for _, m := range port.FindAllStringSubmatch(source, -1) {
			for p := range strings.FieldsFuncSeq(m[1]+m[2],
				func(r rune) bool { return r == ',' || r == ' ' || r == '{' || r == '}' }) {
				n++
				if !strings.Contains(table, strings.Replace(p, "-", "–", 1)) {
					t.Errorf("docs/network.md does not list port %s", p)
				}
			}
		}
	}

	if n < 15 {
		t.Errorf("only %d ports found", n)
	}
}

// TestSite: every page has its place in the site's navigation.
func TestSite(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, "mkdocs.yml"))
	if err != nil {
		t.Fatal(err)
	}
	for name := range documents(t) {
		if !strings.Contains(string(b), ": "+filepath.ToSlash(name)+"\n") {
			t.Errorf("mkdocs.yml has no place for %s", name)
		}
	}
}
