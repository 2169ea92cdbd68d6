package conf

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// own is the path of this package.
const own = "saltern/master/conf"

// listed is what `go list -json` says of a package.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles, Imports        []string
}

// TestFieldsAreRead: a program reads each field of Master. Otherwise an option would look as if it
// had an effect.
func TestFieldsAreRead(t *testing.T) {
	readers := []string{own}
	for path, p := range list(t, "saltern/...") {
		if slices.Contains(p.Imports, own) {
			readers = append(readers, path)
		}
	}

	if len(readers) < 4 {
		t.Fatalf("only %v read the configuration", readers)
	}

	all := list(t, append([]string{"-export", "-deps"}, readers...)...)
	imports := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(all[path].Export)
	})
	read := map[string]bool{}
	for _, path := range readers {
		fieldsRead(t, all[path], imports, read)
	}

	for field := range optionFields() {
		if !read[field.Name] {
			t.Errorf("no program reads %s", field.Name)
		}
	}
}

// optionFields yields the fields of Master with their options.
func optionFields() iter.Seq2[reflect.StructField, string] {
	return func(yield func(reflect.StructField, string) bool) {
		m := reflect.TypeFor[Master]()
		for i := range m.NumField() {
			if m.Field(i).Anonymous && !yieldGroup(m.Field(i).Type, "", yield) {
				return
			}
		}
	}
}

// yieldGroup yields the fields of a group whose options begin with prefix.
func yieldGroup(group reflect.Type, prefix string, yield func(reflect.StructField, string) bool) bool {
	for i := range group.NumField() {
		field := group.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("conf"), ",")
		if field.Type == reflect.TypeFor[GitRemotes]() {
			if !yieldGroup(field.Type, prefix+name, yield) {
				return false
			}
			continue
		}
		if name != "" {
			name = prefix + name
		}
		if !yield(field, name) {
			return false
		}
	}
	return true
}

// list asks the go command for packages, by their paths.
func list(t *testing.T, args ...string) map[string]listed {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Dir,Export,GoFiles,Imports"}, args...)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // else all is compiled once more
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("list packages: %v\n%s", err, &stderr)
	}

	all := map[string]listed{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all[p.ImportPath] = p
	}
}

// fieldsRead notes the fields of configurations that a package reads.
func fieldsRead(t *testing.T, p listed, imports types.Importer, read map[string]bool) {
	t.Helper()
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}

	info := &types.Info{Selections: map[*ast.SelectorExpr]*types.Selection{}}
	if _, err := (&types.Config{Importer: imports}).Check(p.ImportPath, fset, files, info); err != nil {
		t.Fatal(err)
	}

	written := map[ast.Expr]bool{}
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			if a, ok := n.(*ast.AssignStmt); ok && a.Tok == token.ASSIGN {
				for _, e := range a.Lhs {
					written[e] = true
				}
			}
			return true
		})
	}

	for e, s := range info.Selections {
		if s.Kind() != types.FieldVal || s.Obj().Pkg().Path() != own || written[e] {
			continue
		}

		recv := s.Recv()
		if ptr, ok := recv.(*types.Pointer); ok {
			recv = ptr.Elem()
		}

		switch named, _ := recv.(*types.Named); {
		case named == nil, slices.Contains([]string{"Loader", "Fault", "Note"}, named.Obj().Name()):
		default:
			read[s.Obj().Name()] = true
		}
	}
}
