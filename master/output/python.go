package output

import (
	"math/big"
	"slices"
	"strings"
	"unicode/utf8"

	"saltern/master/value"
)

// splitLines returns the lines of a text by the rules of Python's str.splitlines. Lines also end at
// vertical tab, form feed, the ASCII separators, NEL and the Unicode line and paragraph separators.
// A final line break adds no empty line.
func splitLines(s string) []string { return splitAtBreaks(s, false) }

// splitAtBreaks splits s into lines. If keep is set, each line includes its line break.
func splitAtBreaks(s string, keep bool) (out []string) {
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

// sortedKeys returns the keys of m in the order of Python's sorted(). It returns false if Python
// could not compare the keys.
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
