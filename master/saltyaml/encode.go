package saltyaml

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"sort"
	"strconv"
	"strings"

	"saltern/master/value"
)

// Style configures the form of a document. The zero Style is the block style of Salt's yaml
// outputter (salt/output/yaml_out.py).
type Style struct {
	Indent   int  // columns per level; a value outside of 2 to 9 means 2
	Flow     bool // write lists and maps as [] and {}
	KeepKeys bool // write keys in the order of the map; otherwise sorted, as PyYAML sorts a dict
}

// maxEncodeDepth bounds the depth of the values to write, so that a cycle cannot loop for ever.
const maxEncodeDepth = 200

// Encode returns v as YAML in the form of Salt's yaml outputter. Besides the values that Decode
// returns, it accepts int, []string, map[string]any and map[string]string.
func Encode(v any) ([]byte, error) { return EncodeStyle(v, Style{}) }

// EncodeStyle works like Encode, in the style s.
func EncodeStyle(v any, s Style) ([]byte, error) {
	if s.Indent < 2 || s.Indent > 9 {
		s.Indent = 2
	}
	e := emitter{style: s, indent: -1, whitespace: true, indention: true}
	if err := e.writeNode(v, place{}, 0); err != nil {
		return nil, fmt.Errorf("write yaml: %w", err)
	}
	e.writeIndent()
	return e.out, nil
}

// place describes the position of a node, as far as the form of the node depends on it.
type place struct {
	mapping   bool // the node is a key or a value of a map
	simpleKey bool // the node is a key that must be on one line with its colon
}

// atom is a scalar in the form in which it is written.
type atom struct {
	text    string
	tag     string // tag to write before the text; "" for none
	plain   bool   // a reader would decode the plain form as the same value
	literal bool   // written as a block literal where the position allows that
}

// scalarAtom returns the atom of a scalar, or false for a container.
func scalarAtom(v any) (atom, bool, error) {
	plain := func(s string) (atom, bool, error) { return atom{text: s, plain: true}, true, nil }
	switch v := v.(type) {
	case nil:
		return plain("null")
	case bool:
		return plain(strconv.FormatBool(v))
	case int:
		return plain(strconv.Itoa(v))
	case int64:
		return plain(strconv.FormatInt(v, 10))
	case uint64:
		return plain(strconv.FormatUint(v, 10))
	case *big.Int:
		return plain(v.String())
	case float64:
		return plain(floatText(v))
	case string:
		return atom{text: v, plain: plainTag(v) == tagStr && !timestamp(v)}, true, nil
	case []byte:
		return atom{text: base64Lines(v), tag: "!!binary", literal: true}, true, nil
	case []any, []string, *value.Map, map[string]any, map[string]string:
		return atom{}, false, nil
	case value.Ext:
		return plain("NULL") // Salt's dumper writes NULL for unknown types
	}

	return atom{}, false, fmt.Errorf("cannot write %T", v)
}

// floatText returns Python's repr of a float. If the repr has an exponent but no fraction,
// floatText inserts ".0" before the exponent.
func floatText(f float64) string {
	switch {
	case math.IsNaN(f):
		return ".nan"
	case math.IsInf(f, 1):
		return ".inf"
	case math.IsInf(f, -1):
		return "-.inf"
	}
	s := value.FloatRepr(f)
	if !strings.Contains(s, ".") {
		s = strings.Replace(s, "e", ".0e", 1)
	}
	return s
}

// base64Lines returns base64 in lines of 76 characters, as Python's base64.encodebytes does.
func base64Lines(b []byte) string {
	s := base64.StdEncoding.EncodeToString(b)
	var out strings.Builder
	for len(s) > 76 {
		out.WriteString(s[:76] + "\n")
		s = s[76:]
	}
	if s != "" {
		out.WriteString(s + "\n")
	}
	return out.String()
}

// timestamp reports whether PyYAML would read a text as a date or a time, so that it must be
// quoted.
func timestamp(s string) bool {
	num := func(lo, hi int) bool {
		n := min(prefixLen(s, isDigit), hi)
		s = s[n:]
		return n >= lo
	}

	lit := func(c byte) bool {
		if s == "" || s[0] != c {
			return false
		}
		s = s[1:]
		return true
	}

	blank := func(c byte) bool { return c == ' ' || c == '\t' }
	if len(s) == 10 && isDigit(s[5]) && isDigit(s[6]) && isDigit(s[8]) && isDigit(s[9]) && prefixLen(s, isDigit) == 4 &&
		s[4] == '-' && s[7] == '-' {
		return true
	}
	if prefixLen(s, isDigit) != 4 || !num(4, 4) || !lit('-') || !num(1, 2) || !lit('-') || !num(1, 2) {
		return false
	}

	if n := prefixLen(s, blank); n > 0 {
		s = s[n:]
	} else if !lit('T') && !lit('t') {
		return false
	}

	if !num(1, 2) || !lit(':') || !num(2, 2) || !lit(':') || !num(2, 2) {
		return false
	}

	if lit('.') {
		s = s[prefixLen(s, isDigit):]
	}

	if s == "" {
		return true
	}

	s = s[prefixLen(s, blank):]
	if lit('Z') {
		return s == ""
	}
	if !lit('+') && !lit('-') || !num(1, 2) {
		return false
	}

	return s == "" || lit(':') && num(2, 2) && s == ""
}

type item struct{ key, val any }

// itemsOf returns the pairs of a map of any type in the order in which they are written.
func itemsOf(v any, keep bool) (l []item) {
	switch v := v.(type) {
	case *value.Map:
		for k, x := range v.All() {
			l = append(l, item{k, x})
		}
	case map[string]any:
		for k, x := range v {
			l = append(l, item{k, x})
		}
		keep = false
	case map[string]string:
		for k, x := range v {
			l = append(l, item{k, x})
		}
		keep = false
	}

	if !keep {
		sortItems(l)
	}

	return l
}

// sortItems sorts the pairs by key if Python could compare the keys: if all keys are text, or all
// are numbers.
func sortItems(l []item) {
	texts, numbers := 0, 0
	for _, it := range l {
		switch it.key.(type) {
		case string:
			texts++
		case bool, int64, uint64, float64:
			numbers++
		}
	}

	switch len(l) {
	case texts:
		slices.SortStableFunc(l, func(a, b item) int { return strings.Compare(a.key.(string), b.key.(string)) })
	case numbers:
		sort.SliceStable(l, func(i, j int) bool { return number(l[i].key).Cmp(number(l[j].key)) < 0 })
	}
}

func number(k any) *big.Float {
	switch k := k.(type) {
	case bool:
		if k {
			return big.NewFloat(1)
		}
	case int64:
		return new(big.Float).SetInt64(k)
	case uint64:
		return new(big.Float).SetUint64(k)
	case float64:
		if !math.IsNaN(k) {
			return new(big.Float).SetFloat64(k)
		}
	}

	return new(big.Float)
}

func listItems(v any) []any {
	switch v := v.(type) {
	case []any:
		return v
	case []string:
		l := make([]any, len(v))
		for i := range v {
			l[i] = v[i]
		}
		return l
	}
	return nil
}

var errDepth = errors.New("value is nested too deep")
