package diff

import (
	"bytes"
	"math"
	"math/big"
	"slices"

	"saltern/master/value"
)

// equal reports whether two values are the same for a minion: 1, 1.0 and True differ, the order of
// maps does not count.
func equal(a, b any) bool {
	switch a := a.(type) {
	case *value.Map:
		b, ok := b.(*value.Map)
		if !ok || a.Len() != b.Len() {
			return false
		}
		for k, v := range a.All() {
			if w, there := b.GetAny(k); !there || !equal(v, w) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, equal)
	case []byte:
		b, ok := b.([]byte)
		return ok && bytes.Equal(a, b)
	case float64:
		b, ok := b.(float64)
		return ok && (a == b || math.IsNaN(a) && math.IsNaN(b))
	case *big.Int:
		b, ok := b.(*big.Int)
		return ok && a.Cmp(b) == 0
	case value.Ext:
		b, ok := b.(value.Ext)
		return ok && a.Type == b.Type && bytes.Equal(a.Data, b.Data)
	}
	return a == b
}
