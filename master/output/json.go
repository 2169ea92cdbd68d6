package output

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"saltern/master/value"
	"saltern/printable"
)

// jsonText is salt/output/json_out.py: Python's json.dumps with
// ensure_ascii=False, bytes as their repr.
func jsonText(v any, o *Options) string {
	w := jsonWriter{indent: 4, terminal: o.Terminal && o.StripEscapes}
	switch {
	case o.Indent.Pretty:
		w.sort = true
	case o.Indent.Set && o.Indent.Width < 0:
		w.indent = -1
	case o.Indent.Set:
		w.indent = o.Indent.Width
	}
	w.value(v, 0)
	if w.failed {
		return "{}" // what Salt prints when keys cannot be sorted
	}
	return w.b.String()
}

type jsonWriter struct {
	b      strings.Builder
	indent int // -1: one line
	sort   bool
	failed bool
	// terminal writes what must not reach a terminal as \uxxxx: the same text to
	// a reader of JSON.
	terminal bool
}

func (w *jsonWriter) value(v any, level int) {
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
		w.text(v)
	case []any:
		if len(v) == 0 {
			w.b.WriteString("[]")
			return
		}
		w.b.WriteByte('[')
		for i, e := range v {
			w.sep(i, level+1)
			w.value(e, level+1)
		}
		w.line(level)
		w.b.WriteByte(']')
	case *value.Map:
		w.mapping(v, level)
	default:
		w.text(Repr(v))
	}
}

func (w *jsonWriter) mapping(m *value.Map, level int) {
	if m.Len() == 0 {
		w.b.WriteString("{}")
		return
	}
	keys, ok := sortedKeys(m)
	if !w.sort {
		keys = keys[:0]
		for k := range m.All() {
			keys = append(keys, k)
		}
	} else if !ok {
		w.failed = true
		return
	}
	w.b.WriteByte('{')
	for i, k := range keys {
		w.sep(i, level+1)
		w.text(jsonKey(k))
		w.b.WriteString(": ")
		v, _ := m.GetAny(k)
		w.value(v, level+1)
	}
	w.line(level)
	w.b.WriteByte('}')
}

func (w *jsonWriter) sep(i, level int) {
	if i > 0 {
		w.b.WriteByte(',')
		if w.indent < 0 {
			w.b.WriteByte(' ')
		}
	}
	w.line(level)
}

func (w *jsonWriter) line(level int) {
	if w.indent < 0 {
		return
	}
	w.b.WriteByte('\n')
	for range w.indent * level {
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
	return floatRepr(f)
}

func jsonKey(k any) string {
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

func (w *jsonWriter) text(s string) {
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
			if r < 0x20 || w.terminal && printable.Unsafe(r) {
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
