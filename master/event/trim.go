package event

import "saltern/master/msgpack"

// trimmed replaces a value that is too large to travel
// (salt/utils/dicttrim.py).
const trimmed = "VALUE_TRIMMED"

// kept are the keys that the last resort keeps, if they are small.
var kept = [...]string{"id", "jid", "fun", "tag", "cmd", "success", "retcode", "_stamp"}

// trim returns a copy of data that packs to at most limit bytes. Like Salt it
// replaces the largest values first: those of the map and of maps inside it
// that take more than half of the limit, then more than 40 %, and so on.
// Unlike Salt it gives up in the end and keeps a few well-known keys only, so
// that the bound holds.
func trim(data *msgpack.Map, limit int) *msgpack.Map {
	for _, percent := range []int{50, 40, 30, 20, 10, 5, 1, 0} {
		data = trimMap(data, limit*percent/100, 0)
		if size(data) <= limit {
			return data
		}
	}
	out := &msgpack.Map{}
	for _, k := range kept {
		if v, ok := data.Get(k); ok && size(v) <= 256 {
			out.Set(k, v)
		}
	}
	out.Set("data", trimmed)
	return out
}

func trimMap(m *msgpack.Map, most, depth int) *msgpack.Map {
	out := &msgpack.Map{}
	for k, v := range m.All() {
		inner, isMap := v.(*msgpack.Map)
		switch {
		case isMap && depth < 60:
			out.Set(k, trimMap(inner, most, depth+1))
		case large(v, most):
			out.Set(k, trimmed)
		default:
			out.Set(k, v)
		}
	}
	return out
}

// large tells whether v takes more than most bytes; short values never are,
// since replacing them would not make them shorter.
func large(v any, most int) bool {
	n := size(v)
	return n > most && n > len(trimmed)+1
}

func size(v any) int {
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
