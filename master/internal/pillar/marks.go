package pillar

import (
	"crypto/rand"
	"slices"

	"saltern/master/value"
)

// marked is a value of a pillar that is no map, with the files that gave it. While the origins of a
// pillar are traced, each such value of a file is a *marked, also where maps of several files have been
// merged.
type marked struct {
	value any
	// from are the numbers of the files that gave a value to this place, in the order of merging.
	from []int
	// gives has the files of from that gave the value, or a part of it if lists were joined.
	gives []int
}

// marksKey is the key under which a traced map has its marks, a []int: the files that gave a map or a
// lost value to its place. No file can have this key, because nobody knows it.
var marksKey = "\x00marks " + rand.Text()

// mark returns a copy of a value with marks of a file.
func mark(v any, file int) any {
	m, ok := v.(*value.Map)
	if !ok {
		return &marked{value: v, from: []int{file}, gives: []int{file}}
	}
	out := markBelow(m, file)
	out.Set(marksKey, []int{file})
	return out
}

// markBelow returns a copy of a map whose values have marks of a file.
func markBelow(m *value.Map, file int) *value.Map {
	out := value.Sized(m.Len() + 1)
	for k, v := range m.All() {
		out.Set(k, mark(v, file))
	}
	return out
}

// unmarked returns a value without marks.
func unmarked(v any) any {
	switch v := v.(type) {
	case *marked:
		return v.value
	case *value.Map:
		return unmarkedMap(v)
	}
	return v
}

func unmarkedMap(m *value.Map) *value.Map {
	out := value.Sized(m.Len())
	for k, v := range m.All() {
		if k != marksKey {
			out.Set(k, unmarked(v))
		}
	}
	return out
}

// marksOf returns the files that gave something to a value, or to a value that it replaced, sorted.
func marksOf(v any) (all []int) {
	var add func(v any)
	add = func(v any) {
		switch v := v.(type) {
		case *marked:
			all = append(all, v.from...)
		case []int:
			all = append(all, v...)
		case *value.Map:
			for _, x := range v.All() {
				add(x)
			}
		}
	}
	add(v)
	slices.Sort(all)
	return slices.Compact(all)
}

// givesOf returns the files whose values are a part of a value.
func givesOf(v any) (all []int) {
	switch v := v.(type) {
	case *marked:
		return v.gives
	case *value.Map:
		for _, x := range v.All() {
			all = append(all, givesOf(x)...)
		}
		own, _ := v.Value(marksKey).([]int)
		if v.Len() == 1 && len(own) > 0 { // an empty map
			all = append(all, own[len(own)-1])
		}
	}
	return all
}

// mergeMarked merges as mergeBy does, and keeps the marks of both maps.
func mergeMarked(a, b *value.Map, strategy string, lists bool) *value.Map {
	switch strategy {
	case "smart", "recurse":
		return mergeMarkedDeep(a, b, lists)
	case "list":
		return mergeMarkedPairs(a, b)
	case "overwrite":
		out := a.Clone()
		for k, v := range b.All() {
			old, _ := a.GetAny(k)
			out.Set(k, replaceMarked(old, v))
		}
		return out
	}
	return mergeMarkedDeep(a, b, false)
}

func mergeMarkedDeep(a, b *value.Map, lists bool) *value.Map {
	out := a.Clone()
	for k, v := range b.All() {
		old, there := a.GetAny(k)
		if !there {
			out.Set(k, v)
			continue
		}

		newMap, isMap := v.(*value.Map)
		oldMap, wasMap := old.(*value.Map)
		if isMap && wasMap {
			out.Set(k, mergeMarkedDeep(oldMap, newMap, lists))
			continue
		}
		if joined := joinMarked(old, v); lists && joined != nil {
			out.Set(k, joined)
			continue
		}
		out.Set(k, replaceMarked(old, v))
	}
	return out
}

// joinMarked returns two marked lists as one, or nil if one of the values is no list.
func joinMarked(a, b any) *marked {
	x, _ := a.(*marked)
	y, _ := b.(*marked)
	if x == nil || y == nil {
		return nil
	}
	first, isList := x.value.([]any)
	second, areLists := y.value.([]any)
	if !isList || !areLists {
		return nil
	}
	return &marked{
		value: joinLists(first, second),
		from:  slices.Concat(x.from, y.from),
		gives: slices.Concat(x.gives, y.gives),
	}
}

// mergeMarkedPairs merges by the strategy list: a key of both maps gets a list of both values.
func mergeMarkedPairs(a, b *value.Map) *value.Map {
	out := value.NewMap()
	for k, v := range a.All() {
		w, there := b.GetAny(k)
		switch {
		case !there:
			out.Set(k, v)
		case k == marksKey:
			out.Set(k, replaceMarked(v, w))
		default:
			out.Set(k, &marked{
				value: []any{unmarked(v), unmarked(w)},
				from:  slices.Concat(marksOf(v), marksOf(w)),
				gives: slices.Concat(givesOf(v), givesOf(w)),
			})
		}
	}
	return out
}

// replaceMarked returns a value that takes the place of another one, with the marks of both.
func replaceMarked(old, v any) any {
	switch v := v.(type) {
	case *marked:
		return &marked{value: v.value, from: slices.Concat(marksOf(old), v.from), gives: v.gives}
	case []int:
		lost, _ := old.([]int)
		return slices.Concat(lost, v)
	case *value.Map:
		before, _ := old.(*value.Map)
		out := value.Sized(v.Len() + 1)
		for k, x := range v.All() {
			was, _ := before.GetAny(k)
			out.Set(k, replaceMarked(was, x))
		}
		own, _ := v.Value(marksKey).([]int)
		out.Set(marksKey, slices.Concat(marksOf(old), own))
		return out
	}
	return v
}

// remark returns a value that something has made of a marked one. What is new in it gets marks of file,
// such as the number of an external pillar.
func remark(before, after any, file int) any {
	switch old := before.(type) {
	case *marked:
		if value.Equal(old.value, after) {
			return old
		}
	case *value.Map:
		m, ok := after.(*value.Map)
		if !ok {
			break
		}
		out := value.Sized(m.Len() + 1)
		for k, v := range m.All() {
			was, there := old.GetAny(k)
			if !there {
				out.Set(k, mark(v, file))
				continue
			}
			out.Set(k, remark(was, v, file))
		}
		if marks, there := old.Get(marksKey); there {
			out.Set(marksKey, marks)
		}
		return out
	}
	return replaceMarked(before, mark(after, file))
}
