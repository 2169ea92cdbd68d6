package printable

import "strings"

// Brief returns foreign text in a form that fits inside a line of ours, in a log, an error or a
// status: as [Clean] does, with each run of white space as one space, and cut as [Clip] does.
func Brief(s string, most int) string {
	return Clip(Clean(strings.Join(strings.Fields(s), " ")), most)
}

// LastLine is Brief for the last line of a program's output, where programs usually state why they
// failed.
func LastLine(s string, most int) string {
	s = strings.TrimSpace(s)
	return Brief(s[strings.LastIndexByte(s, '\n')+1:], most)
}

// Clip cuts a text with more bytes than most, between two characters, and marks the cut.
func Clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
