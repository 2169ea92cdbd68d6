package house

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// measure is one number of the house.
type measure struct {
	name  string
	limit int // today's number: lower it when the number has gone down
	goal  int // where it shall go
	of    func(all []source) int
}

func measures() []measure {
	return []measure{
		{"methods of Supervisor, Life and Member", 45, 45, func(all []source) int {
			return methods(all, "supervisor", "Supervisor") + methods(all, "supervisor/internal/life", "Life") + methods(all, "supervisor/internal/member", "Member")
		}},
		{"lines of supervisor without its folders", 820, 820, func(all []source) int { return lines(all, "supervisor") }},
		{"lines of master without its folders", 890, 1000, func(all []source) int { return lines(all, "master") }},
		{"methods of Master", 25, 25, func(all []source) int { return methods(all, "master", "Master") }},
		{"structs that hold a *Master", 0, 0, holders},
		{"decisions by the text of an error", 0, 0, func(all []source) int { return matches(all, `strings\.Contains\(err\b`) }},
		{"places that read SO_PEERCRED", 1, 1, func(all []source) int { return matches(all, `\.SO_PEERCRED`) }},
		{"functions that sync a folder", 1, 1, func(all []source) int { return matches(all, `(?m)^func (\(.*\) )?[sS]ync(Dir|Folder)\(`) }},
		{"log calls with the key err", 0, 0, func(all []source) int { return matches(all, `\.(Debug|Info|Warn|Error|With)\(.*"err",`) }},
		{"comments that tell whether", 0, 0, func(all []source) int { return matches(all, `// .*\btells whether\b`) }},
		{"places that write a float as Python does", 1, 1, func(all []source) int { return matches(all, `FormatFloat\(.*'e'|1e16`) }},
		{"functions that are Python's bool", 1, 1, func(all []source) int {
			return matches(all, `(?m)^func (\(.*\) )?([tT]ruth[a-z]*|empty)\(\w+ any\) bool`)
		}},
		{"writers of JSON as Python's", 1, 1, func(all []source) int { return matches(all, `utf16\.AppendRune`) }},
		{"packages that import msgpack", 10, 10, func(all []source) int {
			return packages(all, `"saltern/master/msgpack"`)
		}},
	}
}

// TestMeasures fails when a number has grown, and asks to lower the limit when
// it has gone down by a tenth.
func TestMeasures(t *testing.T) {
	all, _ := production(t)
	for _, m := range measures() {
		n := m.of(all)
		t.Logf("%5d (goal %d)  %s", n, m.goal, m.name)
		switch {
		case n > m.limit:
			t.Errorf("%s: %d, no more than %d", m.name, n, m.limit)
		case n < m.limit-m.limit/10-5:
			t.Errorf("%s: %d now: write that as the limit instead of %d", m.name, n, m.limit)
		}
	}
}

// TestSizes: no function over 80 lines, and half of all files below 150.
func TestSizes(t *testing.T) {
	all, set := production(t)
	var sizes []int
	for _, s := range all {
		sizes = append(sizes, s.lines())
		for _, d := range s.File.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			if n := line(set, f.End()) - line(set, f.Pos()) + 1; n > 80 {
				t.Errorf("%s: %s has %d lines", s.Path, f.Name.Name, n)
			}
		}
	}
	slices.Sort(sizes)
	if m := sizes[len(sizes)/2]; m >= 150 {
		t.Errorf("the median file has %d lines", m)
	}
}

func line(set *token.FileSet, p token.Pos) int { return set.Position(p).Line }

func lines(all []source, dir string) int {
	n := 0
	for _, s := range all {
		if s.dir() == dir {
			n += s.lines()
		}
	}
	return n
}

func methods(all []source, dir string, types ...string) int {
	n := 0
	for _, s := range all {
		if s.dir() != dir {
			continue
		}
		for _, d := range s.File.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && slices.Contains(types, receiver(f)) {
				n++
			}
		}
	}
	return n
}

// holders counts struct fields of type *Master in the package master.
func holders(all []source) int {
	n := 0
	for _, s := range all {
		if s.dir() != "master" {
			continue
		}
		ast.Inspect(s.File, func(x ast.Node) bool {
			st, ok := x.(*ast.StructType)
			if !ok {
				return true
			}
			for _, f := range st.Fields.List {
				if _, star := f.Type.(*ast.StarExpr); star && pointed(f.Type) == "Master" {
					n++
				}
			}
			return true
		})
	}
	return n
}

// matches counts what a pattern finds.
func matches(all []source, pattern string) int {
	re, n := regexp.MustCompile(pattern), 0
	for _, s := range all {
		n += len(re.FindAllString(s.Text, -1))
	}
	return n
}

// packages counts the folders that have a text in a file.
func packages(all []source, text string) int {
	var dirs []string
	for _, s := range all {
		if strings.Contains(s.Text, text) && !slices.Contains(dirs, s.dir()) {
			dirs = append(dirs, s.dir())
		}
	}
	return len(dirs)
}
