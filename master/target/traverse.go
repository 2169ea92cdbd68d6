package target

import (
	"math"
	"math/big"
	"strconv"
	"strings"

	"saltern/master/saltyaml"
	"saltern/master/value"
)

// traverse returns the value to which keys lead through maps and lists. It returns false when there
// is none.
func traverse(v any, keys []string) (any, bool) {
	for _, k := range keys {
		var ok bool
		switch c := v.(type) {
		case *value.Map:
			v, ok = inMapping(c, k)
		case []any:
			v, ok = inList(c, k)
		}
		if !ok {
			return nil, false
		}
	}
	return v, true
}

func inMapping(m *value.Map, key string) (any, bool) {
	if v, ok := m.Get(key); ok {
		return v, true
	}
	k, ok := yamlKey(key)
	if !ok {
		return nil, false
	}
	return equalKey(m, k)
}

// equalKey looks up a key by the rules of Python, for which 1, 1.0 and True are the same key.
func equalKey(m *value.Map, k any) (any, bool) {
	if v, ok := m.GetAny(k); ok {
		return v, true
	}

	var n int64
	switch k := k.(type) {
	case bool:
		if k {
			n = 1
		}
	case int64:
		n = k
	case float64:
		if k != math.Trunc(k) || math.Abs(k) >= 1<<53 {
			return nil, false
		}
		n = int64(k)
	default:
		return nil, false
	}

	if v, ok := m.GetAny(n); ok {
		return v, true
	}

	if n == 0 || n == 1 {
		if v, ok := m.GetAny(n == 1); ok {
			return v, true
		}
	}

	return m.GetAny(float64(n))
}

func inList(l []any, key string) (any, bool) {
	i, err := pythonInt(key)
	if err != nil {
		for _, x := range l {
			if m, ok := x.(*value.Map); ok {
				if v, ok := m.Get(key); ok {
					return v, true
				}
			}
		}

		return nil, false
	}

	for _, x := range l {
		if m, ok := x.(*value.Map); ok {
			if v, ok := equalKey(m, int64(i)); ok {
				return v, true
			}
		}
	}

	if i < 0 {
		i += len(l)
	}

	if i < 0 || i >= len(l) {
		return nil, false
	}

	return l[i], true
}

// pythonInt converts a text by the rules of Python's int(), which allow spaces around the digits
// and single underscores between them.
func pythonInt(s string) (int, error) {
	s = strings.TrimSpace(s)
	if strings.HasPrefix(s, "_") || strings.HasSuffix(s, "_") || strings.Contains(s, "__") {
		return 0, strconv.ErrSyntax
	}
	return strconv.Atoi(strings.ReplaceAll(s, "_", ""))
}

// yamlKey returns the value that salt.utils.args.yamlify_arg parses from a text. It returns false
// if that value is the text itself.
func yamlKey(s string) (any, bool) {
	if len(s) > 256 {
		return nil, false
	}

	switch t := strings.TrimSpace(s); {
	case t == "", t == "---", t == "...", strings.ContainsAny(s, "\t\r\n"):
		return nil, false
	case strings.Contains(s, "_") && strings.Trim(t, "0123456789_") == "":
		return nil, false
	case s == "None":
		return nil, true
	}

	v, err := saltyaml.Decode([]byte(s), "key")
	if err != nil {
		return nil, false
	}

	switch v := v.(type) {
	case nil:
		return nil, !strings.Contains(s, "#") && s != "!"
	case bool, int64, uint64, float64:
		return v, true
	case *big.Int:
		return v.String(), true
	case string:
		return v, v != s && !strings.Contains(s, "#")
	}

	return nil, false
}
