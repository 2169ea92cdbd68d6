package pattern

import (
	"errors"
	"fmt"
	"strings"
)

// escapes lists the letters that Python's re accepts after a backslash.
const escapes = "AbBdDsSwWZafnrtvxuUN"

var errEscape = errors.New("bad escape")

// fromPython converts an expression of Python's re to an expression that Go's regexp and the
// backtracking engine interpret as Python does: \Z becomes \z, x{,3} becomes x{0,3}, and [ inside a
// set becomes a plain character, since [[:alpha:]] is no class in Python. It returns an error for
// an escape that Python refuses (Lib/re/_parser.py of Python 3.11).
func fromPython(expr string) (string, error) {
	var b strings.Builder
	b.Grow(len(expr) + 8)
	set := -1 // index where the present set begins, after its ^; -1 outside of sets
	for i := 0; i < len(expr); i++ {
		switch c := expr[i]; {
		case c == '\\':
			if i+1 == len(expr) {
				return "", fmt.Errorf("%w at the end", errEscape)
			}

			i++
			n := expr[i]
			letter := n|0x20 >= 'a' && n|0x20 <= 'z'
			if letter && (!strings.ContainsRune(escapes, rune(n)) || set >= 0 && strings.ContainsRune("ABZ", rune(n))) {
				return "", fmt.Errorf(`%w \%c`, errEscape, n)
			}

			switch {
			case n == 'Z':
				b.WriteString(`\z`)
			case set >= 0 && n == 'b':
				b.WriteString(`\x08`)
			default:
				b.WriteByte('\\')
				b.WriteByte(n)
			}
		case set >= 0:
			switch {
			case c == '[':
				b.WriteString(`\[`)
			case c == ']' && i == set:
				b.WriteString(`\]`)
			case c == ']':
				set = -1
				b.WriteByte(c)
			default:
				b.WriteByte(c)
			}
		case c == '[':
			b.WriteByte(c)
			if set = i + 1; set < len(expr) && expr[set] == '^' {
				b.WriteByte('^')
				set++
				i++
			}
		case c == '{' && openRepeat(expr[i:]):
			b.WriteString("{0")
		default:
			b.WriteByte(c)
		}
	}

	return b.String(), nil
}

// openRepeat reports whether s begins with {,} or {,n}.
func openRepeat(s string) bool {
	end := strings.IndexByte(s, '}')
	return end >= 2 && s[1] == ',' && strings.Trim(s[2:end], "0123456789") == ""
}
