package output

import (
	"maps"
	"math/big"
	"slices"
	"strings"
	"unicode/utf8"

	"saltern/master/value"
)

// nested implements the default outputter (salt/output/nested.py).
func nested(v any, o *Options) string {
	n := nest{Options: o, palette: o.colors()}
	n.addValue(v, o.NestedIndent, "")
	return strings.Join(n.lines, "\n")
}

type nest struct {
	*Options
	palette
	lines []string
}

func (n *nest) addLine(indent int, color, prefix, msg, suffix string) {
	n.lines = append(n.lines, strings.Repeat(" ", indent)+color+prefix+msg+n.end+suffix)
}

// container returns the colour of list markers and map keys: color, or red if the return code is
// not 0.
func (n *nest) container(color string) string {
	if n.Retcode != 0 {
		return n.red
	}
	return color
}

func (n *nest) addValue(v any, indent int, prefix string) {
	switch v := v.(type) {
	case nil, bool, int, int64, uint64, float64, *big.Int:
		n.addLine(indent, n.lightYellow, prefix, value.Repr(v), "")
	case string:
		n.addText(v, indent, prefix)
	case []byte:
		if utf8.Valid(v) { // nested prints no other bytes
			n.addText(string(v), indent, prefix)
		}
	case []any:
		for _, e := range v {
			switch e.(type) {
			case *value.Map:
				n.addLine(indent, n.container(n.green), "", "|_", "")
				n.addValue(e, indent+2, "")
			case []any:
				n.addLine(indent, n.container(n.green), "", "|_", "")
				n.addValue(e, indent+2, "- ")
			default:
				n.addValue(e, indent, "- ")
			}
		}
	case *value.Map:
		n.mapping(v, indent, prefix)
	}
}

func (n *nest) addText(s string, indent int, prefix string) {
	for i, line := range splitLines(s) {
		if i == 1 {
			prefix = strings.Repeat(" ", len(prefix))
		}
		n.addLine(indent, n.green, prefix, n.stripEscapes(line), "")
	}
}

func (n *nest) mapping(m *value.Map, indent int, prefix string) {
	if indent > 0 {
		n.addLine(indent, n.container(n.cyan), "", "----------", "")
	}

	entry := func(k string, v any) {
		n.addLine(indent, n.container(n.cyan), prefix, n.stripLine(k), ":")
		n.addValue(v, indent+4, "")
	}

	if keys, ok := sortedKeys(m); ok {
		for _, k := range keys {
			v, _ := m.GetAny(k)
			entry(value.Str(k), v)
		}
		return
	}

	// Compare keys as text when they cannot be compared otherwise.
	byText := make(map[string]any, m.Len())
	for k, v := range m.All() {
		byText[value.Str(k)] = v
	}

	keys := slices.Sorted(maps.Keys(byText))
	for _, k := range keys {
		entry(k, byText[k])
	}
}
