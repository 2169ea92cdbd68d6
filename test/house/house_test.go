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
		{"structs that hold a *Master", 0, 0, holders},
		{"decisions by the text of an error", 0, 0,
			func(all []source) int { return matches(all, `strings\.Contains\(err\b`) }},
		// Only there a socket file that was removed is created again.
		{"places that call net.ListenUnix", 1, 1, func(all []source) int {
			return matches(all, `net\.ListenUnix\(`)
		}},
		{"places that read SO_PEERCRED", 1, 1, func(all []source) int { return matches(all, `\.SO_PEERCRED`) }},
		{"functions that sync a folder", 1, 1,
			func(all []source) int { return matches(all, `(?m)^func (\(.*\) )?[sS]ync(Dir|Folder)\(`) }},
		{"log calls with the key err", 0, 0,
			func(all []source) int { return matches(all, `\.(Debug|Info|Warn|Error|With)\(.*"err",`) }},
		{"comments that tell whether", 0, 0, func(all []source) int { return matches(all, `// .*\btells whether\b`) }},
		{"places that write a float as Python does", 1, 1,
			func(all []source) int { return matches(all, `FormatFloat\(.*'e'|1e16`) }},
		{"functions that are Python's bool", 1, 1, func(all []source) int {
			return matches(all, `(?m)^func (\(.*\) )?([tT]ruth[a-z]*|empty)\(\w+ any\) bool`)
		}},
		{"writers of JSON as Python's", 1, 1, func(all []source) int { return matches(all, `utf16\.AppendRune`) }},
		{"packages that import msgpack", 11, 11, func(all []source) int {
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

// maxStatements bounds a function.
const maxStatements = 50

// undivided are the functions that are longer still; each is to be divided.
var undivided = []string{}

// TestFunctions: no function has more statements than fit a screen, whatever the lines
// that they take.
func TestFunctions(t *testing.T) {
	all, _ := production(t)
	for _, s := range all {
		for _, d := range s.File.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}

			n := statements(f.Body)
			known := slices.Contains(undivided, s.Path+" "+f.Name.Name)
			switch {
			case n > maxStatements && !known:
				t.Errorf("%s: %s has %d statements, %d are the most", s.Path, f.Name.Name, n, maxStatements)
			case n <= maxStatements && known:
				t.Errorf("%s: %s has %d statements: it is not among the undivided any more", s.Path, f.Name.Name, n)
			}
		}
	}
}

// maxCallbacks bounds the function fields of a struct: more of them are an interface, or a part
// that is missing.
const maxCallbacks = 4

// declarative are the structs with more. Each of their values is a row that declares something, most
// of whose functions are left out.
var declarative = []string{
	"cmd/applianced/answering.go answering", // a verb of the command line
	"tui/formpage.go formPage",              // a page of the wizard
}

// TestCallbacks: what a part uses of another one comes in as the part or as an interface, not as one
// function after another.
func TestCallbacks(t *testing.T) {
	all, _ := production(t)
	for _, s := range all {
		ast.Inspect(s.File, func(x ast.Node) bool {
			spec, ok := x.(*ast.TypeSpec)
			if !ok {
				return true
			}
			fields, ok := spec.Type.(*ast.StructType)
			if !ok {
				return true
			}

			n := callbacks(fields)
			known := slices.Contains(declarative, s.Path+" "+spec.Name.Name)
			switch {
			case n > maxCallbacks && !known:
				t.Errorf("%s: %s has %d function fields, %d are the most", s.Path, spec.Name.Name, n, maxCallbacks)
			case n <= maxCallbacks && known:
				t.Errorf("%s: %s has %d function fields: take it off the list", s.Path, spec.Name.Name, n)
			}
			return true
		})
	}
}

// callbacks counts the fields of a struct that are functions.
func callbacks(fields *ast.StructType) int {
	n := 0
	for _, field := range fields.Fields.List {
		if _, ok := field.Type.(*ast.FuncType); ok {
			n += max(1, len(field.Names))
		}
	}
	return n
}

// statements counts those of a function, nested ones and those of literals included.
func statements(body *ast.BlockStmt) int {
	n := 0
	ast.Inspect(body, func(x ast.Node) bool {
		switch x.(type) {
		case *ast.BlockStmt, *ast.CaseClause, *ast.CommClause, *ast.EmptyStmt, *ast.LabeledStmt:
		case ast.Stmt:
			n++
		}
		return true
	})
	return n
}

func line(set *token.FileSet, p token.Pos) int { return set.Position(p).Line }

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
