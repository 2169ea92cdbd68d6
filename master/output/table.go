package output

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"saltern/master/value"
)

// table lays out tables for Salt's outputter "table" (salt/output/table_out.py).
type table struct {
	*Options
	palette
	header, separate                    bool
	rowDelimiter, delim, prefix, suffix string
	justify                             func(s string, width int) string
	width                               int
	rowsKey, labelsKey                  string
	lines                               []string
}

// tableText returns lists of maps, of lists and of texts as tables, each below the keys that lead
// to it. It skips a list whose rows are of different types.
func tableText(v any, o *Options) string {
	t := newTable(o)
	t.showTables(decoded(v), t.indent())
	return strings.Join(t.lines, "\n")
}

func newTable(o *Options) *table {
	t := &table{
		Options:      o,
		palette:      o.colors(),
		header:       true,
		separate:     true,
		rowDelimiter: "-",
		delim:        " | ",
		prefix:       "| ",
		suffix:       " |",
		justify:      center,
		width:        50,
	}

	text := func(name string, p *string) {
		if v, ok := o.Table[name]; ok && v != nil {
			s, ok := v.(string)
			if !ok {
				panic(failure("out.table." + name + " is no text"))
			}
			*p = s
		}
	}

	truth := func(name string, p *bool) {
		if v, ok := o.Table[name]; ok && v != nil {
			*p = value.Truth(v)
		}
	}

	text("row_delimiter", &t.rowDelimiter)
	text("delim", &t.delim)
	text("prefix", &t.prefix)
	text("suffix", &t.suffix)
	text("rows_key", &t.rowsKey)
	text("labels_key", &t.labelsKey)
	truth("has_header", &t.header)
	truth("separate_rows", &t.separate)
	how := "center"
	text("justify", &how)

	switch strings.ToLower(how) {
	case "center":
	case "left":
		t.justify = func(s string, width int) string { return s + blanks(width-utf8.RuneCountInString(s)) }
	case "right":
		t.justify = func(s string, width int) string { return blanks(width-utf8.RuneCountInString(s)) + s }
	default:
		panic(failure("out.table.justify"))
	}

	if n, ok := o.Table["width"].(int64); ok {
		t.width = int(n)
	}

	return t
}

// indent returns the column at which the table begins. If there is a title, indent also prints the
// title.
func (t *table) indent() int {
	indent := t.NestedIndent
	if n, ok := t.Table["nested_indent"].(int64); ok && indent == 0 {
		indent = int(n)
	}
	if title, ok := t.Table["title"].(string); ok && title != "" && t.rowsKey != "" {
		// Salt's code swaps colour and title here; without colours the output is the same.
		t.lines = append(t.lines, blanks(indent)+title+t.white+t.end+"\n")
	}
	return indent
}

func blanks(n int) string { return strings.Repeat(" ", max(n, 0)) }

// center pads a text by the rules of Python's str.center.
func center(s string, width int) string {
	n := utf8.RuneCountInString(s)
	if n >= width {
		return s
	}
	pad := width - n
	left := pad/2 + pad&width&1
	return blanks(left) + s + blanks(pad-left)
}

// showTables prints all tables in v.
func (t *table) showTables(v any, indent int) {
	m, ok := v.(*value.Map)
	if !ok {
		if rows, ok := v.([]any); ok && t.rowsKey == "" {
			t.showRows(rows, nil, indent)
		}
		return
	}

	keys, ok := sortedKeys(m)
	if !ok {
		panic(failure("keys cannot be sorted"))
	}

	if _, here := m.Get(t.rowsKey); t.rowsKey != "" && !here {
		for _, k := range keys {
			e, _ := m.GetAny(k)
			t.showTables(e, indent)
		}
		return
	}

	for _, k := range keys {
		if t.rowsKey != "" && k != t.rowsKey {
			continue
		}

		if t.rowsKey == "" {
			t.lines = append(t.lines, blanks(indent)+t.darkGray+t.stripLine(value.Str(k))+t.end+":",
				blanks(indent)+t.darkGray+"----------"+t.end)
		}

		e, _ := m.GetAny(k)
		rows, ok := e.([]any)
		if !ok {
			t.showTables(e, indent+4)
			continue
		}

		var labels any
		if t.labelsKey != "" {
			labels, _ = m.Get(t.labelsKey)
		}

		t.showRows(rows, labels, indent)
	}
}

// showRows prints one table, or nothing if its rows differ in type.
func (t *table) showRows(rows []any, labels any, indent int) {
	if len(rows) == 0 {
		return
	}

	kind := pythonType(rows[0])
	for _, r := range rows[1:] {
		if pythonType(r) != kind {
			return
		}
	}

	var cells [][]string
	if head := labelTexts(labels); len(head) > 0 {
		cells = append(cells, head)
	}

	if kind == "dict" && len(cells) == 0 {
		var head []string
		for _, k := range orderedKeys(rows[0].(*value.Map)) {
			head = append(head, titleCase(strings.ReplaceAll(value.Str(k), "_", " ")))
		}
		if len(head) > 0 {
			cells = append(cells, head)
		}
	}

	header := t.header && len(cells) > 0
	for _, r := range rows {
		cells = append(cells, rowTexts(r))
	}

	t.showCells(cells, indent+4, header)
}

