package printable

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Clean returns text of one line in a form that is safe and easy to read. [Line] also returns a
// safe form, but keeps every character recognisable. Clean drops escape sequences, and replaces
// control characters, direction marks and bytes that are not UTF-8 by '?'. Other invisible
// characters become escapes as in [Line]. Tabs stay.
func Clean(s string) string {
	plain := true
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < 0x20 && c != '\t' || c >= 0x7f {
			plain = false
			break
		}
	}

	if plain {
		return s
	}

	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); {
		if s[i] == 0x1b {
			i += escapeLen(s[i:])
			continue
		}

		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size <= 1:
			b.WriteByte('?')
		case r == '\t':
			b.WriteByte('\t')
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r), r == 0x2028, r == 0x2029:
			b.WriteByte('?')
		default:
			b.WriteString(Line(s[i : i+size]))
		}

		i += size
	}

	return b.String()
}

// escapeLen returns the length of the terminal escape sequence with which s starts. CSI (ECMA-48)
// ends at its final byte, OSC and similar ones at BEL or ST. Any other sequence is ESC and one more
// byte.
func escapeLen(s string) int {
	if len(s) < 2 {
		return len(s)
	}

	switch s[1] {
	case '[':
		for i := 2; i < len(s); i++ {
			if s[i] >= 0x40 && s[i] <= 0x7e {
				return i + 1
			}
			if s[i] < 0x20 {
				return i
			}
		}

		return len(s)
	case ']', 'P', 'X', '^', '_':
		for i := 2; i < len(s); i++ {
			if s[i] == 0x07 {
				return i + 1
			}
			if s[i] == 0x1b && i+1 < len(s) && s[i+1] == '\\' {
				return i + 2
			}
		}

		return len(s)
	}

	return 2
}
