package conf

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	"saltern/master/saltyaml"
	"saltern/master/value"
)

// optionsText is the table of all options; the head of the file explains its columns.
//
//go:embed options.txt
var optionsText string

// builtin returns the parsed table of options. A test checks that the table can be parsed.
var builtin = sync.OnceValue(func() *table {
	t, err := readTable(optionsText)
	if err != nil {
		panic("options.txt: " + err.Error())
	}
	return t
})

// table describes all known options.
type table struct {
	groups  []group
	options map[string]option
}

// group is a heading of the table with the options below it.
type group struct {
	title, page string
	names       []string
}

// option is one row of the table.
type option struct {
	name    string
	types   []string // names of Salt's types; "any" for all types
	preset  string   // default as YAML; "" when there is none
	use     string   // used, python, other, info or warn
	secrecy string   // "", secret, private or arguments
	remark  string
}

// Use returns how the master uses an option (used, python, other, info or warn, as in the table)
// and why. It returns "" for an unknown option.
func Use(name string) (use, remark string) {
	o := builtin().options[name]
	return o.use, o.remark
}

// ignored reports that neither this master nor one of its Python processes uses the option.
func (o option) ignored() bool { return o.use != "used" && o.use != "python" }

// nullable reports whether the option may be null.
func (o option) nullable() bool {
	return slices.Contains(o.types, "null") || slices.Contains(o.types, "any")
}

// readTable parses a text in the format of options.txt.
func readTable(text string) (*table, error) {
	t := &table{options: make(map[string]option, 640)}
	var use, remark string // the use and the remark of the last row that has these columns; the rows after it share them
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		heading := strings.HasPrefix(line, "## ")
		if line == "" || line[0] == '#' && !heading {
			continue
		}

		cells := cellsOf(strings.TrimPrefix(line, "## "), 5)
		if heading {
			t.groups = append(t.groups, group{title: cells[0], page: cells[1]})
			use, remark = cells[2], cells[3]
			continue
		}

		o := option{
			name:   cells[0],
			types:  strings.Fields(cells[1]),
			preset: cells[2],
			use:    use,
			remark: cells[4],
		}

		if cells[3] != "" {
			o.use, o.secrecy, _ = strings.Cut(cells[3], " ")
		}

		if o.remark == "" && o.use == use {
			o.remark = remark
		}

		if err := o.checkRow(); err != nil {
			return nil, err
		}

		if _, twice := t.options[o.name]; twice || len(t.groups) == 0 {
			return nil, fmt.Errorf("option %s is listed twice or in no group", o.name)
		}

		t.options[o.name] = o
		last := &t.groups[len(t.groups)-1]
		last.names = append(last.names, o.name)
	}

	return t, nil
}

// cellsOf returns the cells of a line of the table, at least minCells of them, padded with "".
func cellsOf(line string, minCells int) []string {
	for strings.Contains(line, "| |") { // an empty cell may have any width
		line = strings.ReplaceAll(line, "| |", "|  |")
	}
	cells := strings.Split(line, " | ")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return append(cells, make([]string, max(0, minCells-len(cells)))...)
}

// checkRow returns the first fault of a row, or nil.
func (o option) checkRow() error {
	for _, typ := range o.types {
		if wanted[typ] == "" {
			return fmt.Errorf("option %s has the type %q", o.name, typ)
		}
	}

	switch {
	case len(o.types) == 0:
		return fmt.Errorf("option %s has no type", o.name)
	case !slices.Contains([]string{"used", "python", "other", "info", "warn"}, o.use):
		return fmt.Errorf("option %s has the use %q", o.name, o.use)
	case !slices.Contains([]string{"", "secret", "private", "arguments"}, o.secrecy):
		return fmt.Errorf("option %s has the secrecy %q", o.name, o.secrecy)
	case o.ignored() && o.remark == "":
		return fmt.Errorf("option %s is not used and has no reason", o.name)
	}

	return nil
}

// defaults returns the default values of all options, in a new map.
func (t *table) defaults() (*value.Map, error) {
	var text strings.Builder
	for _, g := range t.groups {
		for _, name := range g.names {
			if o := t.options[name]; o.preset != "" {
				fmt.Fprintf(&text, "%s: %s\n", name, o.preset)
			}
		}
	}

	v, err := saltyaml.Decode([]byte(text.String()), "options.txt")
	if err != nil {
		return nil, err
	}

	m, ok := v.(*value.Map)
	if !ok {
		return nil, fmt.Errorf("defaults are %s", typeName(v))
	}

	return m, nil
}
