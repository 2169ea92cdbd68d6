package conf

import (
	"fmt"
	"log/slog"
	"slices"

	"saltern/master/internal/engine/entry"
	"saltern/master/value"
)

// composites adds notes about parts of map and list options that this master does not support. The
// table of parts determines most checks; code makes those checks that the table cannot describe.
func (a *assembly) composites(m *Master) {
	a.postgres(m)
	if a.loader.Tool {
		return
	}
	a.checkParts()
	a.groups(m.Nodegroups)
	a.reactions(m.Reactor.Rules)
	a.engines(m.Engines)
}

// partRemark adds a note about an unsupported entry of an option. If entry is "", the note is about
// the whole option.
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

// groups adds notes about nodegroups that are neither an expression nor a list of an expression's
// words.
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

// reactions adds notes about entries of reactor that are not a map from one tag to its files. Salt
// ignores such entries (salt/utils/reactor.py list_reactors).
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

// engines adds notes about entries of engines that the master cannot run.
func (a *assembly) engines(option any) {
	_, faults := entry.Parse(option)
	for _, fault := range faults {
		a.partRemark("engines", "", "%v", fault)
	}
}
