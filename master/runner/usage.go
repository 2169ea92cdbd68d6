package runner

import (
	"strings"

	"saltern/master/pattern"
)

// Doc describes a built-in function for people.
type Doc struct {
	Usage string // how to call the function on a command line
	// About is a description of the function. It is "" for a function that Salt has, since Salt's
	// documentation describes it.
	About string
}

// Docs returns the built-in functions that match asked, by name. asked is the name of a function,
// the name of a module, or a pattern with "*"; "" matches all functions (salt/client/mixins.py
// get_docs).
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

// asksFor reports whether asked, as in [Docs], matches a function.
func asksFor(asked, name string) bool {
	switch {
	case asked == "" || asked == name:
		return true
	case strings.Contains(asked, "*"):
		return pattern.Glob(asked, name)
	}
	return strings.HasPrefix(name, strings.TrimSuffix(asked, ".")+".")
}
