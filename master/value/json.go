package value

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// JSON writes values in the format of Python's json.dumps with ensure_ascii=False.
type JSON struct {
	Indent int // spaces per level; -1 writes everything on one line
	// Order returns the keys of a map in the order in which they are written, or false if they
	// cannot be ordered. It may be nil: the keys are written in the map's order.
	Order func(*Map) ([]any, bool)
	// Escape reports whether a character is written as \uxxxx although JSON does not require that.
	// It may be nil: only characters whose escape JSON requires are escaped.
	Escape func(rune) bool
	// Other returns the text of bytes and of types that JSON lacks. It may be nil: Repr returns
	// their text.
	Other func(any) string
}

// Text returns a value as JSON, and false if Order could not order some map.
func (j JSON) Text(v any) (string, bool) {
	w := jsonWriter{JSON: j}
	w.writeValue(v, 0)
	return w.b.String(), !w.failed
}

type jsonWriter struct {
	JSON
	b      strings.Builder
	failed bool
}

func (w *jsonWriter) writeValue(v any, level int) {
	switch v := v.(type) {
	case nil:
		w.b.WriteString("null")
	case bool:
		w.b.WriteString(strconv.FormatBool(v))
	case float64:
		w.b.WriteString(jsonFloat(v))
	case int, int64, uint64, *big.Int:
		w.b.WriteString(Repr(v))
	case string:
		w.writeText(v)
	case []any:
		writeList(w, v, level)
	case []string:
		writeList(w, v, level)
	case *Map:
		w.mapping(v, level)
	default:
		if w.Other != nil {
			w.writeText(w.Other(v))
			return
		}
		w.writeText(Repr(v))
	}
}

func writeList[T any](w *jsonWriter, v []T, level int) {
	if len(v) == 0 {
		w.b.WriteString("[]")
		return
	}
	w.b.WriteByte('[')
	for i, e := range v {
		w.separate(i, level+1)
		w.writeValue(e, level+1)
	}
	w.newLine(level)
	w.b.WriteByte(']')
}

func (w *jsonWriter) mapping(m *Map, level int) {
	if m.Len() == 0 {
		w.b.WriteString("{}")
		return
	}

	var keys []any
	if w.Order == nil {
		for k := range m.All() {
			keys = append(keys, k)
		}
	} else {
		var ok bool
		if keys, ok = w.Order(m); !ok {
			w.failed = true
			return
		}
	}

	w.b.WriteByte('{')
	for i, k := range keys {
		w.separate(i, level+1)
		w.writeText(JSONKey(k))
		w.b.WriteString(": ")
		v, _ := m.GetAny(k)
		w.writeValue(v, level+1)
	}

	w.newLine(level)
	w.b.WriteByte('}')
}

func (w *jsonWriter) separate(i, level int) {
	if i > 0 {
		w.b.WriteByte(',')
		if w.Indent < 0 {
			w.b.WriteByte(' ')
		}
	}
	w.newLine(level)
}

func (w *jsonWriter) newLine(level int) {
	if w.Indent < 0 {
		return
	}
	w.b.WriteByte('\n')
	for range w.Indent * level {
		w.b.WriteByte(' ')
	}
}

func jsonFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	return FloatRepr(f)
}

// JSONKey returns the text of a map key as json.dumps writes it.
func JSONKey(k any) string {
	switch k := k.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(k)
	case float64:
		return jsonFloat(k)
	}
	return Str(k)
}

func (w *jsonWriter) writeText(s string) {
	w.b.WriteByte('"')
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch r {
		case '"', '\\':
			w.b.WriteByte('\\')
			w.b.WriteRune(r)
		case '\n':
			w.b.WriteString(`\n`)
		case '\r':
			w.b.WriteString(`\r`)
		case '\t':
			w.b.WriteString(`\t`)
		case '\f':
			w.b.WriteString(`\f`)
		case '\b':
			w.b.WriteString(`\b`)
		default:
			if r == utf8.RuneError && n == 1 { // JSON must be UTF-8, even if a text contains other bytes
				w.b.WriteRune(utf8.RuneError)
			} else if r < 0x20 || w.Escape != nil && w.Escape(r) {
				for _, u := range utf16.AppendRune(nil, r) {
					w.b.Write(appendHex([]byte(`\u`), uint64(u), 4))
				}
			} else {
				w.b.WriteString(s[i : i+n])
			}
		}

		i += n
	}

	w.b.WriteByte('"')
}
