package gitpillar

import _ "embed"

// Python is the text of a function git_pillars(opts, entries). It makes Salt's own git_pillar read
// the directories of [ForPython] and fetch nothing.
//
//go:embed stub.py
var Python string

// ForPython returns the directories of one git entry in ext_pillar in the form of Python's
// git_pillars.
func ForPython(roots []Root) []any {
	out := []any{}
	for _, r := range roots {
		out = append(out, []any{r.Env, r.Dir, r.Mounted})
	}
	return out
}
