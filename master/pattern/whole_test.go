package pattern

import (
	"slices"
	"testing"
)

// TestWhole: an expression in an option must match the whole of a text. An invalid expression
// matches nothing, and the code that reads the option reports it.
func TestWhole(t *testing.T) {
	for _, tt := range []struct {
		expr, text    string
		whole, either bool // Whole; Expr, which takes a glob too
		wrong         bool // CompileWhole refuses it
	}{
		{expr: "web.*", text: "web1", whole: true, either: true},
		{expr: "web", text: "web1"},
		{expr: "web1|db1", text: "db1", whole: true, either: true},
		{expr: "web1|db1", text: "db12"},
		{expr: "web*", text: "web1", either: true},
		{expr: "web*", text: "we", whole: true, either: true},
		{expr: "*", text: "web1", either: true, wrong: true},
		{expr: "(web", text: "(web", either: true, wrong: true},
		{expr: "(?P<a>w)(?P=a)", text: "ww", whole: true, either: true},
		{expr: "a\nb", text: "a\nb", whole: true, either: true},
		{expr: "a", text: "a\n"},
		{expr: "", text: "", whole: true, either: true},
	} {
		if got := Whole(tt.expr, tt.text); got != tt.whole {
			t.Errorf("Whole(%q, %q) is %v", tt.expr, tt.text, got)
		}
		if got := Expr(tt.text, tt.expr); got != tt.either {
			t.Errorf("Expr(%q, %q) is %v", tt.text, tt.expr, got)
		}
		matches, err := CompileWhole(tt.expr)
		if (err != nil) != tt.wrong {
			t.Errorf("CompileWhole(%q): %v", tt.expr, err)
		}
		if err != nil {
			continue
		}
		if got, err := matches(tt.text); got != tt.whole || err != nil {
			t.Errorf("CompileWhole(%q) of %q: %v, %v", tt.expr, tt.text, got, err)
		}
	}
}

// TestFilter: Filter returns the names that match, in their order.
func TestFilter(t *testing.T) {
	names := []string{"web2", "db1", "web1"}
	for expr, want := range map[string][]string{"web*": {"web2", "web1"}, "*": names, "db1": {"db1"}, "x*": nil, "[wd]*1": {"db1", "web1"}} {
		if got := Filter(names, expr); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", expr, got, want)
		}
	}
}
