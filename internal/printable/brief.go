package printable

import "strings"

// Brief makes text from elsewhere fit to stand inside a line of ours, in a log,
// an error or a status: it is [Clean], every run of white space is one space,
// and of more than most bytes the end is left out.
func Brief(s string, most int) string {
	return Clip(Clean(strings.Join(strings.Fields(s), " ")), most)
}

// LastLine is Brief for the last line, in which programs usually report their failure.
func LastLine(s string, most int) string {
	s = strings.TrimSpace(s)
	return Brief(s[strings.LastIndexByte(s, '\n')+1:], most)
}

// Clip cuts text after most bytes, between characters, and marks the cut.
func Clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
