package conf

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"saltern/master/msgpack"
	"saltern/master/saltyaml"
)

const (
	maxFile    = 8 << 20 // bytes of one file
	maxInclude = 16      // files that include files
	maxFiles   = 1000    // files in all
)

// origin is where an option was set.
type origin struct {
	path string
	line int
}

func (o origin) String() string {
	if o.line > 0 {
		return fmt.Sprintf("%s:%d", o.path, o.line)
	}
	return o.path
}

// reader collects the options of all files.
type reader struct {
	origins map[string]origin
	notes   []Note
	faults  []error
	files   int
}

func (r *reader) note(l slog.Level, path, format string, args ...any) {
	r.notes = append(r.notes, Note{Level: l, Path: path, Text: fmt.Sprintf(format, args...)})
}

// overrides reads the main file and all that it includes. A missing main
// file is noted, not an error. Faults in files go to r.faults.
func (r *reader) overrides(path, defaultInclude string) *msgpack.Map {
	opts := &msgpack.Map{}
	switch m, err := r.file(path); {
	case errors.Is(err, fs.ErrNotExist):
		r.note(slog.LevelWarn, path, "configuration file is missing, defaults are used")
	case err != nil:
		r.faults = append(r.faults, err)
	default:
		opts = m
	}
	if v, ok := opts.Get("default_include"); ok {
		defaultInclude, _ = v.(string)
	}
	include, _ := opts.Get("include")
	for _, part := range []*msgpack.Map{r.include(defaultInclude, path, false, 0), r.include(include, path, true, 0)} {
		for k, v := range part.All() {
			opts.Set(k, v)
		}
	}
	return opts
}

// file reads one file. Option names that are not text become text.
func (r *reader) file(path string) (*msgpack.Map, error) {
	if r.files++; r.files > maxFiles {
		return nil, fmt.Errorf("more than %d configuration files", maxFiles)
	}
	b, err := readRegular(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	v, err := saltyaml.Decode(b, path)
	if err != nil {
		return nil, err
	}
	m, ok := v.(*msgpack.Map)
	if !ok {
		if empty(v) {
			return &msgpack.Map{}, nil
		}
		return nil, fmt.Errorf("%s: expected options, one per line as name: value, found %s", path, typeName(v))
	}
	lines := topLines(b)
	for k := range m.All() {
		if s, ok := k.(string); ok {
			r.origins[s] = origin{path, lines[s]}
		} else {
			r.note(slog.LevelWarn, path, "option name %v is not text, ignored", k)
		}
	}
	if v, ok := m.Get("id"); ok && v != nil {
		if c, ok := convert(v, "str"); ok {
			m.Set("id", c)
		}
	}
	return m, nil
}

func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case bool:
		return !v
	case int64:
		return v == 0
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	}
	return false
}

// readRegular reads a file that is neither device nor FIFO, of bounded size.
func readRegular(path string) ([]byte, error) {
	// Without O_NONBLOCK the open of a FIFO waits for a writer.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil {
		return nil, err
	} else if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxFile {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxFile)
	}
	return b, nil
}

// topLines finds the line of each option, for messages only.
func topLines(b []byte) map[string]int {
	lines := make(map[string]int)
	n := 0
	for line := range strings.Lines(string(b)) {
		n++
		name, _, ok := strings.Cut(line, ":")
		if !ok || name == "" || name[0] == ' ' || name[0] == '#' || name[0] == '-' {
			continue
		}
		name = strings.Trim(strings.TrimSpace(name), `"'`)
		if _, seen := lines[name]; !seen {
			lines[name] = n
		}
	}
	return lines
}

// include reads the files of an include option (salt.config.include_config):
// later files win, maps are merged, lists are joined.
func (r *reader) include(include any, from string, verbose bool, depth int) *msgpack.Map {
	conf := &msgpack.Map{}
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
				r.faults = append(r.faults, fmt.Errorf("%s: option include: expected paths, found %s", from, typeName(p)))
			}
		}
	case nil:
	default:
		r.faults = append(r.faults, fmt.Errorf("%s: option include: expected a path or a list of paths, found %s", from, typeName(v)))
	}
	if depth > maxInclude && len(patterns) > 0 {
		r.faults = append(r.faults, fmt.Errorf("%s: option include: files include each other more than %d deep", from, maxInclude))
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
		files := glob(p)
		if len(files) == 0 && verbose {
			r.note(slog.LevelWarn, from, "include %s matches no files", p)
		}
		for _, f := range files {
			if r.files > maxFiles {
				return conf
			}
			m, err := r.file(f)
			if err != nil {
				// The schedule is written by programs: Salt goes on without
				// it, and so do we.
				if strings.HasSuffix(f, "_schedule.conf") {
					r.note(slog.LevelError, f, "schedule is ignored: %v", err)
				} else {
					r.faults = append(r.faults, err)
				}
				continue
			}
			if inc, ok := m.Get("include"); ok && !empty(inc) {
				for k, v := range r.include(inc, f, verbose, depth+1).All() {
					m.Set(k, v)
				}
			}
			merge(conf, m)
		}
	}
	return conf
}

// merge is salt.utils.dictupdate.update with merge_lists.
func merge(dst, src *msgpack.Map) {
	for k, v := range src.All() {
		old, _ := dst.GetAny(k)
		switch v := v.(type) {
		case *msgpack.Map:
			if o, ok := old.(*msgpack.Map); ok {
				c := o.Clone()
				merge(c, v)
				dst.Set(k, c)
				continue
			}
		case []any:
			if o, ok := old.([]any); ok {
				joined := append([]any(nil), o...)
				for _, x := range v {
					if !contains(joined, x) {
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

func contains(l []any, x any) bool {
	for _, y := range l {
		if equal(x, y) {
			return true
		}
	}
	return false
}

// equal compares two decoded values as Python would.
func equal(a, b any) bool {
	switch a := a.(type) {
	case *msgpack.Map:
		o, ok := b.(*msgpack.Map)
		if !ok || a.Len() != o.Len() {
			return false
		}
		for k, v := range a.All() {
			w, ok := o.GetAny(k)
			if !ok || !equal(v, w) {
				return false
			}
		}
		return true
	case []any:
		o, ok := b.([]any)
		if !ok || len(a) != len(o) {
			return false
		}
		for i := range a {
			if !equal(a[i], o[i]) {
				return false
			}
		}
		return true
	case []byte:
		o, ok := b.([]byte)
		return ok && string(a) == string(o)
	}
	switch b.(type) {
	case *msgpack.Map, []any, []byte:
		return false
	}
	return a == b
}
