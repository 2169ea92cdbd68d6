package memo

import "saltern/master/value"

// resultWeight is the memory that a result uses apart from its value and trace, in bytes: entries
// in maps and lists, and hashes.
const resultWeight = 640

// memoryOf returns an estimate of the memory that a value uses, in bytes. The estimate may be too
// high, but rarely too low.
func memoryOf(v any) int64 {
	switch v := v.(type) {
	case string:
		return 32 + int64(len(v))
	case []byte:
		return 40 + int64(len(v))
	case []any:
		n := 40 + 16*int64(cap(v))
		for _, x := range v {
			n += memoryOf(x)
		}
		return n
	case *value.Map:
		n := int64(64 + 48*v.Len())
		if v.Len() >= value.IndexAt {
			n += 96 * int64(v.Len())
		}

		for k, x := range v.All() {
			n += memoryOf(k) + memoryOf(x)
		}

		return n
	}

	return 16
}

// traceWeight returns an estimate of the memory that a result uses apart from its value, in bytes.
func traceWeight(t Trace) int64 {
	n := int64(resultWeight)
	for _, r := range t.Reads {
		n += 48
		for _, p := range r.Path {
			n += 16 + int64(len(p))
		}
	}
	for _, f := range t.Files {
		n += 64 + int64(len(f.Path))
	}
	return n
}
