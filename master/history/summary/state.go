package summary

import (
	"bytes"
	"strings"

	"saltern/internal/printable"
	"saltern/master/msgpack"
	"saltern/master/value"
)

// separator stands between the parts of a state's tag: module, id, name and function
// (salt/state.py _gen_tag).
var separator = []byte("_|-")

// Packed values of one byte.
var (
	packedNil   = []byte{0xc0}
	packedFalse = []byte{0xc2}
)

// smallLimits bound numbers and what may stand in their place, changesLimits the changes of a state.
var (
	smallLimits   = msgpack.Limits{Depth: 2, Nodes: 1000}
	changesLimits = msgpack.Limits{Depth: 32, Nodes: 20_000}
)

// truth returns Python's bool() of packed changes. They may be nil: there are none.
func truth(packed []byte) bool {
	if len(packed) == 0 {
		return false
	}
	if c := packed[0]; c > 0x80 && c <= 0x8f { // a map with entries, as almost all changes are
		return true
	}
	v, err := msgpack.Decode(packed, changesLimits)
	return err != nil || value.Truth(v)
}

// state returns the texts of a state; if whole is false, without its comment and changes.
func (p *packedState) state(whole bool) State {
	module, id, name, function := splitTag(p.tag)
	s := State{
		ID:       cleanText(fieldText(p.id, id)),
		SLS:      cleanText(fieldText(p.sls, nil)),
		Name:     cleanText(fieldText(p.name, name)),
		Function: cleanText(string(module) + "." + string(function)),
		Duration: p.duration,
	}
	if !whole {
		return s
	}

	if text, ok := msgpack.Contents(p.comment); ok {
		s.Comment = cleanText(firstLine(text))
	} else if v, err := msgpack.Decode(p.comment, changesLimits); err == nil && value.Truth(v) {
		s.Comment = cleanText(value.StrMax(v, MaxText))
	}
	if truth(p.changes) {
		s.Changes = changesText(p.changes)
	}
	return s
}

// splitTag returns the parts of a tag. The name of a state may contain the separator.
func splitTag(tag []byte) (module, id, name, function []byte) {
	module, rest, _ := bytes.Cut(tag, separator)
	id, rest, _ = bytes.Cut(rest, separator)
	if i := bytes.LastIndex(rest, separator); i >= 0 {
		return module, id, rest[:i], rest[i+len(separator):]
	}
	return module, id, nil, rest
}

// fieldText returns a packed text, or def if the field is absent or no text.
func fieldText(packed, def []byte) string {
	if text, ok := msgpack.Contents(packed); ok {
		return string(text[:min(len(text), 8*MaxText)])
	}
	return string(def[:min(len(def), 8*MaxText)])
}

// changesText describes the changes of a state within MaxText bytes.
func changesText(packed []byte) string {
	v, err := msgpack.Decode(packed, changesLimits)
	if err != nil {
		return "more changes than can be shown"
	}
	w := changesWriter{}
	w.write("", v, 0)
	return w.text()
}

// changesWriter writes changes as a text, and stops when it is long enough.
type changesWriter struct{ parts []string }

func (w *changesWriter) size() (n int) {
	for _, p := range w.parts {
		n += len(p) + 2
	}
	return n
}

const maxChangesDepth = 4

// write adds v, the changes at path.
func (w *changesWriter) write(path string, v any, depth int) {
	if w.size() > MaxText {
		return
	}

	m, ok := v.(*value.Map)
	if !ok || depth > maxChangesDepth {
		w.add(path, plain(v))
		return
	}

	before, hasOld := m.Get("old")
	after, hasNew := m.Get("new")
	if hasOld && hasNew && m.Len() == 2 {
		w.add(path, plain(before)+" → "+plain(after))
		return
	}

	for k, e := range m.All() {
		key := value.StrMax(k, MaxText)
		if diff, ok := e.(string); ok && key == "diff" {
			w.add(path, diffText(diff))
			continue
		}
		if path != "" {
			key = path + "." + key
		}
		w.write(key, e, depth+1)
	}
}

func (w *changesWriter) add(path, text string) {
	if path != "" {
		text = cleanText(path) + ": " + text
	}
	w.parts = append(w.parts, text)
}

func plain(v any) string {
	if v == "" || v == nil {
		return "nothing"
	}
	return cleanText(value.StrMax(v, MaxText))
}

// diffText returns the changed lines of a unified diff, or the whole text when it has none, as for
// "New file".
func diffText(diff string) string {
	var out []string
	size := 0
	for line := range strings.SplitSeq(diff, "\n") {
		header := strings.HasPrefix(line, "+++ ") || strings.HasPrefix(line, "--- ")
		changed := strings.HasPrefix(line, "+") || strings.HasPrefix(line, "-")
		if header || !changed {
			continue
		}

		line = cleanText(line)
		out = append(out, line)
		size += len(line) + 1
		if size > MaxText {
			break
		}
	}

	if len(out) == 0 {
		return cleanText(diff)
	}
	return strings.Join(out, "\n")
}

func (w *changesWriter) text() string {
	const mark = len("…")
	s := strings.Join(w.parts, "\n")
	if len(s) > MaxText {
		s = printable.Clip(s, MaxText-mark)
	}
	return s
}
