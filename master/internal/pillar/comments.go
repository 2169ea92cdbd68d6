package pillar

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"
)

// commentsFor returns a function that renders a template whose only marks are comments, as Jinja
// does (jinja2/lexer.py). It returns false for every other file: such a template goes to Python.
func commentsFor(c *Config) func(text []byte) (string, bool) {
	return func(text []byte) (string, bool) {
		if c.RestrictedRenderers || c.CustomJinja || c.TrimJinja || !utf8.Valid(text) {
			return "", false
		}
		if pipe := rendererPipe(c, text); pipe != jinjaYAML && pipe != yamlJinja {
			return "", false
		}
		// Jinja normalises line ends, and a header of Salt's can change the marks.
		if bytes.ContainsAny(text, "\r\ufeff") || bytes.Contains(text, []byte("#jinja2:")) {
			return "", false
		}
		return withoutComments(string(text))
	}
}

// withoutComments returns a template without its comments. It returns false if the template has
// another mark, or a comment without an end. A dash inside of a mark removes the white space beside
// the comment.
func withoutComments(text string) (string, bool) {
	// Jinja drops the last line end, and Salt puts it back (salt/utils/templates.py render_jinja_tmpl).
	text, ended := strings.CutSuffix(text, "\n")
	var out strings.Builder
	for {
		at := firstMark(text)
		if at < 0 {
			break
		}
		if text[at+1] != '#' {
			return "", false
		}

		before, comment := text[:at], text[at+2:]
		switch {
		case strings.HasPrefix(comment, "-"):
			before = strings.TrimRightFunc(before, isPythonSpace)
			comment = comment[1:]
		case strings.HasPrefix(comment, "+"):
			comment = comment[1:]
		}

		inside, after, closed := strings.Cut(comment, "#}")
		if !closed {
			return "", false
		}
		if strings.HasSuffix(inside, "-") {
			after = strings.TrimLeftFunc(after, isPythonSpace)
		}

		out.WriteString(before)
		text = after
	}

	out.WriteString(text)
	if ended {
		out.WriteByte('\n')
	}

	return out.String(), true
}

// firstMark returns the position of the first mark of Jinja in a text, or -1.
func firstMark(text string) int {
	for from := 0; ; {
		at := strings.IndexByte(text[from:], '{')
		if at < 0 || from+at+1 >= len(text) {
			return -1
		}
		at += from
		if strings.IndexByte("{%#", text[at+1]) >= 0 {
			return at
		}
		from = at + 1
	}
}

// isPythonSpace reports whether Python's str.isspace holds for a character.
func isPythonSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }
