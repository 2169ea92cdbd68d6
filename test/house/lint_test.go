package house

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	errorName = regexp.MustCompile(`^([a-z]?err|err[A-Z0-9]\w*|\w+Err)$`)
	logKey    = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	gerund    = regexp.MustCompile(`^[a-z]+ing\b`)
	nouns     = []string{"nothing", "something", "missing", "string", "existing", "rendering", "greeting"}
)

// TestErrorTexts: an error inside another one is wrapped, or its text is meant; what
// was being done is said in the imperative, in lower case.
func TestErrorTexts(t *testing.T) {
	all, set := production(t)
	each(all, func(s source, call *ast.CallExpr) {
		if !isCall(call, "fmt", "Errorf") && !isCall(call, "errors", "New") || len(call.Args) == 0 {
			return
		}

		format, ok := text(call.Args[0])
		if !ok {
			return
		}

		at := s.Path + ":" + strconv.Itoa(line(set, call.Pos()))
		for _, a := range call.Args[1:] {
			if id, ok := a.(*ast.Ident); ok && errorName.MatchString(id.Name) && !strings.Contains(format, "%w") {
				t.Errorf("%s: %q does not wrap %s", at, format, id.Name)
			}
		}

		if word := gerund.FindString(format); word != "" && !slices.Contains(nouns, word) {
			t.Errorf("%s: %q: say what was being done in the imperative", at, format)
		}
	})
}

// TestLogKeys: keys are constants in lower case, and an error's is error.
func TestLogKeys(t *testing.T) {
	all, set := production(t)
	each(all, func(s source, call *ast.CallExpr) {
		f, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !slices.Contains([]string{"Debug", "Info", "Warn", "Error"}, f.Sel.Name) || len(call.Args) < 3 {
			return
		}

		if _, ok := text(call.Args[0]); !ok {
			return
		}

		at := s.Path + ":" + strconv.Itoa(line(set, call.Pos()))
		for i := 1; i+1 < len(call.Args); i += 2 {
			key, ok := text(call.Args[i])
			if !ok {
				return // attributes
			}

			if !logKey.MatchString(key) {
				t.Errorf("%s: the key %q", at, key)
			}

			if id, ok := call.Args[i+1].(*ast.Ident); ok && errorName.MatchString(id.Name) && key != "error" {
				t.Errorf("%s: the key of an error is %q", at, key)
			}
		}
	})
}

func each(all []source, do func(source, *ast.CallExpr)) {
	for _, s := range all {
		ast.Inspect(s.File, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				do(s, call)
			}
			return true
		})
	}
}

func isCall(call *ast.CallExpr, pkg, name string) bool {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || f.Sel.Name != name {
		return false
	}
	id, ok := f.X.(*ast.Ident)
	return ok && id.Name == pkg
}

// text is the value of a string literal.
func text(e ast.Expr) (string, bool) {
	l, ok := e.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return "", false
	}
	s, err := strconv.Unquote(l.Value)
	return s, err == nil
}
