package control

import (
	"strings"
	"testing"
)

func TestPlainName(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "n1": true, "N-1.example_com": true, strings.Repeat("a", 63): true,
		"": false, strings.Repeat("a", 64): false, "-a": false, "a-": false, ".a": false, "a.": false, "a b": false, "a/b": false, "a\n": false, "é": false, "<b>": false,
	} {
		if PlainName(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
}
