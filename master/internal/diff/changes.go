package diff

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"saltern/internal/printable"
	"saltern/master/internal/pillar"
	"saltern/master/runner"
	"saltern/master/saltyaml"
	"saltern/master/value"
)

// Kinds of a change.
const (
	added   = "added"
	removed = "removed"
	changed = "changed"
)

// Bounds of what a report shows of one change, in bytes, and of one minion's changes.
const (
	maxShown   = 400
	maxPath    = 400
	maxChanges = 500
)

// errorsPath is the path of the errors of a pillar, or of states (salt/pillar/__init__.py).
const errorsPath = "_errors"

// change is one difference between the pillars of a minion.
type change struct {
	path     string
	kind     string
	from, to string // what is shown of the values
	hidden   bool   // something of the values is not shown
}

// walker finds the changes between two values.
type walker struct {
	mask    *mask
	changes []change
	more    int // changes beyond maxChanges
}

// maps adds the changes between two maps at a path.
func (w *walker) maps(path string, from, to *value.Map, at *placeTree) {
	for k, old := range from.All() {
		below := w.join(path, k, isAlike(k, from, to))
		hiddenHere := w.mask.names.hasIn(from, k) || w.mask.names.hasIn(to, k)
		now, there := to.GetAny(k)
		a, b := asMap(old), asMap(now)
		switch {
		case !there:
			w.add(below, removed, old, nil, at.child(k), hiddenHere)
		case equal(old, now):
		case a != nil && b != nil && !hiddenHere:
			w.maps(below, a, b, at.child(k))
		default:
			w.add(below, changed, old, now, at.child(k), hiddenHere)
		}
	}

	for k, now := range to.All() {
		if _, there := from.GetAny(k); !there {
			w.add(w.join(path, k, isAlike(k, from, to)), added, nil, now, at.child(k), w.mask.names.hasIn(to, k))
		}
	}
}

func asMap(v any) *value.Map {
	m, _ := v.(*value.Map)
	return m
}

// isAlike reports whether a key is a text that looks like another key of the maps, such as "1" beside 1.
func isAlike(key any, maps ...*value.Map) bool {
	text, _ := key.(string)
	if text == "" || len(text) > maxPath {
		return false
	}
	other, err := saltyaml.Decode([]byte(text), "")
	if _, isText := other.(string); err != nil || isText || other == nil {
		return false
	}
	return slices.ContainsFunc(maps, func(m *value.Map) bool {
		_, there := m.GetAny(other)
		return there
	})
}

// join returns the path of a key as pillar.get takes it, or with the key in quotes.
func (w *walker) join(path string, key any, isQuoted bool) string {
	name := printable.Clean(value.StrMax(w.mask.key(key), maxPath))
	if isQuoted {
		name = strconv.Quote(name)
	}
	if path != "" {
		name = path + ":" + name
	}
	return cut(name, maxPath)
}

func (w *walker) add(path, kind string, from, to any, at *placeTree, secret bool) {
	if len(w.changes) >= maxChanges {
		w.more++
		return
	}
	if secret {
		at = &placeTree{whole: true}
	}

	c := change{path: path, kind: kind}
	isErrors := path == errorsPath
	var hidden bool
	if kind != added {
		c.from, hidden = w.show(from, at, isErrors)
		c.hidden = c.hidden || hidden
	}
	if kind != removed {
		c.to, hidden = w.show(to, at, isErrors)
		c.hidden = c.hidden || hidden
	}
	w.changes = append(w.changes, c)
}

func (w *walker) show(v any, at *placeTree, isErrors bool) (string, bool) {
	if isErrors {
		v = firstLines(v)
	}
	shown, hidden := w.mask.shown(v, at)
	return cut(runner.JSON(shown, false), maxShown), hidden
}

// firstLines returns the first line of each error. The others may hold parts of templates and
// values.
func firstLines(v any) any {
	list, ok := v.([]any)
	if !ok {
		return v
	}
	out := make([]any, len(list))
	for i, e := range list {
		text, _, _ := strings.Cut(value.Str(e), "\n")
		out[i] = text
	}
	return out
}

func cut(text string, longest int) string {
	if len(text) <= longest {
		return text
	}
	return strings.ToValidUTF8(text[:longest], "") + "…"
}

// topChanges returns the SLS that only one side selects, as "env/sls".
func topChanges(from, to *pillar.Outcome) (gone, new []string) {
	has := func(list []pillar.FileKey) map[pillar.FileKey]bool {
		set := map[pillar.FileKey]bool{}
		for _, k := range list {
			set[k] = true
		}
		return set
	}

	before, after := has(from.Selected), has(to.Selected)
	for _, k := range from.Selected {
		if !after[k] {
			gone = append(gone, nameOf(k))
			after[k] = true
		}
	}
	for _, k := range to.Selected {
		if !before[k] {
			new = append(new, nameOf(k))
			before[k] = true
		}
	}
	return gone, new
}

// nameOf returns the name of an SLS for a report.
func nameOf(k pillar.FileKey) string {
	sls := k.SLS
	if sls == "" {
		sls = "the top file"
	}
	if k.Env != "base" {
		sls = fmt.Sprintf("%s in %s", sls, k.Env)
	}
	return printable.Clean(cut(sls, maxPath))
}
