package conf

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"saltern/internal/durable"
	"saltern/master/saltyaml"
	"saltern/master/value"
)

const (
	maxFile    = 8 << 20 // bytes of one file
	maxInclude = 16      // depth of includes
	maxFiles   = 1000    // files of one configuration
	maxPlaces  = 8       // depth of maps up to which the lines of keys are recorded
)

// origin is the position where an option was set.
type origin struct {
	path string
	line int
}

// reader collects the options of all files.
type reader struct {
	origins  map[string]origin
	places   map[string]origin // positions of keys in map options, by saltyaml.Below
	notes    []Note
	settings []Setting
	faults   []*Fault
	files    []string // paths in the order in which they were read
}

func (r *reader) addNote(l slog.Level, path, format string, args ...any) {
	r.notes = append(r.notes, Note{Level: l, Path: path, Text: fmt.Sprintf(format, args...)})
}

// overrides returns the options of the main file and of all included files. If the main file is
// missing, overrides adds a note about it. It appends faults to r.faults.
func (r *reader) overrides(path, defaultInclude string) *value.Map {
	opts := &value.Map{}
	switch m, err := r.readFile(path); {
	case err != nil && errors.Is(err, fs.ErrNotExist):
		r.addNote(slog.LevelWarn, path, "configuration file is missing, defaults are used")
		r.files = r.files[:0]
	case err != nil:
		r.faults = append(r.faults, err)
	default:
		opts = m
	}

	if v, ok := opts.Get("default_include"); ok {
		defaultInclude, _ = v.(string)
	}

	include, _ := opts.Get("include")
	for _, part := range []*value.Map{r.include(defaultInclude, path, false, 0), r.include(include, path, true, 0)} {
		r.noteReplaced(opts, part)
		opts.Update(part)
	}

	return opts
}

// noteReplaced adds a note if an included file replaces the schedule of the main file. Salt also
// replaces that schedule, but merges the schedules of several included files.
func (r *reader) noteReplaced(opts, part *value.Map) {
	if _, also := part.Get(scheduleOption); also && opts.Map(scheduleOption).Len() > 0 {
		o := r.origins[scheduleOption]
		text := "this schedule replaces that of the file before, as with Salt"
		r.notes = append(r.notes, Note{
			Level:  slog.LevelWarn,
			Option: scheduleOption,
			Path:   o.path,
			Line:   o.line,
			Text:   text,
		})
	}
}

// readFile returns the options of one file. It converts option names that are not text to text.
func (r *reader) readFile(path string) (*value.Map, *Fault) {
	if r.files = append(r.files, path); len(r.files) > maxFiles {
		return nil, &Fault{Path: path, Err: fmt.Errorf("more than %d configuration files", maxFiles)}
	}

	b, err := readRegular(path)
	if err != nil {
		return nil, &Fault{Path: path, Err: fmt.Errorf("read configuration: %w", err)}
	}

	v, err := saltyaml.Decode(b, path)
	if err != nil {
		f := &Fault{Path: path, Err: err}
		if e := (*saltyaml.Error)(nil); errors.As(err, &e) {
			f.Line, f.Err = e.Line, e.Err
		}
		return nil, f
	}

	m, ok := v.(*value.Map)
	if !ok {
		if !value.Truth(v) {
			return &value.Map{}, nil
		}

		return nil, &Fault{
			Path: path,
			Line: 1,
			Err:  fmt.Errorf("expected options, one per line as name: value, found %s", typeName(v)),
		}
	}

	lines := saltyaml.Lines(b)
	for k := range m.All() {
		if s, ok := k.(string); ok {
			r.origins[s] = origin{path, lines[s]}
		} else {
			r.addNote(slog.LevelWarn, path, "option name %v is not text, ignored", k)
		}
	}

	options := append(builtinParts().keyNames(), scheduleOption, "nodegroups")
	for name, line := range saltyaml.LinesBelow(b, maxPlaces, options...) {
		r.places[name] = origin{path, line}
	}

	if v, ok := m.Get("id"); ok && v != nil {
		if c, ok := convert(v, "str"); ok {
			m.Set("id", c)
		}
	}

	return m, nil
}

