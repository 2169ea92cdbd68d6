package event

import (
	"saltern/master/msgpack"
	"saltern/master/value"
)

// trimmed is the text that replaces a value that is too large for an event
// (salt/utils/dicttrim.py).
const trimmed = "VALUE_TRIMMED"

// kept lists the keys that remain in an event if replacing values does not make the event small
// enough. All other keys are dropped then, and so are listed keys with large values.
var kept = [...]string{"id", "jid", "fun", "tag", "cmd", "success", "retcode", "_stamp", RefusedField}

// overflow is the factor by which a packed event may exceed max_event_size.
const overflow = 16

// Fit returns data for an answer of at most limit bytes. If data is larger, large values are replaced as in an
// event.
func Fit(data *value.Map, limit int) *value.Map {
	if packedSize(data) <= limit {
		return data
	}
	return trimToLimit(data, limit/overflow)
}

// trimToLimit returns a copy of data in which it replaces large values until the data packs to at
// most limit bytes. Like Salt it replaces the largest values first: those over half of the limit,
// then those over 40 %, and so on. Like Salt it stops at 10 %, so that a return of many small
// values, such as states, stays complete although it exceeds the limit. Salt does not bound such an
// event; trimToLimit also replaces small values if the event packs to more than overflow times the
// limit.
func trimToLimit(data *value.Map, limit int) *value.Map {
	for _, percent := range []int{50, 40, 30, 20, 10} {
		data = trimMap(data, limit*percent/100, 0, shallow)
		if packedSize(data) <= limit {
			return data
		}
	}

	overflowLimit := limit * overflow
	for _, percent := range []int{50, 10, 1, 0} {
		if packedSize(data) <= overflowLimit {
			return data
		}
		data = trimMap(data, limit*percent/100, 0, packedSize)
	}

	if packedSize(data) <= overflowLimit {
		return data
	}

	out := &value.Map{}
	for _, k := range kept {
		if v, ok := data.Get(k); ok && packedSize(v) <= 256 {
			out.Set(k, v)
		}
	}

	out.Set("data", trimmed)
	return out
}

// trimMap returns a copy of a map in which values that measure more than maxBytes are replaced.
func trimMap(m *value.Map, maxBytes, depth int, measure func(any) int) *value.Map {
	out := &value.Map{}
	for k, v := range m.All() {
		inner, isMap := v.(*value.Map)
		if isMap && depth < 60 {
			v = trimMap(inner, maxBytes, depth+1, measure)
		} else if n := measure(v); n > maxBytes && n > len(trimmed)+1 { // replacing a short value would not save anything
			v = trimmed
		}
		out.Set(k, v)
	}
	return out
}

// shallow returns roughly what Python's sys.getsizeof returns, within 60 bytes. For a list it
// returns the size of the slots without their contents.
func shallow(v any) int {
	switch v := v.(type) {
	case string:
		return len(v) + 49
	case []byte:
		return len(v) + 33
	case []any:
		return 8*len(v) + 56
	case *value.Map:
		return 100 * v.Len()
	}
	return 28
}

// packedSize returns an upper bound, only a few bytes too large, of the packed size of v.
func packedSize(v any) int {
	switch v := v.(type) {
	case nil, bool, int64, uint64, float64:
		return 9
	case string:
		return len(v) + 5
	case []byte:
		return len(v) + 5
	}
	b, err := msgpack.Marshal(v, msgpack.Modern)
	if err != nil {
		return 1 << 30
	}
	return len(b)
}

// Trimmed reports whether the data of an event lacks values that were replaced for its size.
func Trimmed(data *value.Map) bool {
	for _, v := range data.All() {
		if inner, ok := v.(*value.Map); v == trimmed || ok && Trimmed(inner) {
			return true
		}
	}
	return false
}
