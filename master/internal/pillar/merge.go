package pillar

import (
	"slices"
	"strings"

	"saltern/master/value"
)

// mergeBy returns a with b merged over it by the given strategy (salt/utils/dictupdate.py merge).
// It changes neither a nor b. The result may share values with both.
func mergeBy(a, b *value.Map, strategy string, lists bool) *value.Map {
	switch strategy {
	case "smart", "recurse": // "smart" differs from "recurse" only for yamlex, which runs in Python
		return mergeDeep(a, b, lists)
	case "list":
		out := value.NewMap()
		for k, v := range a.All() {
			if w, ok := b.GetAny(k); ok {
				v = []any{v, w}
			}
			out.Set(k, v)
		}

		return out
	case "overwrite":
		out := a.Clone()
		out.Update(b)
		return out
	default: // "none", and names that do not exist
		return mergeDeep(a, b, false)
	}
}

// mergeDeep merges b over a, map by map at every level. Other values of b replace those of a. If
// lists is set, a list of b is appended to the list of a, without the values that a already has.
func mergeDeep(a, b *value.Map, lists bool) *value.Map {
	out := a.Clone()
	for k, v := range b.All() {
		old, _ := out.GetAny(k)
		switch v := v.(type) {
		case *value.Map:
			if m, ok := old.(*value.Map); ok {
				out.Set(k, mergeDeep(m, v, lists))
				continue
			}
		case []any:
			if l, ok := old.([]any); ok && lists {
				out.Set(k, joinLists(l, v))
				continue
			}
		}

		out.Set(k, v)
	}

	return out
}

// joinLists returns a followed by those values of b that a lacks. A value that occurs twice in b is
// appended twice, as in Salt.
func joinLists(a, b []any) []any {
	seen := make(map[any]struct{}, len(a))
	var compound []any
	for _, v := range a {
		if k, ok := value.Scalar(v); ok {
			seen[k] = struct{}{}
		} else {
			compound = append(compound, v)
		}
	}

	out := append(make([]any, 0, len(a)+len(b)), a...)
	for _, v := range b {
		if k, ok := value.Scalar(v); ok {
			if _, there := seen[k]; there {
				continue
			}
		} else if slices.ContainsFunc(compound, func(x any) bool { return value.Equal(x, v) }) {
			continue
		}

		out = append(out, v)
	}

	return out
}

// needsPython reports whether a merging strategy depends on marks in the values. Only Salt's own
// objects have such marks (salt/serializers/yamlex.py).
func needsPython(strategy, renderer string) bool {
	parts := strings.Split(renderer, "|")
	return strategy == "aggregate" ||
		strategy == "smart" && (strings.TrimSpace(parts[len(parts)-1]) == "yamlex" ||
			strings.HasPrefix(renderer, "yamlex_"))
}
