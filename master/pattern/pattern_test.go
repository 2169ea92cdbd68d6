package pattern

import (
	"strings"
	"testing"
	"time"
)

// TestGlob's expectations were taken from Python's fnmatch.fnmatchcase.
func TestGlob(t *testing.T) {
	for _, tt := range []struct {
		glob, name string
		want       bool
	}{
		{"", "", true}, {"?", "/", true}, {"?", "", false}, {"*.sls", "a/b.slsx", false}, {"a*b*c", "axxbyyc", true}, {"a*b*c", "axxbyy", false},
		{"[!c-a]", "b", true}, {"[]x]", "]", true}, {"[", "[", true}, {"\\*", "\\x", true}, {"\\*", "*", false}, {"[à-ü]", "é", true}, {"**a**", "bab", true}, {"a", "a\n", false},
		{"*", "", true}, {"*", "a/b\nc", true}, {"web*", "web1", true}, {"web*", "aweb1", false}, {"web?", "web12", false},
		{"web[12]", "web2", true}, {"web[!12]", "web2", false}, {"web[!12]", "web3", true}, {"web[a-c]", "webb", true}, {"web[c-a]", "webb", false},
		{"web[", "web[", true}, {"[]]", "]", true}, {"[!]]", "]", false}, {"[!]]", "x", true}, {"a.b", "axb", false}, {"a.b", "a.b", true}, {"a+b*", "a+bc", true},
		{"[^a]", "^", true}, {"[^a]", "b", false}, {"[a-]", "-", true}, {"[\\d]", "d", true}, {"*.example.com", "x.example.com", true}, {"W*", "web", false}, {"web1", "web1\n", false},
		{"ä?", "äö", true}, {"[a-c-e]", "-", true},
	} {
		if got := Glob(tt.glob, tt.name); got != tt.want {
			t.Errorf("Glob(%q, %q) = %v", tt.glob, tt.name, got)
		}
	}
}

func TestMatch(t *testing.T) {
	for _, tt := range []struct {
		expr, s string
		want    bool
	}{
		{"web", "web12", true}, {"eb", "web", false}, {"web$", "web1", false}, {"a|b", "bx", true}, {"web(?!1)", "web2", true}, {"web(?!1)", "web1", false},
		{`(?P<x>a)(?P=x)`, "aa", true}, {`(\w)\1`, "zz", true}, {"(", "(", false}, {`\d+\Z`, "123", true}, {".*", "", true}, {`a\\Z`, `a\Z`, true}, {`a\\Z`, "a", false},
	} {
		if got := Match(tt.expr, tt.s); got != tt.want {
			t.Errorf("Match(%q, %q) = %v", tt.expr, tt.s, got)
		}
	}

	if _, err := MatchErr("(", "x"); err == nil {
		t.Error("an expression that is none gives no error")
	}

	if !Expr("web1", "web*") || !Expr("web1", `web\d`) || Expr("web12", `web\d`) || Expr("xweb1", `web\d`) {
		t.Error("Expr must fit the whole line")
	}
}

// TestHostileExpressions: neither the length of an expression nor its backtracking may take long.
func TestHostileExpressions(t *testing.T) {
	start := time.Now()
	if Match(`(?=x)`+strings.Repeat("(a*)*", 8)+"b", strings.Repeat("a", 5000)) {
		t.Error("matched")
	}

	if Match(strings.Repeat("a", maxLen+1), "a") {
		t.Error("too long a pattern matched")
	}

	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("took %s", d)
	}

	for i := range cacheSize * 3 {
		Match(strings.Repeat("x", i%1000)+"*", "x")
	}

	if len(prefixes.byPattern) > cacheSize {
		t.Errorf("%d patterns kept", len(prefixes.byPattern))
	}
}

func FuzzGlob(f *testing.F) {
	f.Add("web[!a-c]*?", "web1x")
	f.Add("[]-a]", "]")
	f.Fuzz(func(t *testing.T, glob, name string) {
		Glob(glob, name)
		if !strings.ContainsAny(glob, "*?[") && Glob(glob, name) != (glob == name) {
			t.Errorf("a plain glob %q and %q", glob, name)
		}
	})
}

func TestGlobIsNotExponential(t *testing.T) {
	start := time.Now()
	if Glob(strings.Repeat("*a", 200)+"b", strings.Repeat("a", 5000)) {
		t.Error("matched")
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("took %v", d)
	}
}
