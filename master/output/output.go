package output

import (
	"strings"
	"unicode"
)

// Indent configures the line breaks of the json, yaml and pprint outputters (Salt's output_indent).
// The zero value means each outputter's own default.
type Indent struct {
	Set    bool // the user has chosen an indent
	Width  int  // spaces per level; a negative number puts everything on one line
	Pretty bool // json only: four spaces and sorted keys
}

// Options holds the options of the outputters from Salt's configuration and command line. With the
// zero value, outputters print without colours, omit successful states without changes and do not
// replace escapes. Defaults returns Salt's defaults.
type Options struct {
	Color        bool // write ANSI colour sequences
	StripEscapes bool // make terminal escapes from minions harmless (strip_colors)
	Terminal     bool // the output goes to a terminal: make escapes harmless in txt, raw and json, too
	Indent       Indent

	StateOutput   string   // full, terse, mixed, changes or filter, each also with the suffix _id
	StateVerbose  bool     // show successful states without changes
	StateDiff     bool     // show only changes and failures (state_output_diff)
	StateProfile  bool     // show start times and durations (state_output_profile)
	StatePercent  bool     // show percentages in the summary (state_output_pct)
	StateTabular  bool     // show terse lines as a table
	StateCompress bool     // merge states with the same id into one (state_compress_ids)
	StateExclude  []string // results that state_output filter omits
	StateTerse    []string // results that state_output filter shortens
	Retcode       int      // return code of the job; if it is not 0, containers are red
	NestedIndent  int      // first column of the text of nested
	MultiKey      bool     // key outputter: print lists in the form that is used inside a larger text
	// Table holds the options of the table outputter, without the prefix "out.table.": has_header,
	// row_delimiter, delim, justify, separate_rows, prefix, suffix, width, rows_key, labels_key,
	// title, nested_indent.
	Table       map[string]any
	stateIndent int // set while states are formatted
}

// Defaults returns the options of a master with an empty configuration (salt/config/__init__.py
// DEFAULT_MASTER_OPTS).
func Defaults() Options {
	return Options{StripEscapes: true, StateOutput: "full", StateVerbose: true, StateProfile: true}
}

// failure is the panic value of an outputter whose data have the wrong form. In that case Render
// uses nested, as Salt does after KeyError, AttributeError and TypeError.
type failure string

var outputters = map[string]func(v any, o *Options) string{
	"nested":              nested,
	"highstate":           highstate,
	"json":                jsonText,
	"yaml":                yamlText,
	"txt":                 formatTxt,
	"raw":                 formatRaw,
	"pprint":              pprintText,
	"key":                 formatKey,
	"no_return":           noReturn,
	"newline_values_only": newlineValues,
	"table":               tableText,
	"profile":             profile,
	"quiet":               func(any, *Options) string { return "" },
}

// Known reports whether name is the name of an outputter; "text" means txt, and "" means nested.
func Known(name string) bool {
	_, ok := outputters[Canonical(name)]
	return ok
}

// Canonical returns the name that Salt uses for an outputter; name may also be "text" or "".
func Canonical(name string) string {
	switch name {
	case "":
		return "nested"
	case "text":
		return "txt"
	}
	return name
}

// Render returns v as text of the named outputter, without trailing white space. If the text is
// empty, the caller should print nothing. For an unknown name, or a value that the outputter cannot
// show, Render uses nested (salt/output/__init__.py try_printout, get_printout).
func Render(name string, v any, o Options) string {
	f, ok := outputters[Canonical(name)]
	if !ok {
		f = nested
	}
	s, ok := attempt(f, v, &o)
	if !ok {
		s, _ = attempt(nested, v, &o)
	}
	return trimRight(s)
}

func attempt(f func(any, *Options) string, v any, o *Options) (s string, ok bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, mine := r.(failure); !mine {
				panic(r)
			}
			s, ok = "", false
		}
	}()
	return f(v, o), true
}

// isSpace reports whether Python's str.isspace is true for a character.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

func trimRight(s string) string { return strings.TrimRightFunc(s, isSpace) }

func trimSpace(s string) string { return strings.TrimFunc(s, isSpace) }
