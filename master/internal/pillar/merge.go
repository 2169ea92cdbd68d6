package pillar

import (
	"math"
	"strings"

	"saltern/master/value"
)

// merge puts b over a by a strategy (salt/utils/dictupdate.py merge). The
// result may share values with both; neither is changed.
func merge(a, b *value.Map, strategy string, lists bool) *value.Map {
	switch strategy {
	case "smart", "recurse": // smart differs only for yamlex, which runs in Python
		return update(a, b, lists)
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
		for k, v := range b.All() {
			out.Set(k, v)
		}
		return out
	default: // none, and names that do not exist
		return update(a, b, false)
	}
}

// update merges maps at every level; of other values the one of b wins,
// except that lists may be joined, without values that are there already.
func update(a, b *value.Map, lists bool) *value.Map {
	out := a.Clone()
	for k, v := range b.All() {
		old, _ := out.GetAny(k)
		switch v := v.(type) {
		case *value.Map:
			if m, ok := old.(*value.Map); ok {
				out.Set(k, update(m, v, lists))
				continue
			}
		case []any:
			if l, ok := old.([]any); ok && lists {
				out.Set(k, join(l, v))
				continue
			}
		}
		out.Set(k, v)
	}
	return out
}

// join appends to a the values of b that a does not have. Duplicates inside
// b itself stay, as in Salt.
func join(a, b []any) []any {
	seen := make(map[any]struct{}, len(a))
	var compound []any
	for _, v := range a {
		if k, ok := scalar(v); ok {
			seen[k] = struct{}{}
		} else {
			compound = append(compound, v)
		}
	}
	out := append(make([]any, 0, len(a)+len(b)), a...)
	for _, v := range b {
		if k, ok := scalar(v); ok {
			if _, there := seen[k]; there {
				continue
			}
		} else if contains(compound, v) {
			continue
		}
		out = append(out, v)
	}
	return out
}

func contains(list []any, v any) bool {
	for _, x := range list {
		if equal(x, v) {
			return true
		}
	}
	return false
}

// scalar brings values that Python holds equal to one form: 1, 1.0 and True.
func scalar(v any) (any, bool) {
	switch v := v.(type) {
	case nil, string, uint64, int64:
		return v, true
	case int:
		return int64(v), true
	case bool:
		if v {
			return int64(1), true
		}
		return int64(0), true
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return int64(v), true
		}
		return v, !math.IsNaN(v)
	case []byte:
		return "\x00bytes\x00" + string(v), true
	}
	return nil, false
}

// equal is Python's == for plain data: maps without regard to order.
func equal(a, b any) bool {
	if x, ok := scalar(a); ok {
		y, ok := scalar(b)
		return ok && x == y
	}
	switch a := a.(type) {
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !equal(a[i], b[i]) {
				return false
			}
		}
		return true
	case *value.Map:
		b, ok := b.(*value.Map)
		if !ok || a.Len() != b.Len() {
			return false
		}
		for k, v := range a.All() {
			if w, ok := b.GetAny(k); !ok || !equal(v, w) {
				return false
			}
		}
		return true
	}
	return false
}

// needsPython tells of strategies that depend on marks inside values, which
// only Salt's own objects carry (salt/serializers/yamlex.py).
func needsPython(strategy, renderer string) bool {
	parts := strings.Split(renderer, "|")
	return strategy == "aggregate" ||
		strategy == "smart" && (strings.TrimSpace(parts[len(parts)-1]) == "yamlex" || strings.HasPrefix(renderer, "yamlex_"))
}
