package nodeapi

import (
	"slices"
	"strings"

	"saltern/internal/printable"
	"saltern/supervisor/status"
)

// Fatal reports whether the node has a problem that keeps it from serving.
func (s Summary) Fatal() bool {
	return slices.ContainsFunc(s.Problems, func(p status.Problem) bool { return p.Severity == status.Fatal })
}

// Cause returns the node's first problem on one line, or its state if it reports none.
func (s Summary) Cause() string {
	if len(s.Problems) == 0 {
		return "it says that it is " + Word(s.Node.State)
	}
	p := s.Problems[0]
	return printable.Brief(string(p.Code)+" "+p.Title+": "+p.Cause, 300)
}

// Word returns a text of another node in at most 40 characters: letters, digits, blanks, and the
// characters - + and dot. It removes all others.
func Word(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == ' ' || r == '-' || r == '+' || r == '.' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' ||
			r >= 'A' && r <= 'Z' {
			return r
		}
		return -1
	}, s[:min(len(s), 200)])
	return s[:min(len(s), 40)]
}
