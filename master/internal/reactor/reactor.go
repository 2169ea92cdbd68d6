// Package reactor runs the reactions that the option reactor defines for events. A Map determines
// which files react to a tag. A Compiler compiles these files with Salt's own reactor. An Engine
// executes the reactions.
//
// Source: salt/utils/reactor.py (Reactor.list_reactors, ReactWrap.run).
package reactor

import (
	"fmt"

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

// count returns how many rules there are for the tag.
func (m Map) count(tag string) (n int) {
	for _, r := range m.rules {
		if r.tag == tag {
			n++
		}
	}
	return n
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
