package output

import (
	"fmt"
	"math"
	"strings"

	"saltern/master/value"
)

// compressStates merges states with the same id, SLS file and result into one
// (salt/output/highstate.py _compress_ids). If data has an unexpected form, compressStates returns
// it unchanged.
func compressStates(data *value.Map) *value.Map {
	out := value.NewMap()
	for host, v := range data.All() {
		m, ok := v.(*value.Map)
		if !ok {
			return data
		}
		c, ok := compressHost(m)
		if !ok {
			return data
		}
		out.Set(host, c)
	}
	return out
}

func compressHost(m *value.Map) (*value.Map, bool) {
	counts := map[string]int{}
	for k, v := range m.All() {
		info, ok := v.(*value.Map)
		if !ok {
			return nil, false
		}

		id, ok := compressKey(value.Str(k), info)
		if !ok {
			return nil, false
		}

		counts[id]++
	}

	out := value.NewMap()
	for k, v := range m.All() {
		info := v.(*value.Map)
		id, _ := compressKey(value.Str(k), info)
		if counts[id] == 1 {
			out.Set(k, info)
			continue
		}

		comps := strings.Split(value.Str(k), "_|-")
		if len(comps) < 3 {
			return nil, false
		}

		get := func(name string) string { e, _ := info.Get(name); return value.Str(e) }
		comps[2] = strings.Join([]string{"state_compressed", get("__sls__"), get("__id__"), get("result")}, "_")
		comps[1] = fmt.Sprintf("%s (%d)", get("__id__"), counts[id])
		tag := strings.Join(comps, "_|-")
		first := out.Map(tag)
		if first == nil {
			out.Set(tag, info.Clone())
			continue
		}
		if !compressInto(first, info) {
			return nil, false
		}
	}

	return out, true
}

func compressKey(tag string, info *value.Map) (string, bool) {
	module, _, _ := strings.Cut(tag, "_|-")
	key := module
	for _, name := range []string{"__id__", "__sls__", "result"} {
		v, ok := info.Get(name)
		if !ok {
			return "", false
		}
		key += "_" + value.Str(v)
	}
	return key, true
}

func compressInto(first, info *value.Map) bool {
	a, okA := first.Int("__run_num__")
	b, okB := info.Int("__run_num__")
	if !okA || !okB {
		return false
	}

	first.Set("__run_num__", min(a, b))
	da, okA := plainNumber(first, "duration")
	db, okB := plainNumber(info, "duration")
	if !okA || !okB {
		return false
	}

	first.Set("duration", math.Round((da+db)*1000)/1000)
	sa, _ := first.Get("start_time")
	sb, _ := info.Get("start_time")
	ta, okA := sa.(string)
	tb, okB := sb.(string)
	if !okA || !okB {
		return false
	}

	first.Set("start_time", min(ta, tb))
	changes, _ := info.Get("changes")
	if !value.Truth(changes) {
		return true
	}

	name, _ := info.Get("name")
	have, _ := first.Get("changes")
	if !value.Truth(have) {
		first.Set("changes", value.NewMap("compressed changes", value.NewMap(value.Str(name), changes)))
		return true
	}

	m, ok := have.(*value.Map)
	if !ok {
		return false
	}

	inner := m.Map("compressed changes")
	if inner == nil {
		firstName, _ := first.Get("name")
		inner = value.NewMap(value.Str(firstName), have)
		first.Set("changes", value.NewMap("compressed changes", inner))
	}

	inner.Set(value.Str(name), changes)
	return true
}

func plainNumber(m *value.Map, key string) (float64, bool) {
	v, _ := m.Get(key)
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}
