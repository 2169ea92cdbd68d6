package printable

import (
	"encoding/csv"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzClean: whatever a child writes, what is printed holds nothing that
// a terminal would obey and no second line (attack 25, 26).
func FuzzClean(f *testing.F) {
	for _, s := range []string{"plain", "\x1b[2J\x1b]52;c;QQ==\x07", "a\nb\rc", "\x9b31m", "\xc2\x9b31m",
		"\x1b", "\x1b[", "\u202eabc", "日本"} {
		f.Add(s)
	}

	f.Fuzz(func(t *testing.T, s string) {
		got := Clean(s)
		for _, r := range got {
			if r < 0x20 && r != '\t' || r >= 0x7f && r < 0xa0 || r == '\u202e' || r == '\u2028' {
				t.Fatalf("%q became %q", s, got)
			}
		}

		if b := Brief(s, 20); len(b) > 20+len("…") || strings.ContainsAny(b, "\n\t") || !utf8.ValidString(b) {
			t.Fatalf("%q became %q", s, b)
		}

		if again := Clean(got); again != got {
			t.Fatalf("not stable: %q, %q", got, again)
		}
	})
}

func TestBrief(t *testing.T) {
	for _, tt := range []struct{ in, brief, last string }{
		{"plain", "plain", "plain"},
		{" one\n  two\tthree \r\n", "one two three", "two three"},
		{"a\x1b[2Jb\x00\xff\u202e", "ab???", "ab???"},
		{"äöüäöüäöü", "äöüäöüäö…", "äöüäöüäö…"},
		{"12345678901234567", "1234567890123456…", "1234567890123456…"},
		{"why:\n1234567890123456", "why: 12345678901…", "1234567890123456"},
		{"", "", ""},
	} {
		if got := Brief(tt.in, 16); got != tt.brief {
			t.Errorf("Brief(%q) = %q", tt.in, got)
		}
		if got := LastLine(tt.in, 16); got != tt.last {
			t.Errorf("LastLine(%q) = %q", tt.in, got)
		}
	}

	if got := Clip("äöü", 3); got != "ä…" {
		t.Errorf("%q", got)
	}
}

func TestCell(t *testing.T) {
	for text, want := range map[string]string{
		"":            "",
		"web1":        "web1",
		"a=b":         "a=b",
		"=1+2":        "'=1+2",
		"@SUM(A1)":    "'@SUM(A1)",
		"-1":          "'-1",
		"|calc":       "'|calc",
		"+1":          "'+1",
		"\t=1":        "'\t=1",
		"\r\n=cmd()":  "'\r\n=cmd()",
		"\n=1":        "'\n=1",
		"é=1":         "é=1",
		"'=unchanged": "'=unchanged",
	} {
		if got := Cell(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestRow: a reader gets back the cells, with the line ends that they had.
func TestRow(t *testing.T) {
	cells := []string{"web1", "a\nb\r\nc\r", `say "x"`, "", "1,5"}
	row := Row(cells...)
	if !strings.Contains(row, "a\nb") || !strings.HasSuffix(row, "\"1,5\"\r\n") {
		t.Errorf("%q", row)
	}

	read, err := csv.NewReader(strings.NewReader(row)).Read()
	want := []string{"web1", "a\nb\nc\r", `say "x"`, "", "1,5"} // the reader of Go makes \r\n one \n
	if err != nil || !slices.Equal(read, want) {
		t.Errorf("%q: %v", read, err)
	}
}
