package value

import (
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Str returns Python's str() of a value: a text unchanged, any other value as Repr returns it.
func Str(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	return Repr(v)
}

// StrMax works like Str, but omits further elements of a container once the text has limit bytes.
func StrMax(v any, limit int) string {
	if s, ok := v.(string); ok {
		return s
	}
	return string(appendRepr(nil, v, limit))
}

// Repr returns Python's repr() of a value.
func Repr(v any) string { return string(appendRepr(nil, v, math.MaxInt)) }

func appendRepr(b []byte, v any, limit int) []byte {
	if len(b) > limit {
		return b
	}

	switch v := v.(type) {
	case nil:
		return append(b, "None"...)
	case bool:
		if v {
			return append(b, "True"...)
		}
		return append(b, "False"...)
	case int:
		return strconv.AppendInt(b, int64(v), 10)
	case int64:
		return strconv.AppendInt(b, v, 10)
	case uint64:
		return strconv.AppendUint(b, v, 10)
	case *big.Int:
		return v.Append(b, 10)
	case float64:
		return append(b, FloatRepr(v)...)
	case string:
		return appendQuoted(b, v)
	case []byte:
		return appendBytes(b, v)
	case []any:
		return appendList(b, v, limit)
	case *Map:
		return appendMap(b, v, limit)
	case Ext:
		b = append(b, "ExtType(code="...)
		b = strconv.AppendInt(b, int64(v.Type), 10)
		b = append(b, ", data="...)
		return append(appendBytes(b, v.Data), ')')
	}

	return append(b, '?')
}

func appendList(b []byte, list []any, limit int) []byte {
	b = append(b, '[')
	for i, e := range list {
		if len(b) > limit {
			break
		}
		if i > 0 {
			b = append(b, ", "...)
		}
		b = appendRepr(b, e, limit)
	}
	return append(b, ']')
}

func appendMap(b []byte, m *Map, limit int) []byte {
	b = append(b, '{')
	first := true
	for k, e := range m.All() {
		if len(b) > limit {
			break
		}
		if !first {
			b = append(b, ", "...)
		}
		first = false
		b = appendRepr(b, k, limit)
		b = append(b, ": "...)
		b = appendRepr(b, e, limit)
	}
	return append(b, '}')
}

// FloatRepr returns Python's repr() of a float: the shortest text that is read back as f.
func FloatRepr(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}

	e := strconv.FormatFloat(f, 'e', -1, 64)
	exp, _ := strconv.Atoi(e[strings.IndexByte(e, 'e')+1:])
	if f != 0 && (exp < -4 || exp >= 16) {
		return e // with at least two digits of exponent, as in Python
	}

	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}

	return s
}

func appendQuoted(b []byte, s string) []byte {
	q := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		q = '"'
	}

	b = append(b, q)
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1: // Python has a surrogate escape here
			b = append(b, `\udc`...)
			b = appendHex(b, uint64(s[i]), 2)
		case r == rune(q) || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, `\n`...)
		case r == '\r':
			b = append(b, `\r`...)
		case r == '\t':
			b = append(b, `\t`...)
		case unicode.IsPrint(r):
			b = append(b, s[i:i+n]...)
		case r < 0x100:
			b = appendHex(append(b, `\x`...), uint64(r), 2)
		case r < 0x10000:
			b = appendHex(append(b, `\u`...), uint64(r), 4)
		default:
			b = appendHex(append(b, `\U`...), uint64(r), 8)
		}

		i += n
	}

	return append(b, q)
}

func appendHex(b []byte, v uint64, width int) []byte {
	s := strconv.FormatUint(v, 16)
	for range width - len(s) {
		b = append(b, '0')
	}
	return append(b, s...)
}

func appendBytes(b, s []byte) []byte {
	q := byte('\'')
	if slices.Contains(s, '\'') && !slices.Contains(s, '"') {
		q = '"'
	}

	b = append(b, 'b', q)
	for _, c := range s {
		switch {
		case c == q || c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, `\n`...)
		case c == '\r':
			b = append(b, `\r`...)
		case c == '\t':
			b = append(b, `\t`...)
		case c < 0x20 || c >= 0x7f:
			b = appendHex(append(b, `\x`...), uint64(c), 2)
		default:
			b = append(b, c)
		}
	}

	return append(b, q)
}
