package status

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"saltern/internal/printable"
)

// Room is the space on a terminal for a text.
type Room struct {
	Width int // in columns
	Lines int // number of lines; 0: unlimited
	// Rest tells the reader how to see the rest of a text that had to be cut, for example "press
	// 1".
	Rest string
}

// brevity says how much a description is shortened. Each value also shortens what the values before
// it shorten. The least important parts are shortened first. The first line always stays.
type brevity int

const (
	whole         brevity = iota
	briefNotes            // one line for each note
	briefServices         // one line for all services that run
	briefCodes            // only the codes of notes
	briefNodes            // instead of many nodes that are ready, only their number
	briefDetails          // one line for each cause and next step
	briefProblems         // one line for each problem
	briefest      = briefProblems
)

// Fit returns the description of the document that WriteText writes, shortened to fit into room.
// The first line summarises the document. Fit breaks a word only if the word is longer than a line.
// The lines of extra follow the addresses; the caller must have fitted them.
func Fit(d Document, room Room, extra ...string) []string {
	var lines []string
	for brief := whole; brief <= briefest; brief++ {
		lines = wording{d: d, width: room.Width, brief: brief}.describe(extra)
		if brief > whole {
			lines = append(lines, clipWords("  ... in brief; in full: "+room.Rest, room.Width))
		}
		if room.Lines == 0 || len(lines) <= room.Lines {
			return cleaned(lines)
		}
	}
	shown := max(1, room.Lines-1)
	more := fmt.Sprintf("  ... more: %s", room.Rest)
	return cleaned(append(lines[:shown:shown], clipWords(more, room.Width))[:min(shown+1, room.Lines)])
}

// cleaned removes control characters and trailing blanks from lines. Each line stays one line.
func cleaned(lines []string) (out []string) {
	for _, l := range lines {
		out = append(out, clean(oneCell.Replace(l)))
	}
	return out
}

// columns returns the width of a text without control characters.
func columns(s string) int { return utf8.RuneCountInString(s) }

// leastText is the least number of free columns of a line for a text to follow other text there.
const leastText = 16

// addParagraph adds a text after an indent. Its further lines begin in the column where the text
// began.
func (t *wording) addParagraph(indent, text string) {
	if t.width == 0 {
		t.lines = append(t.lines, indent+text)
		return
	}

	if lead := strings.TrimRight(indent, " "); text == "" || lead != "" && t.width-columns(indent) < leastText {
		t.lines = append(t.lines, clipWords(lead, t.width))
		indent = "    "
	}

	if text == "" {
		return
	}

	hang := min(columns(indent), t.width/2)
	for i, l := range wrapWords(text, t.width-columns(indent), t.width-hang) {
		if i > 0 {
			indent = strings.Repeat(" ", hang)
		}
		t.lines = append(t.lines, indent+l)
	}
}

// addDetail adds lines after an indent: all of them, or only the first if the brevity is
// briefDetails.
func (t *wording) addDetail(indent string, lines []string) {
	if t.brief >= briefDetails {
		t.lines = append(t.lines, clipWords(indent+lines[0], t.width))
		return
	}
	for _, l := range lines {
		t.addParagraph(indent, l)
	}
}

// Wrap breaks a text into lines of at most width columns, at blanks.
func Wrap(text string, width int) []string { return wrapWords(text, width, width) }

// wrapWords breaks a text into lines between its words. The first line has at most firstWidth
// columns, each other line restWidth. If a word is longer than a line, it is broken at the end of
// the line.
func wrapWords(text string, firstWidth, restWidth int) (lines []string) {
	line, room := "", max(firstWidth, 1)
	end := func() {
		lines = append(lines, line)
		line = ""
		room = max(restWidth, 1)
	}

	for _, word := range strings.Fields(printable.Clean(text)) {
		if line != "" && columns(line)+1+columns(word) > room {
			end()
		}

		for columns(word) > room {
			runes := []rune(word)
			line, word = string(runes[:room]), string(runes[room:])
			end()
		}

		if line != "" {
			line += " "
		}

		line += word
	}

	if line != "" || len(lines) == 0 {
		lines = append(lines, line)
	}

	return lines
}

// clipWords cuts a line between two words to width columns, and marks the cut.
func clipWords(line string, width int) string {
	const cut = " ..."
	line = oneCell.Replace(printable.Clean(line))
	if width == 0 || columns(line) <= width {
		return line
	}
	kept := string([]rune(line)[:max(0, width-len(cut)+1)])
	if i := strings.LastIndex(kept, " "); i > width/2 {
		kept = kept[:i]
	} else {
		kept = string([]rune(kept)[:max(0, width-len(cut))])
	}
	return strings.TrimRight(kept, " ") + cut
}

// fitColumns removes columns from the table of nodes until the table fits into width. It first
// removes columns with the same value in all rows, and returns these values as everywhere. Then it
// removes columns that are shown elsewhere, and returns their names as missing.
func fitColumns(rows [][]string, width int) (fitting [][]string, everywhere, missing []string) {
	tooWide := func() bool {
		return width > 0 && slices.ContainsFunc(alignRows(rows),
			func(l string) bool { return columns(strings.TrimRight(l, " ")) > width })
	}

	for _, name := range []string{"VERSION", "ROLE", "CLOCK", "STORAGE", "LB", "MASTER"} {
		i := slices.Index(rows[0], name)
		if len(rows) < 2 || !tooWide() ||
			slices.ContainsFunc(rows[1:], func(r []string) bool { return r[i] != rows[1][i] }) {
			continue
		}
		everywhere = append(everywhere, strings.ToLower(name)+" "+rows[1][i])
		rows = without(rows, i)
	}

	if tooWide() {
		for i, r := range rows {
			rows[i] = slices.Clone(r)
			for j := range r {
				rows[i][j] = strings.Replace(r[j], lastSeen, "away ", 1)
			}
		}
	}

	for _, name := range []string{"ADDRESS", "CLOCK", "ROLE", "VERSION", "STORAGE", "MINIONS"} {
		if i := slices.Index(rows[0], name); i > 0 && tooWide() {
			missing = append(missing, strings.ToLower(name))
			rows = without(rows, i)
		}
	}

	for maxName := 40; maxName >= 8 && tooWide(); maxName -= 4 {
		for _, r := range rows {
			r[0] = shortName(r[0], maxName)
		}
	}

	return rows, everywhere, missing
}

// without returns the rows without one column.
func without(rows [][]string, column int) (out [][]string) {
	for _, r := range rows {
		out = append(out, slices.Delete(slices.Clone(r), column, column+1))
	}
	return out
}

// shortName shortens a name with more than maxRunes characters: two dots replace its middle.
func shortName(name string, maxRunes int) string {
	runes := []rune(name)
	if len(runes) <= maxRunes {
		return name
	}
	end := maxRunes / 2
	return string(runes[:maxRunes-end-2]) + ".." + string(runes[len(runes)-end:])
}
