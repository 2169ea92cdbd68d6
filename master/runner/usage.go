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

// Docs returns the built-in functions that match query, by name. query is the name of a function,
// the name of a module, or a pattern with "*"; "" matches all functions (salt/client/mixins.py
// get_docs).
func Docs(query string) map[string]Doc {
	docs := map[string]Doc{}
	for _, defs := range allDefs() {
		for name, d := range defs() {
			docs[name] = Doc{Usage: UsageOf(name, d.params)}
		}
	}
	for _, added := range []map[string]added{addedByMaster, addedByCluster} {
		for name, a := range added {
			docs[name] = Doc{Usage: UsageOf(name, a.params), About: a.about}
		}
	}

	for name := range docs {
		if !asksFor(query, name) {
			delete(docs, name)
		}
	}
	return docs
}

// asksFor reports whether query, as in [Docs], matches the function name.
func asksFor(query, name string) bool {
	switch {
	case query == "" || query == name:
		return true
	case strings.Contains(query, "*"):
		return pattern.Glob(query, name)
	}
	return strings.HasPrefix(name, strings.TrimSuffix(query, ".")+".")
}
