package output

import (
	"slices"
	"strings"
	"unicode/utf8"

	"saltern/master/value"
)

// pprintWidth is the line width that Python's pprint tries to keep.
const pprintWidth = 80

func pprintText(v any, o *Options) string {
	if o.Indent.Set && o.Indent.Width >= 0 {
		return pformat(v, o.Indent.Width)
	}
	return pformat(v, 1)
}

// pformat returns the text of Python's pprint.pformat(v, indent).
func pformat(v any, indent int) string {
	p := pretty{indentPerLevel: indent}
	p.format(v, 0, 0, 0)
	return p.b.String()
}

type pretty struct {
	b              strings.Builder
	indentPerLevel int
}

func (p *pretty) format(v any, indent, allowance, level int) {
	rep := prettyRepr(v)
	if utf8.RuneCountInString(rep) <= pprintWidth-indent-allowance {
		p.b.WriteString(rep)
		return
	}

	level++
	switch v := v.(type) {
	case *value.Map:
		p.mapping(v, indent, allowance+1, level)
	case []any:
		p.b.WriteByte('[')
		p.writePadding()
		in := indent + p.indentPerLevel
		for i, e := range v {
			last := i == len(v)-1
			p.format(e, in, p.closingRoom(last, allowance+1), level)
			p.nextItem(last, in)
		}

		p.b.WriteByte(']')
	case string:
		p.writeText(v, rep, indent, allowance, level)
	case []byte:
		p.writeBytes(v, rep, indent, allowance, level)
	default:
		p.b.WriteString(rep)
	}
}

func (p *pretty) writePadding() { p.b.WriteString(strings.Repeat(" ", max(p.indentPerLevel-1, 0))) }

func (p *pretty) closingRoom(last bool, allowance int) int {
	if last {
		return allowance
	}
	return 1
}

func (p *pretty) nextItem(last bool, indent int) {
	if !last {
		p.b.WriteString(",\n" + strings.Repeat(" ", indent))
	}
}

func (p *pretty) mapping(m *value.Map, indent, allowance, level int) {
	p.b.WriteByte('{')
	p.writePadding()
	in := indent + p.indentPerLevel
	keys := prettyKeys(m)
	for i, k := range keys {
		last := i == len(keys)-1
		rep := prettyRepr(k)
		p.b.WriteString(rep + ": ")
		e, _ := m.GetAny(k)
		p.format(e, in+utf8.RuneCountInString(rep)+2, p.closingRoom(last, allowance), level)
		p.nextItem(last, in)
	}
	p.b.WriteByte('}')
}

// writeText writes a long text in parts. It breaks the text at its line ends and, within a line, at
// white space.
func (p *pretty) writeText(s, rep string, indent, allowance, level int) {
	if level == 1 {
		indent++
		allowance++
	}

	width := pprintWidth - indent
	var chunks []string
	parts := splitAtBreaks(s, true)
	for i, line := range parts {
		final := i == len(parts)-1
		first := width
		if final {
			first -= allowance
		}

		r := value.Repr(line)
		if utf8.RuneCountInString(r) <= first {
			chunks = append(chunks, r)
			continue
		}

		chunks = append(chunks, wrapWords(line, width, allowance, final)...)
	}

	if len(chunks) == 1 {
		p.b.WriteString(rep)
		return
	}

	p.chunks(chunks, indent, level)
}

func wrapWords(line string, width, allowance int, final bool) (chunks []string) {
	parts := wordsWithSpace(line)
	current := ""
	for j, part := range parts {
		if final && j == len(parts)-1 {
			width -= allowance
		}

		candidate := current + part
		if utf8.RuneCountInString(value.Repr(candidate)) > width {
			if current != "" {
				chunks = append(chunks, value.Repr(current))
			}
			current = part
		} else {
			current = candidate
		}
	}

	if current != "" {
		chunks = append(chunks, value.Repr(current))
	}

	return chunks
}

func (p *pretty) chunks(chunks []string, indent, level int) {
	if level == 1 {
		p.b.WriteByte('(')
	}
	p.b.WriteString(strings.Join(chunks, "\n"+strings.Repeat(" ", indent)))
	if level == 1 {
		p.b.WriteByte(')')
	}
}

func (p *pretty) writeBytes(s []byte, rep string, indent, allowance, level int) {
	if len(s) <= 4 {
		p.b.WriteString(rep)
		return
	}

	if level == 1 {
		indent++
		allowance++
	}

	width := pprintWidth - indent
	var chunks []string
	var current []byte
	for i := 0; i < len(s); i += 4 {
		part := s[i:min(i+4, len(s))]
		if i == len(s)/4*4 {
			width -= allowance
		}

		candidate := slices.Concat(current, part)
		if len(value.Repr(candidate)) > width {
			if len(current) > 0 {
				chunks = append(chunks, value.Repr(current))
			}
			current = part
		} else {
			current = candidate
		}
	}

	if len(current) > 0 {
		chunks = append(chunks, value.Repr(current))
	}

	p.chunks(chunks, indent, level)
}

// wordsWithSpace splits a text into words, each together with the white space after it.
func wordsWithSpace(s string) (parts []string) {
	start, inSpace := 0, false
	for i, r := range s {
		space := isSpace(r)
		if inSpace && !space {
			parts = append(parts, s[start:i])
			start = i
		}
		inSpace = space
	}
	if start < len(s) {
		parts = append(parts, s[start:])
	}
	return parts
}

// prettyKeys returns the sorted keys of a map. Keys that cannot be compared are ordered by the
// names of their types.
func prettyKeys(m *value.Map) []any {
	if keys, ok := sortedKeys(m); ok {
		return keys
	}

	var keys []any
	for k := range m.All() {
		keys = append(keys, k)
	}

	slices.SortStableFunc(keys, func(a, b any) int {
		if c := strings.Compare(pythonType(a), pythonType(b)); c != 0 {
			return c
		}
		if s, ok := a.(string); ok {
			return strings.Compare(s, b.(string))
		}
		return number64(a).Cmp(number64(b))
	})

	return keys
}

// prettyRepr returns value.Repr of a value with the keys of its maps sorted.
func prettyRepr(v any) string {
	switch v := v.(type) {
	case *value.Map:
		parts := make([]string, 0, v.Len())
		for _, k := range prettyKeys(v) {
			e, _ := v.GetAny(k)
			parts = append(parts, prettyRepr(k)+": "+prettyRepr(e))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case []any:
		parts := make([]string, 0, len(v))
		for _, e := range v {
			parts = append(parts, prettyRepr(e))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}

	return value.Repr(v)
}
