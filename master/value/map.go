package value

import (
	"fmt"
	"iter"
)

// IndexAt is the number of entries from which a Map has a hash index. Searching a smaller map entry
// by entry is faster and takes less memory. Code that counts the memory of a Map must add the index
// from that size on.
const IndexAt = 12

type entry struct{ key, val any }

// Map is a map that keeps the order in which keys were set. Keys may be any scalar (nil, bool,
// integers, float64, string); Set panics for other keys, and decoders refuse them. The zero value
// and a nil *Map are empty maps; Set on a nil *Map panics.
type Map struct {
	entries []entry
	index   map[any]int
}

// NewMap returns a map of the keys and values that alternate in kv. It panics when the length of kv
// is odd.
func NewMap(kv ...any) *Map {
	if len(kv)%2 != 0 {
		panic("value: NewMap needs pairs of keys and values")
	}
	m := &Map{entries: make([]entry, 0, len(kv)/2)}
	for i := 0; i < len(kv); i += 2 {
		m.Set(kv[i], kv[i+1])
	}
	return m
}

// Sized returns an empty map with a capacity of n keys.
func Sized(n int) *Map { return &Map{entries: make([]entry, 0, n)} }

// scalarKey converts an integer key to the type that decoders produce, so that look-ups do not
// depend on the caller's integer type. It returns false for a key that is not a scalar.
func scalarKey(k any) (any, bool) {
	switch k := k.(type) {
	case nil, bool, int64, float64, string:
		return k, true
	case uint64:
		if k <= 1<<63-1 {
			return int64(k), true
		}
		return k, true
	case int:
		return int64(k), true
	}
	return nil, false
}

func (m *Map) find(k any) int {
	if m == nil {
		return -1
	}
	if m.index != nil {
		if i, ok := m.index[k]; ok {
			return i
		}
		return -1
	}

	for i := range m.entries {
		if m.entries[i].key == k {
			return i
		}
	}

	return -1
}

// Len returns the number of keys.
func (m *Map) Len() int {
	if m == nil {
		return 0
	}
	return len(m.entries)
}

// Get returns the value of a text key, and false when there is none.
func (m *Map) Get(key string) (any, bool) {
	if i := m.find(key); i >= 0 {
		return m.entries[i].val, true
	}
	return nil, false
}

// Value returns the value of a text key, or nil when there is none.
func (m *Map) Value(key string) any {
	v, _ := m.Get(key)
	return v
}

// GetAny returns the value of a key of any scalar type, and false when there is none.
func (m *Map) GetAny(key any) (any, bool) {
	k, ok := scalarKey(key)
	if !ok {
		return nil, false
	}
	if i := m.find(k); i >= 0 {
		return m.entries[i].val, true
	}
	return nil, false
}

// Set stores a value. If the key exists already, it keeps its position in the order. Set panics
// when key is not a scalar.
func (m *Map) Set(key, val any) {
	k, ok := scalarKey(key)
	if !ok {
		panic(fmt.Sprintf("value: %T cannot be a map key", key))
	}

	if i := m.find(k); i >= 0 {
		m.entries[i].val = val
		return
	}

	m.entries = append(m.entries, entry{k, val})
	if m.index != nil {
		m.index[k] = len(m.entries) - 1
	} else if len(m.entries) >= IndexAt {
		m.reindex()
	}
}

func (m *Map) reindex() {
	m.index = make(map[any]int, len(m.entries))
	for i := range m.entries {
		m.index[m.entries[i].key] = i
	}
}

// Delete removes a key if it exists.
func (m *Map) Delete(key any) {
	k, ok := scalarKey(key)
	if !ok {
		return
	}
	i := m.find(k)
	if i < 0 {
		return
	}
	m.entries = append(m.entries[:i], m.entries[i+1:]...)
	if m.index != nil {
		m.reindex()
	}
}

// All yields keys and values in order. The map must not be changed during the iteration.
func (m *Map) All() iter.Seq2[any, any] {
	return func(yield func(any, any) bool) {
		if m == nil {
			return
		}
		for _, e := range m.entries {
			if !yield(e.key, e.val) {
				return
			}
		}
	}
}

// Update sets all keys of o in m, like Python's dict.update.
func (m *Map) Update(o *Map) {
	for k, v := range o.All() {
		m.Set(k, v)
	}
}

// Keys returns the text keys in order, without keys of other types.
func (m *Map) Keys() []string {
	if m == nil {
		return nil
	}
	out := make([]string, 0, len(m.entries))
	for _, e := range m.entries {
		if s, ok := e.key.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

// Str returns the text under key, or "" when there is no text.
func (m *Map) Str(key string) string {
	v, _ := m.Get(key)
	s, _ := v.(string)
	return s
}

// Bytes returns the text or the bytes under key as bytes, since MessagePack without bin types does
// not distinguish them. It returns false for any other value.
func (m *Map) Bytes(key string) ([]byte, bool) {
	v, _ := m.Get(key)
	switch v := v.(type) {
	case []byte:
		return v, true
	case string:
		return []byte(v), true
	}
	return nil, false
}

// Int returns the integer under key, and false when there is none.
func (m *Map) Int(key string) (int64, bool) {
	v, _ := m.Get(key)
	switch v := v.(type) {
	case int64:
		return v, true
	case int:
		return int64(v), true
	}
	return 0, false
}

// Bool returns the boolean under key, or false when there is none.
func (m *Map) Bool(key string) bool {
	v, _ := m.Get(key)
	b, _ := v.(bool)
	return b
}

// Map returns the map under key, or nil when there is none.
func (m *Map) Map(key string) *Map {
	v, _ := m.Get(key)
	s, _ := v.(*Map)
	return s
}

// List returns the list under key, or nil when there is none.
func (m *Map) List(key string) []any {
	v, _ := m.Get(key)
	l, _ := v.([]any)
	return l
}

// Texts returns the texts in the list under key, without other values.
func (m *Map) Texts(key string) (out []string) {
	for _, v := range m.List(key) {
		if s, ok := v.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

// Clone returns a copy of the map that shares the values.
func (m *Map) Clone() *Map {
	c := &Map{}
	if m == nil {
		return c
	}
	c.entries = append(make([]entry, 0, len(m.entries)), m.entries...)
	if m.index != nil {
		c.reindex()
	}
	return c
}

// Ext is an extension value of MessagePack, which the master passes on unchanged. Salt uses type 78
// for times and 79 for named constants (salt/payload.py).
type Ext struct {
	Type int8
	Data []byte
}

// List returns the elements of l as a list of values.
func List[T any](l []T) []any {
	out := make([]any, len(l))
	for i, v := range l {
		out[i] = v
	}
	return out
}
