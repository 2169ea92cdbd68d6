// Package printable makes untrusted text (of minions, other nodes, files, programs) safe to show:
// on a terminal the result cannot send commands, or look like other text. The package imports
// nothing of ours.
package printable

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Unsafe reports whether a character must not reach a terminal unchanged: C0 and C1 controls, DEL,
// and invisible characters that change how others look (bidirectional overrides and isolates,
// zero-width marks, soft hyphens, tags, line and paragraph separators). Newline and tab are unsafe
// too: only the caller knows whether they may stay.
func Unsafe(r rune) bool {
	switch {
	case r >= 0x20 && r < 0x7f:
		return false
	case r < 0xa0:
		return true
	}
	return r == 0x2028 || r == 0x2029 || unicode.Is(unicode.Cf, r) &&
		!unicode.Is(unicode.Prepended_Concatenation_Mark, r)
}

// Text returns text of several lines in a safe form. Newlines and tabs stay, CR before a newline is
// dropped, ESC and the C1 controls become "?" as in Salt (salt/output/__init__.py
// strip_esc_sequence). Other [Unsafe] characters, and bytes that are not UTF-8, become escapes:
// \x08, \u202e.
func Text(s string) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, unsafeInText) {
		return s
	}
	return escape(strings.ReplaceAll(s, "\r\n", "\n"), unsafeInText)
}

// Line works like [Text], for one line: newlines become escapes too.
func Line(s string) string {
	unsafe := func(r rune) bool { return r != '\t' && Unsafe(r) }
	if utf8.ValidString(s) && !strings.ContainsFunc(s, unsafe) {
		return s
	}
	return escape(s, unsafe)
}

func unsafeInText(r rune) bool { return r != '\n' && r != '\t' && Unsafe(r) }

func escape(s string, unsafe func(rune) bool) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1: // an invalid byte may be an 8-bit control character
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case !unsafe(r):
			b.WriteRune(r)
		case r == 0x1b || r >= 0x80 && r <= 0x9f:
			b.WriteByte('?')
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}

		i += n
	}

	return b.String()
}
