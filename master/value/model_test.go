package value

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

// model is the simplest implementation of a Map. Two keys are the same key if type and value are
// the same; Python also treats 1, 1.0 and True as one key, but a Map distinguishes them.
type model struct {
	keys   []any
	values []any
}

func (m *model) at(key any) int {
	return slices.Index(m.keys, key)
}

func (m *model) set(key, v any) {
	if i := m.at(key); i >= 0 {
		m.values[i] = v
		return
	}
	m.keys, m.values = append(m.keys, key), append(m.values, v)
}

func (m *model) remove(key any) {
	if i := m.at(key); i >= 0 {
		m.keys, m.values = slices.Delete(m.keys, i, i+1), slices.Delete(m.values, i, i+1)
	}
}

// keyOf makes one of some hundred keys of several types.
func keyOf(b byte) any {
	n := int64(b >> 2)
	switch b & 3 {
	case 0:
		return n
	case 1:
		return float64(n)
	case 2:
		return fmt.Sprint(n)
	}
	return n%2 == 0
}

// FuzzMap compares a Map with its model after any sequence of operations: keys keep their place,
// and a clone is independent of its original.
func FuzzMap(f *testing.F) {
	f.Add([]byte("abcdefgh"))
	f.Add([]byte(strings.Repeat("\x00\x04\x08\x0c\x10\x14", 30)))
	f.Add([]byte("0d0e0")) // 25 and 25.0
	f.Fuzz(func(t *testing.T, ops []byte) {
		m, want := NewMap(), &model{}
		clone, kept := m.Clone(), model{}
		for i := 0; i+1 < len(ops); i += 2 {
			key := keyOf(ops[i+1])
			switch ops[i] % 5 {
			case 0:
				m.Delete(key)
				want.remove(key)
			case 1:
				clone, kept = m.Clone(), model{slices.Clone(want.keys), slices.Clone(want.values)}
			case 2:
				m.Update(NewMap(key, int64(i), "more", nil))
				want.set(key, int64(i))
				want.set("more", nil)
			default:
				m.Set(key, int64(i))
				want.set(key, int64(i))
			}
		}

		for name, pair := range map[string]struct {
			got  *Map
			want model
		}{"map": {m, *want}, "clone": {clone, kept}} {
			var keys, values []any
			for k, v := range pair.got.All() {
				keys, values = append(keys, k), append(values, v)
			}
			if !slices.EqualFunc(keys, pair.want.keys, Equal) || !slices.Equal(values, pair.want.values) || pair.got.Len() != len(keys) {
				t.Fatalf("%s: %v %v, want %v %v", name, keys, values, pair.want.keys, pair.want.values)
			}
			for i, k := range pair.want.keys {
				if v, ok := pair.got.GetAny(k); !ok || v != pair.want.values[i] {
					t.Fatalf("%s: %v is %v, %v", name, k, v, ok)
				}
			}
		}
	})
}

// FuzzJSONAgain: a parsed document can be written and parsed again with the same result, and
// ParseJSON accepts no text that other parsers refuse.
func FuzzJSONAgain(f *testing.F) {
	for _, text := range []string{`{"a": [1, 2.5, -0, 1e3, null, true, "\u00e4\ud83d\ude00"]}`, `{"a": 1, "a": 2}`, `[`, `1 2`, `""`, `1e400`,
		`123456789012345678901234567890`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := ParseJSON(b)
		if err != nil {
			return
		}
		if !json.Valid(b) {
			t.Fatalf("%q is taken for JSON", b)
		}
		for _, indent := range []int{-1, 2} {
			text, ok := JSON{Indent: indent}.Text(v)
			again, err := ParseJSON([]byte(text))
			if !ok || err != nil || !Equal(v, again) {
				t.Fatalf("%s became %s and then %s: %v", Repr(v), text, Repr(again), err)
			}
		}
	})
}

// TestEqualAsPython: values that are equal in Python are equal here, in both directions, and have
// the same truth value.
func TestEqualAsPython(t *testing.T) {
	equal := [][]any{
		{int64(1), 1.0, true, 1},
		{int64(0), 0.0, false, math.Copysign(0, -1)},
		{"a"}, {"1"}, {[]byte("a")}, {nil}, {math.NaN()}, {1.5},
		{[]any{}}, {[]any{int64(1)}, []any{true}},
		{NewMap("a", int64(1), "b", nil), NewMap("b", nil, "a", 1.0)},
		{NewMap("a", int64(1))}, {NewMap()},
	}
	for i, class := range equal {
		for j, other := range equal {
			for _, a := range class {
				for _, b := range other {
					f, nan := a.(float64)
					if got, want := Equal(a, b), i == j && !(nan && math.IsNaN(f)); got != want {
						t.Errorf("%s and %s: %v", Repr(a), Repr(b), got)
					}
					if i == j && Truth(a) != Truth(b) {
						t.Errorf("%s and %s have another truth", Repr(a), Repr(b))
					}
				}
			}
		}
	}
}
