package printable

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestText(t *testing.T) {
	for _, tt := range []struct{ in, text, line string }{
		{"plain ünï 日本 \t x", "plain ünï 日本 \t x", "plain ünï 日本 \t x"},
		{"a\nb", "a\nb", `a\nb`},
		{"a\r\nb\rc", "a\nb\\rc", `a\r\nb\rc`},
		{"\x1b[2J\u009b2J", "?[2J?2J", "?[2J?2J"},
		{"\a\b\x7f\x00", `\x07\x08\x7f\x00`, `\x07\x08\x7f\x00`},
		{"\u202eexe\u2066\u061c\u200f\u200b\ufeff", `\u202eexe\u2066\u061c\u200f\u200b\ufeff`,
			`\u202eexe\u2066\u061c\u200f\u200b\ufeff`},
		{"\U000e0041", `\U000e0041`, `\U000e0041`},
		{"\u2028", `\u2028`, `\u2028`},
		{"\u0600 1", "\u0600 1", "\u0600 1"}, // ARABIC NUMBER SIGN is seen
	} {
		if got := Text(tt.in); got != tt.text {
			t.Errorf("Text(%q) = %q, want %q", tt.in, got, tt.text)
		}
		if got := Line(tt.in); got != tt.line {
			t.Errorf("Line(%q) = %q, want %q", tt.in, got, tt.line)
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add("\x1b[2J\x9b\xc2\x9b\r\n\u202e\b")
	f.Add("日本\xff")
	f.Fuzz(func(t *testing.T, s string) {
		text, line := Text(s), Line(s)
		if i := strings.IndexFunc(text, unsafeInText); i >= 0 {
			t.Errorf("Text(%q) = %q", s, text)
		}

		if strings.ContainsFunc(line, func(r rune) bool { return r != '\t' && Unsafe(r) }) {
			t.Errorf("Line(%q) = %q", s, line)
		}

		if Text(text) != text || Line(line) != line || !utf8.ValidString(text) {
			t.Errorf("%q: %q, %q", s, text, line)
		}
	})
}
