package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../.."

// source is a Go file of production: no test, nothing below test/ or of the package mastertest.
type source struct {
	Path string // from the root, with slashes
	Text string
	File *ast.File
}

// dir is the file's folder.
func (s source) dir() string { return filepath.ToSlash(filepath.Dir(s.Path)) }

// production parses all of it.
func production(t *testing.T) ([]source, *token.FileSet) {
	t.Helper()
	set := token.NewFileSet()
	var all []source
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}

		rel = filepath.ToSlash(rel)
		switch {
		case rel == "master/internal/mastertest":
			return filepath.SkipDir
		case e.IsDir() && (rel == "test" || rel != "." && strings.HasPrefix(e.Name(), ".") || e.Name() == "testdata"):
			return filepath.SkipDir
		case e.IsDir() || !strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go"):
			return nil
		}

		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}

		f, err := parser.ParseFile(set, rel, text, parser.ParseComments)
		if err != nil {
			return err
		}

		all = append(all, source{rel, string(text), f})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 300 {
		t.Fatalf("only %d files found", len(all))
	}

	return all, set
}

// pointed is the name of a type of the same package, without its star.
func pointed(e ast.Expr) string {
	if star, ok := e.(*ast.StarExpr); ok {
		e = star.X
	}
	if id, ok := e.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}