// labelTexts returns the labels that the data contains.
func labelTexts(v any) []string {
	switch v := v.(type) {
	case *value.Map:
		var out []string
		for _, k := range orderedKeys(v) {
			e, _ := v.GetAny(k)
			out = append(out, cellText(e))
		}
		return out
	case []any:
		return rowTexts(v)
	}
	return nil
}

func orderedKeys(m *value.Map) []any {
	keys, ok := sortedKeys(m)
	if !ok {
		panic(failure("keys cannot be sorted"))
	}
	return keys
}

// rowTexts returns the cells of a row. For a map these are all values; for a list these are only
// the texts, as in Salt.
func rowTexts(r any) (out []string) {
	switch r := r.(type) {
	case *value.Map:
		for _, k := range orderedKeys(r) {
			e, _ := r.GetAny(k)
			out = append(out, value.Str(e))
		}
	case string:
		out = []string{r}
	case []any:
		for _, e := range r {
			out = append(out, cellText(e))
		}
	default:
		panic(failure("not a row"))
	}

	return out
}

func cellText(v any) string {
	s, ok := v.(string)
	if !ok {
		panic(failure("not a text"))
	}
	return s
}

// showCells prints the cells of a table. As in Salt, the cell with the fewest lines determines the
// height of a row, and the shortest row the width of the table.
func (t *table) showCells(cells [][]string, indent int, header bool) {
	var high [][][]string // index by row, line of the row, and cell
	var widths []int
	for n, row := range cells {
		if len(row) == 0 {
			panic(failure("a row without cells"))
		}

		split := make([][]string, len(row))
		height := -1
		for i, c := range row {
			split[i] = strings.Split(t.wrapped(t.stripEscapes(c)), "\n")
			if height < 0 || len(split[i]) < height {
				height = len(split[i])
			}
		}

		var lines [][]string
		for l := range height {
			line := make([]string, len(split))
			for i := range split {
				line[i] = split[i][l]
			}
			lines = append(lines, line)
		}

		high = append(high, lines)
		if n == 0 {
			widths = make([]int, len(row))
		}

		widths = widths[:min(len(widths), len(row))]
		for _, line := range lines {
			for i := range widths {
				widths[i] = max(widths[i], utf8.RuneCountInString(line[i]))
			}
		}
	}

	total := utf8.RuneCountInString(t.prefix) + utf8.RuneCountInString(t.suffix) +
		utf8.RuneCountInString(t.delim)*(len(widths)-1)
	for _, w := range widths {
		total += w
	}

	rule := blanks(indent) + t.lightGray + strings.Repeat(t.rowDelimiter, max(total, 0)) + t.end
	if t.separate {
		t.lines = append(t.lines, rule)
	}

	for _, lines := range high {
		for _, line := range lines {
			out := make([]string, len(widths))
			for i, w := range widths {
				out[i] = t.justify(line[i], w)
			}
			t.lines = append(t.lines, blanks(indent)+t.white+t.prefix+strings.Join(out, t.delim)+t.suffix+t.end)
		}

		if t.separate || header {
			t.lines = append(t.lines, rule)
			header = false
		}
	}
}

// wrapped breaks a text at a blank where the next word would exceed the column's width.
func (t *table) wrapped(s string) string {
	words := strings.Split(s, " ")
	var b strings.Builder
	column := 0
	for i, w := range words {
		first, _, more := strings.Cut(w, "\n")
		n := utf8.RuneCountInString(first)
		switch {
		case i == 0:
			column = 0
		case column+n >= t.width:
			b.WriteByte('\n')
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}

		b.WriteString(w)
		column += n
		if more {
			column = utf8.RuneCountInString(w[strings.LastIndexByte(w, '\n')+1:])
		}
	}

	return b.String()
}

// pythonType returns Python's name for the type of a value.
func pythonType(v any) string {
	switch v.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case float64:
		return "float"
	case string:
		return "str"
	case []byte:
		return "bytes"
	case []any:
		return "list"
	case *value.Map:
		return "dict"
	}

	return "int"
}

// titleCase converts a text by the rules of Python's str.title.
func titleCase(s string) string {
	cased := false
	return strings.Map(func(r rune) rune {
		first := !cased
		cased = unicode.IsUpper(r) || unicode.IsLower(r) || unicode.IsTitle(r)
		switch {
		case !cased:
			return r
		case first:
			return unicode.ToTitle(r)
		}
		return unicode.ToLower(r)
	}, s)
}

// decoded returns v with each byte string that is valid text replaced by a string
// (salt.utils.data.decode).
func decoded(v any) any {
	switch v := v.(type) {
	case []byte:
		if utf8.Valid(v) {
			return string(v)
		}
	case []any:
		if slices.ContainsFunc(v, func(e any) bool {
			return pythonType(e) == "bytes" || pythonType(e) == "list" || pythonType(e) == "dict"
		}) {
			out := make([]any, len(v))
			for i, e := range v {
				out[i] = decoded(e)
			}
			return out
		}
	case *value.Map:
		out := value.NewMap()
		for k, e := range v.All() {
			out.Set(decoded(k), decoded(e))
		}
		return out
	}

	return v
}
