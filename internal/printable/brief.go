package printable

import (
	"encoding/csv"
	"strings"
)

// Brief returns untrusted text in a form that fits into one line of a log, an error or a status:
// cleaned as by [Clean], with each run of white space as one space, and cut as by [Clip].
func Brief(s string, maxBytes int) string {
	return Clip(Clean(strings.Join(strings.Fields(s), " ")), maxBytes)
}

// LastLine works like Brief, for the last line of a program's output, where programs usually state
// why they failed.
func LastLine(s string, maxBytes int) string {
	s = strings.TrimSpace(s)
	return Brief(s[strings.LastIndexByte(s, '\n')+1:], maxBytes)
}

// Clip returns s unchanged or, if it is longer than maxBytes, cut between two characters and with a
// mark.
func Clip(s string, maxBytes int) string {
	if len(s) <= maxBytes {
		return s
	}
	return strings.ToValidUTF8(s[:maxBytes], "") + "…"
}

// Cell returns a text for a cell of a CSV file. A spreadsheet would execute a text that begins like a
// formula: such a text gets an apostrophe in front.
func Cell(s string) string {
	if s != "" && strings.IndexByte("=+-@|\t\r\n", s[0]) >= 0 {
		return "'" + s
	}
	return s
}

// Row returns a row of a CSV file with its end (RFC 4180). Line ends within cells stay as they are.
func Row(cells ...string) string {
	var b strings.Builder
	w := csv.NewWriter(&b)
	_ = w.Write(cells) // a Builder never fails
	w.Flush()
	return strings.TrimSuffix(b.String(), "\n") + "\r\n"
}