// readRegular reads a regular file of bounded size. It refuses devices and FIFOs.
func readRegular(path string) ([]byte, error) {
	b, _, err := durable.ReadFile(path, maxFile, durable.Follow)
	return b, withoutPath(err)
}

// withoutPath removes the path from an error, since a Fault names the file.
func withoutPath(err error) error {
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		return p.Err
	}
	return err
}

// lineOf returns the line at which a file sets an option, or 0 if another file set the option.
func (r *reader) lineOf(option, path string) int {
	if o := r.origins[option]; o.path == path {
		return o.line
	}
	return 0
}

// include returns the options of the files that an include option names
// (salt.config.include_config). Values of later files replace those of earlier ones, except that
// maps are merged and lists are joined.
func (r *reader) include(include any, from string, verbose bool, depth int) *value.Map {
	conf := &value.Map{}
	bad := func(format string, args ...any) {
		r.faults = append(r.faults,
			&Fault{Path: from, Line: r.lineOf("include", from), Option: "include", Err: fmt.Errorf(format, args...)})
	}

	var patterns []string
	switch v := include.(type) {
	case string:
		if v != "" {
			patterns = []string{v}
		}
	case []any:
		for _, p := range v {
			if s, ok := p.(string); ok {
				patterns = append(patterns, s)
			} else {
				bad("expected paths, found %s", typeName(p))
			}
		}
	case nil:
	default:
		bad("expected a path or a list of paths, found %s", typeName(v))
	}

	if depth > maxInclude && len(patterns) > 0 {
		bad("files include each other more than %d deep", maxInclude)
		return conf
	}

	for _, p := range patterns {
		if rest, ok := strings.CutPrefix(p, "~/"); ok {
			if home, err := os.UserHomeDir(); err == nil {
				p = filepath.Join(home, rest)
			}
		}

		if !filepath.IsAbs(p) {
			p = filepath.Join(filepath.Dir(from), p)
		}

		files := expandGlob(p)
		if len(files) == 0 && verbose {
			r.addNote(slog.LevelWarn, from, "include %s matches no files", p)
		}

		for _, f := range files {
			if len(r.files) > maxFiles {
				return conf
			}

			m, err := r.readFile(f)
			if err != nil {
				// Programs write files with this ending. Skip such a file if it cannot be read, as
				// Salt does.
				if strings.HasSuffix(f, "_schedule.conf") {
					r.notes = append(r.notes,
						Note{
							Level: slog.LevelError,
							Path:  f,
							Line:  err.Line,
							Text:  fmt.Sprintf("schedule is ignored: %v", err.Err),
						})
				} else {
					r.faults = append(r.faults, err)
				}

				continue
			}

			if inc, ok := m.Get("include"); ok && value.Truth(inc) {
				m.Update(r.include(inc, f, verbose, depth+1))
			}

			mergeLists(conf, m)
		}
	}

	return conf
}

// mergeLists updates dst from src as salt.utils.dictupdate.update does with merge_lists.
func mergeLists(dst, src *value.Map) {
	for k, v := range src.All() {
		old, _ := dst.GetAny(k)
		switch v := v.(type) {
		case *value.Map:
			if o, ok := old.(*value.Map); ok {
				c := o.Clone()
				mergeLists(c, v)
				dst.Set(k, c)
				continue
			}
		case []any:
			if o, ok := old.([]any); ok {
				joined := append([]any(nil), o...)
				for _, x := range v {
					if !slices.ContainsFunc(joined, func(y any) bool { return value.Equal(x, y) }) {
						joined = append(joined, x)
					}
				}

				dst.Set(k, joined)
				continue
			}
		}

		dst.Set(k, v)
	}
}
