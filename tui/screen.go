package tui

import (
	"slices"
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
)

// The smallest screen that fits all pages. A terminal that does not report its size is assumed to
// have this size.
const (
	minWidth  = 80
	minHeight = 24
)

// frameLines is how many lines surround the body: heading, rule, rule, message, keys.
const frameLines = 5

var (
	bold    = lipgloss.NewStyle().Bold(true)
	reverse = lipgloss.NewStyle().Reverse(true)
)

// size is the size of the terminal, at least one cell.
type size struct{ width, height int }

// bodySize returns the size of the page inside the frame. It is at least that of the smallest
// screen: a smaller screen shows no page, but may become larger.
func (s size) bodySize() size {
	return size{max(s.width, minWidth) - 2, max(s.height, minHeight) - frameLines}
}

// fitsPages reports whether the screen is large enough for pages.
func (s size) fitsPages() bool { return s.width >= minWidth && s.height >= minHeight }

// maxMessage is how many lines a message may occupy.
const maxMessage = 4

// drawFrame draws a page: its heading, its position among the pages, its body, a message and the
// keys. A message of several lines replaces the last lines of the body. So the message's end, which
// names the next step, is visible.
func drawFrame(s size, heading, where, body, message, keys string) string {
	if !s.fitsPages() {
		return tooSmall(s)
	}

	rule := strings.Repeat("-", s.width-1)
	gap := max(1, s.width-1-len(heading)-len(where))
	lines := []string{bold.Render(heading) + strings.Repeat(" ", gap) + where, rule}
	inner := strings.Split(strings.TrimRight(body, " \n"), "\n")
	said := wrapWords(message, s.width-2)
	if len(said) > maxMessage {
		said = append(said[:maxMessage-1], clipLine(strings.Join(said[maxMessage-1:], " "), s.width-2))
	}

	room := s.bodySize().height - len(said) + 1
	if len(inner) > room {
		inner = append(inner[:room-1], "  ...")
	}

	for len(inner) < room {
		inner = append(inner, "")
	}

	for _, l := range inner {
		lines = append(lines, strings.TrimRight(" "+toASCII(l), " "))
	}

	lines = append(lines, rule)
	for _, l := range said {
		lines = append(lines, strings.TrimRight(" "+l, " "))
	}

	lines = append(lines, clipLine(" "+keys, s.width-1))
	return strings.Join(lines, "\n")
}

// footer returns a line that names the keys. It omits empty strings.
func footer(keys ...string) string {
	return strings.Join(slices.DeleteFunc(keys, func(k string) bool { return k == "" }), "   ")
}

// tooSmall returns the text for a terminal that is smaller than the pages.
func tooSmall(s size) string {
	lines := wrapWords("This terminal is too small. Make it 80 columns by 24 rows, or larger.", max(10, s.width-1))
	return strings.Join(lines[:min(len(lines), max(1, s.height))], "\n")
}

// clipLine cuts a line of plain ASCII to width, between two words unless that loses much of the
// line.
func clipLine(l string, width int) string {
	const cut = "..."
	if len(l) <= width {
		return l
	}
	kept := l[:max(0, width-len(cut))]
	if i := strings.LastIndexByte(kept, ' '); i > width*2/3 {
		kept = kept[:i+1]
	}
	return kept + cut
}

// toASCII replaces characters outside ASCII by question marks, one for each column of the
// character. A terminal without UTF-8 would otherwise use more or fewer columns than the drawing
// library assumes.
func toASCII(l string) string {
	if strings.IndexFunc(l, func(r rune) bool { return r > '~' }) < 0 {
		return l
	}
	var b strings.Builder
	for _, r := range l {
		if r <= '~' {
			b.WriteRune(r)
			continue
		}
		b.WriteString(strings.Repeat("?", ansi.StringWidth(string(r))))
	}
	return b.String()
}

// cleanLine makes untrusted text safe for the screen: one line of printable ASCII.
func cleanLine(s string) string {
	s = ansi.Strip(strings.NewReplacer("\n", " ", "\t", " ", "\r", " ").Replace(s))
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}

// wrapWords cleans text and breaks it at spaces. A word longer than a line is broken anywhere.
func wrapWords(s string, width int) (lines []string) {
	line := ""
	for _, word := range strings.Fields(cleanLine(s)) {
		for len(word) > width {
			if line != "" {
				lines, line = append(lines, line), ""
			}
			lines, word = append(lines, word[:width]), word[width:]
		}

		switch {
		case line == "":
			line = word
		case len(line)+1+len(word) <= width:
			line += " " + word
		default:
			lines, line = append(lines, line), word
		}
	}

	if line != "" || len(lines) == 0 {
		lines = append(lines, line)
	}

	return lines
}

// paragraph wraps s. It starts the first line with indent, and each further line with as many
// spaces.
func paragraph(indent, s string, width int) string {
	lines := wrapWords(s, width-len(indent))
	return indent + strings.Join(lines, "\n"+strings.Repeat(" ", len(indent)))
}
