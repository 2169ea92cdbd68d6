package value

import (
	"math"
	"slices"
)

// Equal reports whether Python's == is true for plain data: 1, 1.0 and True are equal, the order of
// maps does not matter, and NaN equals nothing.
func Equal(a, b any) bool {
	if x, ok := Scalar(a); ok {
		y, ok := Scalar(b)
		return ok && x == y
	}

	switch a := a.(type) {
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, Equal)
	case *Map:
		b, ok := b.(*Map)
		if !ok || a.Len() != b.Len() {
			return false
		}

		for k, v := range a.All() {
			if w, ok := b.GetAny(k); !ok || !Equal(v, w) {
				return false
			}
		}

		return true
	}

	return false
}

// Scalar returns the same value for all scalars that are equal in Python, such as 1, 1.0 and True.
// It returns false for lists, maps and NaN.
func Scalar(v any) (any, bool) {
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
