package conf

import (
	"fmt"
	"log/slog"
	"slices"

	"saltern/master/internal/engine/entry"
	"saltern/master/value"
)

// composites notes what is not obeyed in options whose values are maps, or lists of maps:
// keys by the table of parts, and the forms of values that a table does not say.
func (a *assembly) composites(m *Master) {
	if a.loader.Tool {
		return
	}
	a.parts()
	a.groups(m.Nodegroups)
	a.reactions(m.Reactor.Rules)
	a.engines(m.Engines)
}

// partRemark notes what is not obeyed of an entry of an option; "" stands for the option.
func (a *assembly) partRemark(option, entry, format string, args ...any) {
	o := a.placeIn(option, entry)
	a.notes = append(a.notes, Note{
		Level:  slog.LevelWarn,
		Option: option,
		Path:   o.path,
		Line:   o.line,
		Text:   fmt.Sprintf(format, args...),
	})
}

// groups looks at nodegroups: an expression, or a list of its words.
func (a *assembly) groups(groups *value.Map) {
	for name, v := range groups.All() {
		words, list := v.([]any)
		_, text := v.(string)
		wrong := slices.ContainsFunc(words, func(w any) bool { _, ok := w.(string); return !ok })
		if !text && !list || wrong {
			a.partRemark("nodegroups", fmt.Sprint(name),
				"group %v: expected an expression, or a list of texts, found %s; it has no minions", name,
				value.Repr(v))
		}
	}
}

// reactions looks at reactor: a list of maps of one tag to its files (salt/utils/reactor.py
// list_reactors passes over all else).
func (a *assembly) reactions(option []any) {
	for i, v := range option {
		entry, ok := v.(*value.Map)
		if !ok || entry.Len() != 1 {
			a.partRemark("reactor", "", "entry %d is not a map of one tag to its files, and is passed over", i+1)
			continue
		}

		for tag, files := range entry.All() {
			list, isList := files.([]any)
			if _, text := files.(string); text {
				list, isList = []any{files}, true
			}

			wrong := slices.ContainsFunc(list, func(f any) bool { _, ok := f.(string); return !ok })
			if !isList || len(list) == 0 || wrong {
				a.partRemark("reactor", "", "entry %d, tag %v: expected the paths of files, found %s", i+1,
					tag, value.Repr(files))
			}
		}
	}
}

// engines looks at the entries of engines that do not run.
func (a *assembly) engines(option any) {
	_, faults := entry.Parse(option)
	for _, fault := range faults {
		a.partRemark("engines", "", "%v", fault)
	}
}
