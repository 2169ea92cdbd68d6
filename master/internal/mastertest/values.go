package mastertest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"saltern/master/msgpack"
	"saltern/master/value"
	"saltern/test/check"
)

// PlainValue returns v with each value.Map in it replaced by a Go map, so that values can be
// compared.
func PlainValue(v any) any {
	switch v := v.(type) {
	case *value.Map:
		out := map[string]any{}
		for k, x := range v.All() {
			out[fmt.Sprint(k)] = PlainValue(x)
		}
		return out
	case []any:
		out := slices.Clone(v)
		for i := range out {
			out[i] = PlainValue(out[i])
		}
		return out
	}

	return v
}

// Pack encodes a value as msgpack.
func Pack(t testing.TB, v any) []byte {
	t.Helper()
	b, err := msgpack.Marshal(v, msgpack.Raw)
	check.Must(t, err)
	return b
}

// Unpack decodes msgpack with the default limits.
func Unpack(t testing.TB, b []byte) any {
	t.Helper()
	v, err := msgpack.Decode(b, msgpack.DefaultLimits)
	check.Must(t, err)
	return v
}

// PlainMap returns the content of m as a Go map, which package fmt can print.
func PlainMap(m *value.Map) map[any]any { return maps.Collect(m.All()) }

// PlainText returns a value as text, including the contents of its maps.
func PlainText(v any) string {
	b, err := msgpack.Marshal(v, msgpack.Raw)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// AsIndexed converts a decoded value to the form in which the index of the captures stores it.
func AsIndexed(v any) any {
	switch v := v.(type) {
	case []byte:
		return map[string]any{"$b64": base64.StdEncoding.EncodeToString(v)}
	case []any:
		out := []any{}
		for _, x := range v {
			out = append(out, AsIndexed(x))
		}
		return out
	case *value.Map:
		out := map[string]any{}
		for k, x := range v.All() {
			out[fmt.Sprint(k)] = AsIndexed(x)
		}
		return out
	case int64:
		return json.Number(strconv.FormatInt(v, 10))
	case uint64:
		return json.Number(strconv.FormatUint(v, 10))
	case float64:
		b, _ := json.Marshal(v)
		if s := string(b); !strings.ContainsAny(s, ".eE") {
			return json.Number(s + ".0")
		}
		return json.Number(b)
	}

	return v
}
