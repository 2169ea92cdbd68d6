package output

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"saltern/master/value"
)

// profileName is how many characters of a state's name the table shows.
const profileName = 60

// profile returns a table of how long each state took (salt/output/profile.py, up to Salt 3007).
func profile(v any, o *Options) string {
	m, ok := v.(*value.Map)
	if !ok {
		panic(failure("not a map"))
	}

	var rows []profileRow
	width := len("duration (ms)")
	add := func(id string, state any) {
		r := newProfileRow(id, state)
		width = max(width, len(r.text))
		rows = append(rows, r)
	}

	for _, ret := range m.All() {
		switch ret := ret.(type) {
		case *value.Map:
			for id, state := range ret.All() {
				add(value.Str(id), state)
			}
		case []any: // the errors of a state run
			for _, e := range ret {
				add(value.Str(e), itemAt(ret, e))
			}
		case string: // Salt goes through the text character by character
			for _, c := range ret {
				add(string(c), nothing{})
			}
		default:
			panic(failure("not states"))
		}
	}

	for i := range rows {
		rows[i].text = fmt.Sprintf("%*s", width, rows[i].text)
	}

	slices.SortStableFunc(rows, func(a, b profileRow) int {
		return cmp.Or(strings.Compare(a.text, b.text), strings.Compare(a.name, b.name), strings.Compare(a.function, b.function))
	})
	list := make([]any, len(rows))
	for i, r := range rows {
		list[i] = []any{r.name, r.function, r.text}
	}

	t := newTable(o)
	t.rowsKey, t.labelsKey = "rows", "labels"
	t.showTables(value.NewMap("labels", []any{"name", "mod.fun", "duration (ms)"}, "rows", list), t.indent())
	return strings.Join(t.lines, "\n")
}

// profileRow is a state in the table.
type profileRow struct {
	name     string
	function string
	text     string // the duration in the form in which it is shown
}

// newProfileRow returns the row of an id. state is the data of the state, the text of an error, or
// the value nothing{}.
func newProfileRow(id string, state any) profileRow {
	r := profileRow{name: "<>"}
	duration := -1.0
	switch s := state.(type) {
	case *value.Map:
		name, ok := s.Get("name")
		if !ok {
			name, _ = s.Get("__id__")
		}

		if name != nil {
			r.name = cellText(name)
		}

		if d, ok := s.Get("duration"); ok {
			duration = milliseconds(d)
		}
	case nothing:
	default:
		r.name = id
	}

	if utf8.RuneCountInString(r.name) > profileName {
		r.name = string([]rune(r.name)[:profileName-3]) + "..."
	}

	parts := strings.Split(id, "_|-")
	r.function = parts[0] + "." + parts[len(parts)-1]
	r.text = strconv.FormatFloat(duration, 'f', 4, 64)
	return r
}

// nothing is the value for the state of an id without data.
type nothing struct{}

// itemAt returns the element that Python finds in a list at an index. If the index is not a number,
// it returns nothing{}.
func itemAt(list []any, index any) any {
	var i int64
	switch n := index.(type) {
	case bool:
		if n {
			i = 1
		}
	case int64:
		i = n
	default:
		return nothing{}
	}

	if i < 0 {
		i += int64(len(list))
	}

	if i < 0 || i >= int64(len(list)) {
		panic(failure("no such item"))
	}

	return list[i]
}

// milliseconds converts a duration to a number by the rules of Python's float().
func milliseconds(v any) (f float64) {
	var err error
	switch v := v.(type) {
	case bool:
		if v {
			f = 1
		}
	case string:
		f, err = strconv.ParseFloat(strings.TrimSpace(v), 64)
	default:
		f, err = strconv.ParseFloat(value.Repr(v), 64)
	}

	if err != nil {
		panic(failure("a duration that is no number"))
	}

	return f
}
