package saltyaml

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"saltern/internal/printable"
)

// traits lists the forms in which libyaml's emitter may write a text. A reader of any of these
// forms gets the same text.
type traits struct {
	multiline  bool
	flowPlain  bool
	blockPlain bool
	single     bool
	block      bool
}

func isBreak(r rune) bool {
	return r == '\n' || r == '\r' || r == 0x85 || r == 0x2028 || r == 0x2029
}

func printableRune(r rune) bool {
	return r == '\n' || r >= 0x20 && r <= 0x7e || r >= 0xa0 && r <= 0xd7ff ||
		r >= 0xe000 && r <= 0xfffd && r != 0xfeff
}

// visible reports whether a character is written unescaped. Other characters are escaped: those
// that PyYAML escapes, and invisible ones that change what a terminal shows.
func visible(r rune) bool {
	return printableRune(r) && (r < 0xa0 || isBreak(r) || !printable.Unsafe(r))
}

// isBlank reports whether a character ends a word in YAML.
func isBlank(r rune) bool { return r == ' ' || r == '\t' || r == 0 || isBreak(r) }

func analyse(s string) traits {
	if s == "" {
		return traits{blockPlain: true, single: true}
	}

	var inFlow, inBlock, breaks, special, edge, trailingSpace, breakSpace, spaceBreak bool
	if strings.HasPrefix(s, "---") || strings.HasPrefix(s, "...") {
		inFlow, inBlock = true, true
	}

	both := func() { inFlow, inBlock = true, true }
	before := true
	wasSpace := false
	wasBreak := false
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		after := true // white space or the end of the text follows
		last := i+n == len(s)
		if !last {
			next, _ := utf8.DecodeRuneInString(s[i+n:])
			after = isBlank(next)
		}

		switch {
		case i == 0 && strings.ContainsRune("#,[]{}&*!|>'\"%@`", r):
			both()
		case r == ':', i == 0 && r == '?':
			inFlow = true
			inBlock = inBlock || after
		case i == 0 && r == '-' && after:
			both()
		case strings.ContainsRune(",?[]{}", r):
			inFlow = true
		case r == '#' && before:
			both()
		}

		if !visible(r) || r == utf8.RuneError && n == 1 {
			special = true
		}

		switch {
		case r == ' ':
			edge = edge || i == 0 || last
			trailingSpace = trailingSpace || last
			breakSpace = breakSpace || wasBreak
			wasSpace, wasBreak = true, false
		case isBreak(r):
			breaks = true
			edge = edge || i == 0 || last
			spaceBreak = spaceBreak || wasSpace
			wasSpace, wasBreak = false, true
		default:
			wasSpace, wasBreak = false, false
		}

		before = isBlank(r)
		i += n
	}

	plain := !edge && !breakSpace && !spaceBreak && !special && !breaks
	return traits{
		multiline:  breaks,
		flowPlain:  plain && !inFlow,
		blockPlain: plain && !inBlock,
		single:     !breakSpace && !spaceBreak && !special,
		block:      !trailingSpace && !spaceBreak && !special,
	}
}

// foldable reports whether the emitter may break the line at the space s[i].
func foldable(s string, i int) bool { return i+1 >= len(s) || s[i+1] != ' ' }

func (e *emitter) writePlain(s string, split bool) {
	if !e.whitespace {
		e.writeText(" ")
	}

	spaces := false
	for i, r := range s {
		if r != ' ' {
			e.writeText(string(r))
			e.indention, spaces = false, false
			continue
		}

		if split && !spaces && e.column > bestWidth && foldable(s, i) {
			e.writeIndent()
		} else {
			e.writeText(" ")
		}

		spaces = true
	}

	e.whitespace, e.indention = false, false
}

func (e *emitter) singleQuoted(s string, split bool) {
	e.indicator("'", true, false, false)
	spaces, breaks := false, false
	for i, r := range s {
		switch {
		case r == ' ':
			if split && !spaces && e.column > bestWidth && i > 0 && i < len(s)-1 && foldable(s, i) {
				e.writeIndent()
			} else {
				e.writeText(" ")
			}
			spaces = true
		case isBreak(r):
			if !breaks && r == '\n' {
				e.lineBreak()
			}
			e.breakAs(r)
			e.indention, breaks = true, true
		default:
			if breaks {
				e.writeIndent()
			}

			if r == '\'' {
				e.writeText("'")
			}

			e.writeText(string(r))
			e.indention = false
			spaces = false
			breaks = false
		}
	}

	if breaks {
		e.writeIndent()
	}

	e.indicator("'", false, false, false)
	e.whitespace, e.indention = false, false
}

func (e *emitter) breakAs(r rune) {
	if r == '\n' {
		e.lineBreak()
		return
	}
	e.writeText(string(r))
	e.column = 0
}

func escape(r rune) string {
	const from, to = "\x00\x07\x08\t\n\x0b\x0c\r\x1b\"\\\u0085\u00a0\u2028\u2029", `0abtnvfre"\N_LP`
	n := 0
	for _, f := range from {
		if f == r {
			return `\` + to[n:n+1]
		}
		n++
	}

	switch {
	case r <= 0xff:
		return fmt.Sprintf(`\x%02X`, r)
	case r <= 0xffff:
		return fmt.Sprintf(`\u%04X`, r)
	}

	return fmt.Sprintf(`\U%08X`, r)
}

func (e *emitter) doubleQuoted(s string, split bool) {
	e.indicator("\"", true, false, false)
	spaces := false
	for i, r := range s {
		switch {
		case !visible(r) || isBreak(r) || r == '"' || r == '\\':
			e.writeText(escape(r))
			spaces = false
		case r == ' ':
			if split && !spaces && e.column > bestWidth && i > 0 && i < len(s)-1 {
				e.writeIndent()
				if !foldable(s, i) {
					e.writeText(`\`)
				}
			} else {
				e.writeText(" ")
			}

			spaces = true
		default:
			e.writeText(string(r))
			spaces = false
		}
	}

	e.indicator("\"", false, false, false)
	e.whitespace, e.indention = false, false
}

// literal writes the lines of base64 text, which never begin with a space and always end with a
// single line break.
func (e *emitter) literal(s string) {
	e.indicator("|", true, false, false)
	e.lineBreak()
	e.indention, e.whitespace = true, true
	breaks := true
	for _, r := range s {
		if r == '\n' {
			e.lineBreak()
			e.indention, breaks = true, true
			continue
		}

		if breaks {
			e.writeIndent()
		}

		e.writeText(string(r))
		e.indention, breaks = false, false
	}
}
