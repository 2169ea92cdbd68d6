package conf

import (
	_ "embed"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"saltern/master/value"
)

// partsText is the table of the keys inside of options; the head of the file explains its columns.
//
//go:embed parts.txt
var partsText string

// anyName, alone or after a prefix, is the key of a row that stands for all names.
const anyName = "*"

// shownKeys bounds the keys that a note lists.
const shownKeys = 16

// builtinParts returns the parsed table of the keys inside options. A test checks that the table
// can be parsed.
var builtinParts = sync.OnceValue(func() *part {
	root, err := readParts(partsText)
	if err != nil {
		panic("parts.txt: " + err.Error())
	}
	return root
})

// part is one row of the table: an option, or a key inside an option.
type part struct {
	option // types is empty when any type is permitted
	keys   map[string]*part
}

// rowOf returns the row of a key: the row with the key's name, else the row with the longest prefix
// of that name, else nil.
func (p *part) rowOf(name string) *part {
	if exact := p.keys[name]; exact != nil {
		return exact
	}
	for n := len(name); n >= 0; n-- {
		if row := p.keys[name[:n]+anyName]; row != nil {
			return row
		}
	}
	return nil
}

// keyNames returns the keys that have a fixed name, sorted.
func (p *part) keyNames() []string {
	names := make([]string, 0, len(p.keys))
	for name := range p.keys {
		if !strings.HasSuffix(name, anyName) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// PartUse returns how the master uses a key inside an option, and why, in the terms of [Use]. It
// returns "" for a key that is not in the table. Where administrators choose the names of keys,
// PartUse treats every name as one that is in the table.
func PartUse(option string, keys ...string) (use, remark string) {
	p := builtinParts().keys[option]
	for _, key := range keys {
		if p == nil {
			return "", ""
		}
		p = p.rowOf(key)
	}
	if p == nil {
		return "", ""
	}
	return p.use, p.remark
}

// readParts parses the format of parts.txt. The keys of the returned row are the options.
func readParts(text string) (*part, error) {
	root := &part{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}

		cells := cellsOf(line, 4)

		row := root.rowAt(strings.Split(cells[0], " > "))
		if row.name != "" {
			return nil, fmt.Errorf("%s is listed twice", cells[0])
		}

		row.name = cells[0]
		row.types = strings.Fields(cells[1])
		row.remark = cells[3]
		if cells[2] != "" {
			row.use = cells[2]
		}

		checked := row.option
		if len(checked.types) == 0 {
			checked.types = []string{"any"}
		}

		if err := checked.checkRow(); err != nil {
			return nil, err
		}
	}

	return root, nil
}

// rowAt returns the row of a path of keys, and creates the rows on the path that are missing. A row
// that no line describes has the use "used".
func (p *part) rowAt(path []string) *part {
	for _, name := range path {
		row := p.keys[name]
		if row == nil {
			row = &part{option: option{use: "used"}}
			if p.keys == nil {
				p.keys = map[string]*part{}
			}
			p.keys[name] = row
		}
		p = row
	}
	return p
}

// checkParts adds notes about keys inside of options that this master ignores or whose values have
// a wrong type.
func (a *assembly) checkParts() {
	all := builtinParts()
	for _, name := range all.keyNames() {
		set, given := a.fromFiles.Get(name)
		if !given || a.known[name].ignored() {
			continue
		}
		a.lookInto(all.keys[name], set, []string{name})
	}
}

// lookInto checks a value against the row of its key; path holds the keys that lead to the value.
// It checks each element of a list against the row of the list.
func (a *assembly) lookInto(row *part, v any, path []string) {
	if len(row.keys) == 0 {
		return
	}

	switch v := v.(type) {
	case []any:
		for _, item := range v {
			a.lookInto(row, item, path)
		}
	case *value.Map:
		for k, below := range v.All() {
			name := textOrEmpty(k)
			if converted, ok := convert(k, "str"); ok {
				name = textOrEmpty(converted)
			}
			a.lookAt(row, name, below, path)
		}
	}
}

// lookAt checks the key name of a map against the row of the map.
func (a *assembly) lookAt(above *part, name string, v any, path []string) {
	path = append(slices.Clone(path), name)
	row := above.rowOf(name)
	if row == nil {
		a.partNote(slog.LevelWarn, path, "nobody reads it; there are %s", commaList(above.keyNames()))
		return
	}
	if v == nil {
		return // null counts as a missing key
	}

	if row.ignored() {
		level := slog.LevelWarn
		if row.use == "info" {
			level = slog.LevelInfo
		}
		a.partNote(level, path, "not used by this master: %s", row.remark)
		return
	}

	if len(row.types) > 0 {
		if _, err := coerce(v, row.types); err != nil {
			why := fmt.Sprintf("expected %s, found %s", wantedWords(row.types), kindOf(v))
			if row.remark != "" {
				why += ": " + row.remark
			}
			a.partNote(slog.LevelWarn, path, "%s", why)
			return
		}
	}

	a.lookInto(row, v, path)
}

// partNote adds a note about a key inside an option. The note never contains the key's value, which
// may be secret.
func (a *assembly) partNote(level slog.Level, path []string, format string, args ...any) {
	shown := make([]string, 0, len(path))
	for _, name := range path[1:] {
		name, _ = Shown(name).(string)
		shown = append(shown, fmt.Sprintf("%.80s", name))
	}
	o := a.placeIn(path[0], path[1:]...)
	a.notes = append(a.notes, Note{
		Level:  level,
		Option: path[0],
		Path:   o.path,
		Line:   o.line,
		Text:   strings.Join(shown, " > ") + ": " + fmt.Sprintf(format, args...),
	})
}

// commaList formats a list of names for a message.
func commaList(names []string) string {
	if len(names) == 0 {
		return "no keys"
	}
	if more := len(names) - shownKeys; more > 1 {
		names = append(slices.Clip(names[:shownKeys]), fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}
