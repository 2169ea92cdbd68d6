package output

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
)

// wordBreak matches the pieces that Python's textwrap does not break: white space, words, parts of
// hyphenated words, dashes.
const wordBreak = `[\t\n\v\f\r ]+` +
	`|(?<=[\w!"'&.,?])-{2,}(?=\w)` +
	`|[^\t\n\v\f\r ]+?(?:-(?:(?<=[^\d\W]{2}-)|(?<=[^\d\W]-[^\d\W]-))(?=[^\d\W]-?[^\d\W])` +
	`|(?=[\t\n\v\f\r ]|\z)|(?<=[\w!"'&.,?])(?=-{2,}\w))`

// wrapLimit is the greatest length in bytes of a text that is broken by textwrap's rules. Longer
// text is broken only at spaces.
const wrapLimit = 64 << 10

// Wrap returns the lines of a text, each of at most width characters, by the rules of Python's
// textwrap.wrap.
func Wrap(text string, width int) []string { return wrapLines(text, max(width, 1)) }

// wrapIndented returns the text of Python's textwrap.fill with this width and the same indent on
// every line.
func wrapIndented(s string, width int, indent string) string {
	lines := wrapLines(s, width-len(indent))
	for i, l := range lines {
		lines[i] = indent + l
	}
	return strings.Join(lines, "\n")
}

func wrapLines(s string, room int) []string {
	s = strings.Map(func(r rune) rune {
		if strings.ContainsRune("\n\v\f\r", r) {
			return ' '
		}
		return r
	}, expandTabs(s))

	chunks := wrapChunks(s)
	var out []string
	for len(chunks) > 0 {
		if len(out) > 0 && strings.TrimSpace(chunks[0]) == "" {
			chunks = chunks[1:]
		}

		var line []string
		used := 0
		for len(chunks) > 0 {
			n := utf8.RuneCountInString(chunks[0])
			if used+n > room {
				break
			}
			line = append(line, chunks[0])
			used += n
			chunks = chunks[1:]
		}

		if len(chunks) > 0 && utf8.RuneCountInString(chunks[0]) > room {
			head, tail := breakWord(chunks[0], room-used)
			line = append(line, head)
			chunks[0] = tail
		}

		if n := len(line); n > 0 && strings.TrimSpace(line[n-1]) == "" {
			line = line[:n-1]
		}

		if len(line) > 0 {
			out = append(out, strings.Join(line, ""))
		}
	}

	return out
}

// breakWord cuts a word after at most room characters, if possible after the last hyphen among
// them. tail is "" if the word fits.
func breakWord(word string, room int) (head, tail string) {
	r := []rune(word)
	end := min(room, len(r))
	if len(r) > room {
		for i := end - 1; i > 0; i-- {
			if r[i] == '-' {
				if strings.Trim(string(r[:i]), "-") != "" {
					end = i + 1
				}
				break
			}
		}
	}
	return string(r[:end]), string(r[end:])
}

func wrapChunks(s string) []string {
	if len(s) <= wrapLimit {
		if c, ok := wrapRegexp(s); ok {
			return c
		}
	}

	var chunks []string
	for s != "" {
		i := strings.IndexByte(s, ' ')
		switch i {
		case -1:
			return append(chunks, s)
		case 0:
			i = len(s) - len(strings.TrimLeft(s, " "))
		}

		chunks = append(chunks, s[:i])
		s = s[i:]
	}

	return chunks
}

func wrapRegexp(s string) ([]string, bool) {
	re, err := regexp2.Compile(wordBreak, regexp2.None)
	if err != nil {
		return nil, false
	}

	re.MatchTimeout = time.Second
	r := []rune(s)
	var chunks []string
	last := 0
	m, err := re.FindRunesMatch(r)
	for ; m != nil && err == nil; m, err = re.FindNextMatch(m) {
		if m.Index > last {
			chunks = append(chunks, string(r[last:m.Index]))
		}
		if m.Length > 0 {
			chunks = append(chunks, string(r[m.Index:m.Index+m.Length]))
		}
		last = m.Index + m.Length
	}

	if last < len(r) {
		chunks = append(chunks, string(r[last:]))
	}

	return chunks, err == nil
}

func expandTabs(s string) string {
	if !strings.Contains(s, "\t") {
		return s
	}

	var b strings.Builder
	column := 0
	for _, r := range s {
		switch r {
		case '\t':
			n := 8 - column%8
			b.WriteString(strings.Repeat(" ", n))
			column += n
		case '\n', '\r':
			b.WriteRune(r)
			column = 0
		default:
			b.WriteRune(r)
			column++
		}
	}

	return b.String()
}
