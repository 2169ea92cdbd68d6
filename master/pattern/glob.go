package pattern

import (
	"strings"
	"unicode/utf8"
)

// HasMeta reports whether a pattern contains characters by which it may match texts other than
// itself.
func HasMeta(pattern string) bool { return strings.ContainsAny(pattern, "*?[") }

// Glob reports whether the whole name matches a shell pattern by the rules of Python's fnmatch on
// Linux: case matters, * and ? also match a slash, [seq] and [!seq] are sets, and there is no
// escape character. An opening bracket without a closing one is an ordinary character, so every
// pattern is valid. Glob takes at most O(len(pattern)*len(name)) steps.
func Glob(pattern, name string) bool {
	var p, n int
	star, mark := -1, 0
	for n < len(name) {
		if p < len(pattern) {
			if pattern[p] == '*' {
				star, mark = p, n
				p++
				continue
			}

			if pw, nw, ok := matchOne(pattern[p:], name[n:]); ok {
				p, n = p+pw, n+nw
				continue
			}
		}

		if star < 0 {
			return false
		}

		// Let the last star match one more character of the name.
		_, w := utf8.DecodeRuneInString(name[mark:])
		mark += w
		p, n = star+1, mark
	}

	return strings.Trim(pattern[p:], "*") == ""
}

// Filter returns the names that match the pattern, in their order.
func Filter(names []string, pattern string) (out []string) {
	for _, n := range names {
		if Glob(pattern, n) {
			out = append(out, n)
		}
	}
	return out
}

// matchOne matches the first element of pattern, which is not a star, against the first character
// of name. ok reports whether they match. pw is the length in bytes of the element, nw that of the
// character.
func matchOne(pattern, name string) (pw, nw int, ok bool) {
	c, nw := utf8.DecodeRuneInString(name)
	switch pattern[0] {
	case '?':
		return 1, nw, true
	case '[':
		if set, width := cutClass(pattern); width > 0 {
			return width, nw, inClass(set, c)
		}
	}

	pc, pw := utf8.DecodeRuneInString(pattern)
	if pc == utf8.RuneError && pw == 1 {
		return 1, 1, pattern[0] == name[0]
	}

	return pw, nw, pc == c && (c != utf8.RuneError || nw != 1)
}

// cutClass returns the content of the bracket expression at the start of pattern, and the width of
// the expression including its brackets. width is 0 when the bracket is not closed.
func cutClass(pattern string) (set string, width int) {
	i := 1
	if i < len(pattern) && pattern[i] == '!' {
		i++
	}
	if i < len(pattern) && pattern[i] == ']' {
		i++
	}
	end := strings.IndexByte(pattern[min(i, len(pattern)):], ']')
	if end < 0 {
		return "", 0
	}
	return pattern[1 : i+end], i + end + 1
}

func inClass(set string, c rune) bool {
	negated := strings.HasPrefix(set, "!")
	r := []rune(strings.TrimPrefix(set, "!"))
	found := false
	for i := 0; i < len(r); {
		if i+2 < len(r) && r[i+1] == '-' {
			found = found || r[i] <= c && c <= r[i+2]
			i += 3
			continue
		}
		found = found || r[i] == c
		i++
	}
	return found != negated
}
