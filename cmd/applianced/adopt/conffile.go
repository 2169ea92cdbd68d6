package adopt

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"saltern/master/saltyaml"
	"saltern/master/value"
)

// Classes of option files. Options of a later class replace those of an earlier class.
const (
	classMain    = iota
	classDefault // default_include
	classInclude
)

// confFile is one file of options of the other master.
type confFile struct {
	path    string // path on the other master
	class   int
	text    []byte
	options *value.Map
	lines   map[string]int
}

// confs holds all files of options, in the order in which a master reads them.
type confs struct {
	files []*confFile
	all   *value.Map // the merged options, without those that this package does not need
}

// readConfs returns the options in <dir>/master and in the files that it includes, by Salt's rules
// (salt/config/__init__.py include_config).
func readConfs(t *Tree, dir string) (*confs, error) {
	c := &confs{all: &value.Map{}}
	main := path.Join(dir, "master")
	m, err := c.readFile(t, main, classMain)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}

	include, also := any("master.d/*.conf"), any(nil)
	if m != nil {
		if v, ok := m.options.Get("default_include"); ok {
			include = v
		}
		also, _ = m.options.Get("include")
	}

	if err := c.include(t, include, dir, classDefault); err != nil {
		return nil, err
	}

	if err := c.include(t, also, dir, classInclude); err != nil {
		return nil, err
	}
	if len(c.files) == 0 {
		return nil, fmt.Errorf("there is no %s and nothing in %s.d; give the folder in which etc/salt lies "+
			"(/ or a copy of it), or --config-dir",
			main, main)
	}

	for _, f := range c.files {
		c.all.Update(f.options)
	}

	return c, nil
}

func (c *confs) readFile(t *Tree, name string, class int) (*confFile, error) {
	if slices.ContainsFunc(c.files, func(f *confFile) bool { return f.path == name }) {
		return nil, nil
	}
	if len(c.files) >= maxConfs {
		return nil, fmt.Errorf("read the options: more than %d files", maxConfs)
	}

	text, err := t.readFile(name, maxOptions)
	if err != nil {
		return nil, fmt.Errorf("read the options in %s: %w", name, err)
	}

	v, err := saltyaml.Decode(text, name)
	if err != nil {
		return nil, fmt.Errorf("read the options: %w; fix it there, as Salt's master has to read it too", err)
	}

	f := &confFile{
		path:    name,
		class:   class,
		text:    text,
		options: &value.Map{},
		lines:   saltyaml.Lines(text),
	}

	if m, ok := v.(*value.Map); ok {
		f.options = m
	} else if value.Truth(v) {
		return nil, fmt.Errorf("read the options: %s:1: it is no list of options, name: value", name)
	}

	c.files = append(c.files, f)
	return f, nil
}

func (c *confs) include(t *Tree, v any, dir string, class int) error {
	var patterns []string
	switch v := v.(type) {
	case string:
		patterns = []string{v}
	case []any:
		for _, p := range v {
			if s, ok := p.(string); ok {
				patterns = append(patterns, s)
			}
		}
	}

	for _, p := range patterns {
		if p == "" {
			continue
		}

		if !path.IsAbs(p) {
			p = path.Join(dir, p)
		}

		for _, name := range t.globPaths(p) {
			if _, fi, err := t.resolve(name); err != nil || !fi.Mode().IsRegular() {
				continue
			}

			f, err := c.readFile(t, name, class)
			if err != nil {
				return err
			}
			if f == nil {
				continue
			}

			if more, ok := f.options.Get("include"); ok {
				if err := c.include(t, more, path.Dir(name), class); err != nil {
					return err
				}
			}
		}
	}

	return nil
}

// textOption returns the value of a text option, or preset if the option is not set.
func (c *confs) textOption(option, preset string) string {
	if s := c.all.Str(option); s != "" {
		return s
	}
	return preset
}

// pathOption returns the value of a path option, or preset, relative to root_dir as in Salt.
func (c *confs) pathOption(option, preset string) string {
	p := c.textOption(option, preset)
	if root := c.textOption("root_dir", "/"); p != "" && root != "/" &&
		!strings.HasPrefix(p, strings.TrimSuffix(root, "/")+"/") {
		p = path.Join(root, p)
	}
	return p
}

// lineOf returns the file and the line that set the final value of an option.
func (c *confs) lineOf(option string) (file string, line int) {
	for _, f := range slices.Backward(c.files) {
		if _, ok := f.options.Get(option); ok {
			return f.path, f.lines[option]
		}
	}
	return "", 0
}

// noteAt returns a note about an option, with the place where the option is set.
func (c *confs) noteAt(option, format string, args ...any) Note {
	file, line := c.lineOf(option)
	return Note{File: file, Line: line, Option: option, Text: fmt.Sprintf(format, args...)}
}

// foundLater returns the file of a later class than f's that sets an option, and the line there.
// The value in that file overrides f's value. If no such file sets the option, ok is false.
func (c *confs) foundLater(f *confFile, option string) (file string, line int, ok bool) {
	for _, g := range c.files {
		if g.class > f.class {
			if _, there := g.options.Get(option); there {
				return g.path, g.lines[option], true
			}
		}
	}
	return "", 0, false
}

// target returns the name of the file in the appliance's folder of administrator's options.
func (f *confFile) target() string {
	base := strings.TrimSuffix(path.Base(f.path), ".conf")
	return fmt.Sprintf("import-%d-%s.conf", f.class, base)
}
