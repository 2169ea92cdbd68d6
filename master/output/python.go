package output

import (
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"saltern/master/value"
)

// Str is Python's str() of a value: text as it is, anything else as in Repr.
func Str(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	return Repr(v)
}

// Repr is Python's repr() of a value.
func Repr(v any) string { return string(appendRepr(nil, v)) }

func appendRepr(b []byte, v any) []byte {
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
		return append(b, floatRepr(v)...)
	case string:
		return appendQuoted(b, v)
	case []byte:
		return appendBytes(b, v)
	case []any:
		b = append(b, '[')
		for i, e := range v {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = appendRepr(b, e)
		}
		return append(b, ']')
	case *value.Map:
		b = append(b, '{')
		first := true
		for k, e := range v.All() {
			if !first {
				b = append(b, ", "...)
			}
			first = false
			b = appendRepr(b, k)
			b = append(b, ": "...)
			b = appendRepr(b, e)
		}
		return append(b, '}')
	case value.Ext:
		b = append(b, "ExtType(code="...)
		b = strconv.AppendInt(b, int64(v.Type), 10)
		b = append(b, ", data="...)
		return append(appendBytes(b, v.Data), ')')
	}
	return append(b, '?')
}

// floatRepr is the shortest text that reads back as f, in Python's layout.
func floatRepr(f float64) string {
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
		return e // two digits of exponent at least, as in Python
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
		case r == utf8.RuneError && n == 1: // a surrogate escape in Python
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

// splitLines is Python's str.splitlines: it also breaks at vertical tab, form
// feed, the ASCII separators, NEL and the Unicode line and paragraph
// separators, and a final line break adds no empty line.
func splitLines(s string) []string { return lines(s, false) }

// lines splits s into lines, with their line breaks when keep is true.
func lines(s string, keep bool) []string {
	var out []string
	start := 0
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch r {
		case '\n', '\r', '\v', '\f', 0x1c, 0x1d, 0x1e, 0x85, 0x2028, 0x2029:
			if r == '\r' && strings.HasPrefix(s[i+1:], "\n") {
				n++
			}
			end := i
			if keep {
				end = i + n
			}
			out = append(out, s[start:end])
			start = i + n
		}
		i += n
	}
	if start < len(s) {
		out = append(out, s[start:])
	}
	return out
}

// sortedKeys are the keys of m in the order of Python's sorted(), or false
// when they cannot be compared with each other.
func sortedKeys(m *value.Map) ([]any, bool) {
	keys := make([]any, 0, m.Len())
	text, number := 0, 0
	for k := range m.All() {
		keys = append(keys, k)
		switch k.(type) {
		case string:
			text++
		case bool, int64, uint64, float64:
			number++
		}
	}
	switch {
	case len(keys) < 2:
	case text == len(keys):
		slices.SortFunc(keys, func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
	case number == len(keys):
		slices.SortStableFunc(keys, func(a, b any) int { return number64(a).Cmp(number64(b)) })
	default:
		return nil, false
	}
	return keys, true
}

func number64(v any) *big.Float {
	switch v := v.(type) {
	case bool:
		if v {
			return big.NewFloat(1)
		}
	case int64:
		return new(big.Float).SetInt64(v)
	case uint64:
		return new(big.Float).SetUint64(v)
	case float64:
		return big.NewFloat(v) // keys are never NaN
	}
	return new(big.Float)
}

// truthy is Python's bool(v).
func truthy(v any) bool {
	switch v := v.(type) {
	case nil:
		return false
	case bool:
		return v
	case int:
		return v != 0
	case int64:
		return v != 0
	case uint64:
		return v != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	case []byte:
		return len(v) > 0
	case []any:
		return len(v) > 0
	case *value.Map:
		return v.Len() > 0
	}
	return true
}
