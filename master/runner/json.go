package runner

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"

	"saltern/master/value"
	"saltern/printable"
)

// JSON writes a value as Python's json.dumps does for state.event: in one
// line with a space after commas and colons, or, when pretty, over lines with
// four spaces and keys in order. Bytes that are no text are base64, text is
// not escaped beyond what JSON needs.
func JSON(v any, pretty bool) string {
	w := jsonWriter{pretty: pretty}
	w.value(v, 0)
	return w.b.String()
}

type jsonWriter struct {
	b      strings.Builder
	pretty bool
}

func (w *jsonWriter) value(v any, depth int) {
	switch v := v.(type) {
	case nil:
		w.b.WriteString("null")
	case bool:
		w.b.WriteString(strconv.FormatBool(v))
	case int:
		w.b.WriteString(strconv.Itoa(v))
	case int64:
		w.b.WriteString(strconv.FormatInt(v, 10))
	case uint64:
		w.b.WriteString(strconv.FormatUint(v, 10))
	case float64:
		w.b.WriteString(pyFloat(v))
	case string:
		w.text(v)
	case []byte:
		w.text(base64.StdEncoding.EncodeToString(v))
	case []string:
		w.value(list(v), depth)
	case []any:
		w.list(v, depth)
	case *value.Map:
		w.object(v, depth)
	case value.Ext:
		w.text(string(bytes.ToValidUTF8(v.Data, []byte("?"))))
	default:
		w.text(text(v))
	}
}

func (w *jsonWriter) text(s string) {
	w.b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			w.b.WriteByte('\\')
			w.b.WriteRune(r)
		case r == '\n':
			w.b.WriteString(`\n`)
		case r == '\r':
			w.b.WriteString(`\r`)
		case r == '\t':
			w.b.WriteString(`\t`)
		case r == '\b':
			w.b.WriteString(`\b`)
		case r == '\f':
			w.b.WriteString(`\f`)
		case printable.Unsafe(r):
			for _, u := range utf16.AppendRune(nil, r) {
				fmt.Fprintf(&w.b, `\u%04x`, u)
			}
		default:
			w.b.WriteRune(r)
		}
	}
	w.b.WriteByte('"')
}

func (w *jsonWriter) newline(depth int) {
	if w.pretty {
		w.b.WriteByte('\n')
		w.b.WriteString(strings.Repeat("    ", depth))
	}
}

func (w *jsonWriter) comma(i int) {
	if i == 0 {
		return
	}
	w.b.WriteByte(',')
	if !w.pretty {
		w.b.WriteByte(' ')
	}
}

func (w *jsonWriter) list(v []any, depth int) {
	w.b.WriteByte('[')
	for i, e := range v {
		w.comma(i)
		w.newline(depth + 1)
		w.value(e, depth+1)
	}
	if len(v) > 0 {
		w.newline(depth)
	}
	w.b.WriteByte(']')
}

func (w *jsonWriter) object(m *value.Map, depth int) {
	type pair struct {
		key string
		val any
	}
	var pairs []pair
	for k, v := range m.All() {
		pairs = append(pairs, pair{jsonKey(k), v})
	}
	if w.pretty {
		slices.SortStableFunc(pairs, func(a, b pair) int { return strings.Compare(a.key, b.key) })
	}
	w.b.WriteByte('{')
	for i, p := range pairs {
		w.comma(i)
		w.newline(depth + 1)
		w.text(p.key)
		w.b.WriteString(": ")
		w.value(p.val, depth+1)
	}
	if len(pairs) > 0 {
		w.newline(depth)
	}
	w.b.WriteByte('}')
}

func jsonKey(k any) string {
	switch k := k.(type) {
	case string:
		return k
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(k)
	case float64:
		return pyFloat(k)
	}
	return text(k)
}

// pyFloat writes a float as Python's repr does.
func pyFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	case f == 0 || math.Abs(f) >= 1e-4 && math.Abs(f) < 1e16:
		s := strconv.FormatFloat(f, 'f', -1, 64)
		if !strings.Contains(s, ".") {
			s += ".0"
		}
		return s
	}
	return strconv.FormatFloat(f, 'e', -1, 64)
}
