package gitpillar

import _ "embed"

// Python is the text of a function git_pillars(opts, entries). With it Salt's own git_pillar reads
// the directories of [ForPython] and fetches nothing.
//
//go:embed stub.py
var Python string

// ForPython returns the directories of one git entry in ext_pillar, roots, in the form that the
// Python function git_pillars expects.
func ForPython(roots []Root) []any {
	out := []any{}
	for _, r := range roots {
		out = append(out, []any{r.Env, r.Dir, r.Mounted})
	}
	return out
}
