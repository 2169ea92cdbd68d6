// Package reactor runs the reactions that the option reactor defines for events. A Map determines
// which files react to a tag. A Compiler compiles these files with Salt's own reactor. An Engine
// executes the reactions.
//
// Source: salt/utils/reactor.py (Reactor.list_reactors, ReactWrap.run).
package reactor

import (
	"fmt"
	"slices"

	"saltern/master/pattern"
	"saltern/master/value"
)

// user is the user name under which reactions run. Events with this user name cause no reactions.
const user = "Reactor"

// Map is the parsed option reactor: it determines which files react to which tags, in order.
type Map struct{ rules []rule }

type rule struct {
	tag   string
	files []string
}

// Parse parses the option reactor. It leaves out entries that Salt would skip, and returns an error
// for each of them.
func Parse(option []any) (Map, []error) {
	var m Map
	var faults []error
	for i, e := range option {
		entry, ok := e.(*value.Map)
		if !ok || entry.Len() != 1 {
			faults = append(faults, fmt.Errorf("reactor: entry %d is not a map of one tag to its files", i+1))
			continue
		}

		for k, v := range entry.All() {
			tag, ok := k.(string)
			files, all := textsIn(v)
			if !ok || len(files) == 0 {
				faults = append(faults, fmt.Errorf("reactor: entry %d names no files", i+1))
				continue
			}

			if !all {
				faults = append(faults,
					fmt.Errorf("reactor: entry %d names something that is no file; the others count", i+1))
			}

			m.rules = append(m.rules, rule{tag, files})
		}
	}

	return m, faults
}

// textsIn returns the strings in v, which may be one string or a list of strings. all is false if v
// contains values of other types.
func textsIn(v any) (found []string, all bool) {
	switch v := v.(type) {
	case string:
		return []string{v}, true
	case []any:
		for _, e := range v {
			if s, ok := e.(string); ok {
				found = append(found, s)
			}
		}
		return found, len(found) == len(v)
	}
	return nil, false
}

// All returns the rules in the form of the option.
func (m Map) All() []any {
	out := []any{}
	for _, r := range m.rules {
		out = append(out, value.NewMap(r.tag, value.List(r.files)))
	}
	return out
}

// Added returns the rules with a new rule at the end. ok is false if there already is a rule for
// the tag, or if files contains no file.
func (m Map) Added(tag string, files any) (Map, bool) {
	list, all := textsIn(files)
	if m.hasTag(tag) || tag == "" || len(list) == 0 || !all {
		return m, false
	}
	return Map{append(slices.Clone(m.rules), rule{tag, list})}, true
}

// Removed returns the rules without the first rule for the tag. ok is false if there is no rule for
// the tag.
func (m Map) Removed(tag string) (Map, bool) {
	for i, r := range m.rules {
		if r.tag == tag {
			return Map{slices.Delete(slices.Clone(m.rules), i, i+1)}, true
		}
	}
	return m, false
}

func (m Map) hasTag(tag string) bool {
	return slices.ContainsFunc(m.rules, func(r rule) bool { return r.tag == tag })
}

// Files returns the files that react to a tag, in the order of the option.
func (m Map) Files(tag string) (out []string) {
	for _, r := range m.rules {
		if pattern.Glob(r.tag, tag) {
			out = append(out, r.files...)
		}
	}
	return out
}
