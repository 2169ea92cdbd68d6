package runner

import (
	"strings"

	"saltern/master/pattern"
)

// Doc describes a built-in function for people.
type Doc struct {
	Usage string // how to call the function on a command line
	// About says what the function does. It is "" for a function of Salt's, whose documentation is Salt's.
	About string
}

// Docs returns the built-in functions whose documentation a user asks for, by name. asked is a name, the
// name of a module, or a pattern with "*"; "" asks for all functions (salt/client/mixins.py get_docs).
func Docs(asked string) map[string]Doc {
	docs := map[string]Doc{}
	for _, defs := range allDefs() {
		for name, d := range defs() {
			docs[name] = Doc{Usage: d.usageOf(name)}
		}
	}
	for _, added := range []map[string]added{addedByMaster, addedByCluster} {
		for name, a := range added {
			docs[name] = Doc{Usage: def{params: a.params}.usageOf(name), About: a.about}
		}
	}

	for name := range docs {
		if !asksFor(asked, name) {
			delete(docs, name)
		}
	}
	return docs
}

// asksFor reports whether asked, as in [Docs], asks for a function.
func asksFor(asked, name string) bool {
	switch {
	case asked == "" || asked == name:
		return true
	case strings.Contains(asked, "*"):
		return pattern.Glob(asked, name)
	}
	return strings.HasPrefix(name, strings.TrimSuffix(asked, ".")+".")
}
