package output

import (
	"bytes"
	"slices"
	"strings"

	"saltern/master/value"
)

// formatTxt returns "id: line" for each line of each minion's value (salt/output/txt.py).
func formatTxt(v any, o *Options) string {
	strip := func(s string) string {
		if o.Terminal {
			return o.stripEscapes(s)
		}
		return s
	}

	key := func(s string) string {
		if o.Terminal {
			return o.stripLine(s)
		}
		return s
	}

	m, ok := v.(*value.Map)
	if !ok {
		if s, ok := v.(string); ok {
			return strip(s) + "\n"
		}
		return pformat(v, 1) + "\n"
	}

	var b strings.Builder
	for k, e := range m.All() {
		var lines []string
		switch e := e.(type) {
		case string:
			lines = splitLines(e)
		case []byte:
			lines = byteLines(e)
		default:
			lines = []string{value.Str(e)}
		}

		for _, l := range lines {
			b.WriteString(key(value.Str(k)) + ": " + strip(l) + "\n")
		}
	}

	return b.String()
}

// byteLines returns the repr of each line of some bytes.
func byteLines(b []byte) []string {
	b = bytes.ReplaceAll(b, []byte("\r\n"), []byte("\n"))
	b = bytes.ReplaceAll(b, []byte("\r"), []byte("\n"))
	b = bytes.TrimSuffix(b, []byte("\n"))
	var out []string
	for l := range bytes.SplitSeq(b, []byte("\n")) {
		out = append(out, value.Repr(l))
	}
	return out
}

// formatRaw returns the value as Python's str would show it (salt/output/raw.py).
func formatRaw(v any, o *Options) string {
	if s, ok := v.(string); ok && o.Terminal {
		return o.stripEscapes(s)
	}
	return value.Str(v)
}

// newlineValues returns the values without the ids, one value a line
// (salt/output/newline_values_only.py, up to Salt 3007).
func newlineValues(v any, o *Options) string {
	m, ok := v.(*value.Map)
	if !ok {
		panic(failure("not a map"))
	}

	var lines []string
	for _, e := range m.All() {
		if l, ok := e.([]any); ok {
			for _, x := range l {
				lines = append(lines, o.stripEscapes(value.Str(x)))
			}
			continue
		}
		lines = append(lines, o.stripEscapes(value.Str(e)))
	}

	return strings.Join(lines, "\n")
}

// noReturn returns the text for minions that did not answer (salt/output/no_return.py).
func noReturn(v any, o *Options) string {
	var b strings.Builder
	c := o.colors()
	var show func(v any, indent int)
	show = func(v any, indent int) {
		pad := strings.Repeat(" ", indent)
		switch v := v.(type) {
		case string:
			for _, l := range strings.Split(v, "\n") {
				b.WriteString(c.red + pad + o.stripEscapes(l) + c.end + "\n")
			}
		case *value.Map:
			keys, ok := sortedKeys(v)
			if !ok {
				panic(failure("keys cannot be sorted"))
			}

			for _, k := range keys {
				e, _ := v.GetAny(k)
				b.WriteString(c.cyan + pad + o.stripLine(value.Str(k)) + c.end + ":\n")
				show(e, indent+4)
			}
		}
	}

	show(v, 0)
	return b.String()
}

// formatKey returns the lists of salt-key as text (salt/output/key.py). v is a map whose keys are
// the names of the key folders. Its values are lists of ids, or maps from id to text.
func formatKey(v any, o *Options) string {
	m, ok := v.(*value.Map)
	if !ok {
		panic(failure("not a map"))
	}

	c := o.colors()
	pad := ""
	if o.MultiKey {
		pad = "    "
	}

	sections := map[string][3]string{ // title, colour of the title, colour of the ids
		"minions_pre":      {"Unaccepted Keys:", c.lightRed, c.red},
		"minions":          {"Accepted Keys:", c.lightGreen, c.green},
		"minions_denied":   {"Denied Keys:", c.lightMagenta, c.magenta},
		"minions_rejected": {"Rejected Keys:", c.lightBlue, c.blue},
		"local":            {"Local Keys:", c.lightMagenta, c.magenta},
	}

	names, _ := sortedKeys(m)
	var lines []string
	for _, n := range names {
		s, ok := sections[value.Str(n)]
		if !ok {
			panic(failure("unknown key directory"))
		}

		lines = append(lines, pad+s[1]+s[0]+c.end)
		list, _ := m.GetAny(n)
		switch list := list.(type) {
		case []any:
			ids := make([]string, 0, len(list))
			for _, id := range list {
				ids = append(ids, value.Str(id))
			}

			slices.Sort(ids)
			for _, id := range ids {
				lines = append(lines, pad+s[2]+o.stripLine(id)+c.end)
			}
		case *value.Map:
			ids, _ := sortedKeys(list)
			for _, id := range ids {
				text, _ := list.GetAny(id)
				lines = append(lines, pad+s[2]+o.stripLine(value.Str(id))+":  "+o.stripEscapes(value.Str(text))+c.end)
			}
		default:
			panic(failure("not a list of ids"))
		}
	}

	return strings.Join(lines, "\n")
}
