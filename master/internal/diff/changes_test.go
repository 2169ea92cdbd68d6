package diff

import (
	"strings"
	"testing"
)

// TestKeysThatLookAlike: the number 1 and the text "1" are told apart where both are keys.
func TestKeysThatLookAlike(t *testing.T) {
	s, root := newService(t, with(served, "common.sls", "a: {1: int, '2': x}\n"), manyMinions(2), nil)
	text := compareFolder(t, s, root, with(served, "common.sls", "a: {'1': text, '2': y}\n")).Text(false)
	for _, want := range []string{`- a:1: "int"`, `+ a:"1": "text"`, `~ a:2: "x"`} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %s:\n%s", want, text)
		}
	}
}
