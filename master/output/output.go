package output

import (
	"strings"
	"unicode"
)

// Indent configures the line breaks of the json, yaml and pprint outputters (Salt's output_indent).
// The zero value leaves them to the outputter.
type Indent struct {
	Set    bool // an indent was asked for
	Width  int  // spaces; negative puts everything on one line
	Pretty bool // json only: four spaces and sorted keys
}

// Options are the options of the outputters from Salt's configuration and command line. The zero
// value prints without colours, shows no successful states and strips nothing. Defaults returns
// Salt's defaults.
type Options struct {
	Color        bool // write ANSI colours
	StripEscapes bool // make escapes from minions harmless (strip_colors)
	Terminal     bool // the output goes to a terminal: strip escapes in txt as well
	Indent       Indent

	StateOutput   string   // full, terse, mixed, changes, filter, each also with _id
	StateVerbose  bool     // show successful states without changes
	StateDiff     bool     // show only changes and failures (state_output_diff)
	StateProfile  bool     // show start times and durations (state_output_profile)
	StatePercent  bool     // percentages in the summary (state_output_pct)
	StateTabular  bool     // terse lines as a table
	StateCompress bool     // roll states of one id into one (state_compress_ids)
	StateExclude  []string // results left out by state_output filter
	StateTerse    []string // results shortened by state_output filter
	Retcode       int      // of the job; colours containers red when not 0
	NestedIndent  int      // first column of nested
	MultiKey      bool     // key outputter: lists inside a larger text
	// Table holds the options of tables, without the prefix "out.table.": has_header,
	// row_delimiter, delim, justify, separate_rows, prefix, suffix, width, rows_key, labels_key,
	// title, nested_indent.
	Table       map[string]any
	stateIndent int
}

// Defaults returns the options of a master with an empty configuration (salt/config/__init__.py
// DEFAULT_MASTER_OPTS).
func Defaults() Options {
	return Options{StripEscapes: true, StateOutput: "full", StateVerbose: true, StateProfile: true}
}

// failure is the panic of an outputter whose value has the wrong shape. Render then uses nested, as
// Salt does on KeyError, AttributeError and TypeError.
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

// Known reports whether name is an outputter. "text" is another name of txt,
// and the empty name stands for nested.
func Known(name string) bool {
	_, ok := outputters[Canonical(name)]
	return ok
}

// Canonical returns Salt's name of an outputter.
func Canonical(name string) string {
	switch name {
	case "":
		return "nested"
	case "text":
		return "txt"
	}
	return name
}

// Render formats v with the named outputter, without trailing white space; an
// empty result means that nothing is printed. An unknown name, or a value the
// outputter cannot show, is formatted by nested (salt/output/__init__.py
// try_printout, get_printout).
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

// isSpace is Python's str.isspace for one character.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

func trimRight(s string) string { return strings.TrimRightFunc(s, isSpace) }

func trimSpace(s string) string { return strings.TrimFunc(s, isSpace) }
