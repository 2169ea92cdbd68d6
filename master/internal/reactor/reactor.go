// Package reactor turns events into reactions: Map knows which files react to a
// tag, Compile reads what such a file, once rendered, asks for, and Engine has it
// rendered and executes it.
//
// Source: salt/utils/reactor.py (Reactor.list_reactors, ReactWrap.run).
package reactor

import (
	"fmt"
	"slices"
	"strings"

	"saltern/master/event"
	"saltern/master/pattern"
	"saltern/master/value"
)

// user is the name under which reactions run; events that carry it do not
// react again.
const user = "Reactor"

// Map is the option reactor: which files react to which tags, in order.
type Map struct{ rules []rule }

type rule struct {
	tag   string
	files []string
}

// Parse reads the option; entries that Salt would pass over are returned as
// faults and passed over as well.
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
			files := texts(v)
			if !ok || len(files) == 0 {
				faults = append(faults, fmt.Errorf("reactor: entry %d names no files", i+1))
				continue
			}
			m.rules = append(m.rules, rule{tag, files})
		}
	}
	return m, faults
}

func texts(v any) []string {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		var out []string
		for _, e := range v {
			if s, ok := e.(string); ok {
				out = append(out, s)
			}
		}
		return out
	}
	return nil
}

// All lists the rules in the form of the option.
func (m Map) All() []any {
	out := []any{}
	for _, r := range m.rules {
		out = append(out, value.NewMap(r.tag, value.List(r.files)))
	}
	return out
}

// Added returns the rules with one more at the end; false when the tag has
// one already or no files are named.
func (m Map) Added(tag string, files any) (Map, bool) {
	list := texts(files)
	if m.has(tag) || tag == "" || len(list) == 0 {
		return m, false
	}
	return Map{append(slices.Clone(m.rules), rule{tag, list})}, true
}

// Removed returns the rules without the first one for the tag; false when
// there is none.
func (m Map) Removed(tag string) (Map, bool) {
	for i, r := range m.rules {
		if r.tag == tag {
			return Map{slices.Delete(slices.Clone(m.rules), i, i+1)}, true
		}
	}
	return m, false
}

func (m Map) has(tag string) bool {
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

// Kind says who executes a reaction.
type Kind string

// The kinds.
const (
	local  Kind = "local"
	Runner Kind = "runner"
	Wheel  Kind = "wheel"
	caller Kind = "caller"
)

// aliases are names of kinds from older releases.
var aliases = map[string]Kind{"cmd": local, "local": local, "runner": Runner, "wheel": Wheel, "caller": caller}

// Reaction is one thing to do.
type Reaction struct {
	ID   string
	Kind Kind
	Fun  string
	// Target, TargetType and Ret are for Local.
	Target     any
	TargetType string
	Ret        string
	Args       []any
	Kwargs     *value.Map
}

// weight is about how many bytes a reaction holds while it waits.
func (x *Reaction) weight() int {
	return event.Weight(value.NewMap("args", x.Args, "kwargs", x.Kwargs))
}

// internal keys of a reaction, which are no arguments of its function.
var internal = map[string]bool{
	"__id__": true, "__sls__": true, "name": true, "order": true, "fun": true, "key": true, "state": true, "tgt": true, "tgt_type": true,
	"ret": true, "arg": true, "args": true, "kwarg": true, "kwargs": true, "expr_form": true, "timeout": true,
}

// compile reads a rendered file: names mapped to {kind.function: arguments}.
// One faulty reaction makes the whole file fail, as in Salt.
func compile(high *value.Map) (out []Reaction, err error) {
	for k, v := range high.All() {
		id, ok := k.(string)
		if !ok {
			return nil, fmt.Errorf("reaction %v: its name is not text", k)
		}
		if strings.HasPrefix(id, "__") {
			continue
		}
		body, ok := v.(*value.Map)
		if !ok {
			return nil, fmt.Errorf("reaction %s: it is not a map", id)
		}
		for k, v := range body.All() {
			name, _ := k.(string)
			if strings.HasPrefix(name, "__") {
				continue
			}
			r, err := one(id, name, v)
			if err != nil {
				return nil, err
			}
			out = append(out, r)
		}
	}
	return out, nil
}

func one(id, name string, v any) (Reaction, error) {
	prefix, fun, ok := strings.Cut(name, ".")
	kind, known := aliases[prefix]
	if !ok || !known || fun == "" {
		return Reaction{}, fmt.Errorf("reaction %s: %q is none of local.FUNCTION, runner.FUNCTION, wheel.FUNCTION, caller.FUNCTION", id, name)
	}
	low, err := merge(v)
	if err != nil {
		return Reaction{}, fmt.Errorf("reaction %s: %w", id, err)
	}
	r := Reaction{ID: id, Kind: kind, Fun: fun, Ret: low.Str("ret"), TargetType: low.Str("tgt_type"), Kwargs: value.NewMap()}
	r.Target, _ = low.Get("tgt")
	if r.TargetType == "" {
		if r.TargetType = low.Str("expr_form"); r.TargetType == "" {
			r.TargetType = "glob"
		}
	}
	if kind == local && r.Target == nil {
		return Reaction{}, fmt.Errorf("reaction %s: local.%s has no tgt", id, fun)
	}
	if args, ok := low.Get("args"); ok {
		return r, r.newStyle(args)
	}
	r.Args = low.List("arg")
	kwarg, ok := low.Get("kwarg")
	if ok {
		if r.Kwargs, ok = asMap(kwarg); !ok {
			return Reaction{}, fmt.Errorf("reaction %s: kwarg is not a map", id)
		}
	} else if kind != local {
		for k, v := range low.All() {
			if s, ok := k.(string); ok && !internal[s] {
				r.Kwargs.Set(s, v)
			}
		}
	}
	return r, nil
}

// newStyle reads args: a list of maps with one key each, or a map; for caller
// a plain list holds positional arguments.
func (r *Reaction) newStyle(args any) error {
	if m, ok := asMap(args); ok {
		r.Kwargs = m
		return nil
	}
	if l, ok := args.([]any); ok && (r.Kind == caller || len(l) == 0) {
		r.Args = l
		return nil
	}
	return fmt.Errorf("reaction %s: args is neither a map nor a list of maps with one key each", r.ID)
}

// merge joins a list of maps with one key each, as states are written.
func merge(v any) (*value.Map, error) {
	switch v := v.(type) {
	case nil:
		return value.NewMap(), nil
	case *value.Map:
		return v, nil
	case []any:
		out := value.NewMap()
		for _, e := range v {
			m, ok := e.(*value.Map)
			if !ok {
				return nil, fmt.Errorf("an argument is not written as name: value")
			}
			out.Update(m)
		}
		return out, nil
	}
	return nil, fmt.Errorf("its arguments are neither a list nor a map")
}

func asMap(v any) (*value.Map, bool) {
	switch v := v.(type) {
	case *value.Map:
		return v, true
	case []any:
		out := value.NewMap()
		for _, e := range v {
			m, ok := e.(*value.Map)
			if !ok || m.Len() != 1 {
				return nil, false
			}
			out.Update(m)
		}
		return out, len(v) > 0
	}
	return nil, false
}
