package adopt

import (
	"bytes"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"saltern/master/conf"
	"saltern/master/saltyaml"
	"saltern/master/value"
	"saltern/supervisor/settings"
)

// optionFile is a file of options as it will be on the appliance.
type optionFile struct {
	name string
	from *confFile
	text []byte
	// drop maps each omitted option to the reason. change maps each option with a new value to that
	// value.
	drop   map[string]string
	change map[string]any
}

// sorter decides for each option of the other master whether the import keeps, changes or omits it.
type sorter struct {
	settings *settings.Settings
	confs    *confs
	tree     *Tree
	roots    []*root
	notes    []Note
	leftOut  int // number of omitted options
	files    []*optionFile
}

// elsewhere returns the options whose content is imported in another form, each with an explanation.
func elsewhere() map[string]string {
	return map[string]string{
		"file_roots":   "the files are brought to srv/salt on the storage",
		"pillar_roots": "the files are brought to srv/pillar on the storage",
		"gpg_keydir":   "the keys are brought into the appliance's keyring: applianced secrets list",
		"key_pass": "the master's key is kept in clear on the appliance, which only root and the " +
			"master may read",
		"cluster_key_pass": "the master's key is kept in clear on the appliance, which only root and the " +
			"master may read",
		"autosign_file":       "the list is brought to etc/master.d on the storage",
		"autoreject_file":     "the list is brought to etc/master.d on the storage",
		"autosign_grains_dir": "the lists are brought to etc/master.d on the storage",
	}
}

// ownedOptions returns the options that the appliance sets, on a single node or in a cluster. An
// import must not set any of them, so that it cannot turn a single node into a member of a cluster.
func ownedOptions(s *settings.Settings) []string {
	c := *s
	c.Peering.Enabled = true
	return c.ManagedHere()
}

func (o *sorter) noteOption(f *confFile, option string, info bool, format string, args ...any) {
	o.notes = append(o.notes, Note{
		File:   f.path,
		Line:   f.lines[option],
		Option: option,
		Text:   fmt.Sprintf(format, args...),
		Info:   info,
	})
}

// sortOptions creates the appliance's option files.
func (o *sorter) sortOptions() error {
	owned, brought := ownedOptions(o.settings), elsewhere()
	for _, f := range o.confs.files {
		out := &optionFile{name: f.target(), from: f, drop: map[string]string{}, change: map[string]any{}}
		for n := 2; slices.ContainsFunc(o.files, func(g *optionFile) bool { return g.name == out.name }); n++ {
			out.name = strings.TrimSuffix(f.target(), ".conf") + fmt.Sprintf("-%d.conf", n)
		}

		for _, name := range f.options.Keys() {
			v, _ := f.options.Get(name)
			o.option(f, out, name, v, owned, brought)
		}

		o.files = append(o.files, out)
	}

	for _, f := range o.files {
		if err := f.writeText(); err != nil {
			return err
		}
	}

	return nil
}

func (o *sorter) option(f *confFile, sorted *optionFile, name string, v any, owned []string, brought map[string]string) {
	if file, line, ok := o.confs.foundLater(f, name); ok {
		sorted.drop[name] = fmt.Sprintf("%s:%d says it again", file, line)
		return
	}

	switch {
	case name == "include" || name == "default_include":
		sorted.drop[name] = "what is included is brought in files of its own"
	case slices.Contains(owned, name):
		sorted.drop[name] = "the appliance sets it"
		o.noteOption(f, name, true, "left out: the appliance sets it itself")
	case brought[name] != "":
		sorted.drop[name] = brought[name]
		o.noteOption(f, name, true, "%s", brought[name])
	case slices.Contains(settings.Insecure(), name) && value.Truth(v) &&
		!slices.Contains(o.settings.AllowInsecure, name):
		sorted.drop[name] = "it lets every minion in"
		o.noteOption(f, name, false,
			"left out: it lets every minion in; if you mean it, add it to allow_insecure in appliance.yaml "+
				"and to etc/master.d")
		o.leftOut++
	case name == "master_use_pubkey_signature" && o.settings.Peering.Enabled && value.Truth(v):
		sorted.drop[name] = "in a cluster each node has a signing key of its own"
		o.noteOption(f, name, false, "left out: in a cluster each node has a signing key of its own")
		o.leftOut++
	default:
		o.keepOption(f, sorted, name, v)
	}
}

// keepOption keeps an option for the import. If the option's value contains paths of files that are
// imported to another place, it changes these paths.
func (o *sorter) keepOption(f *confFile, file *optionFile, name string, v any) {
	moved := &paths{sorter: o}
	w := moved.change(v, 0)
	if len(moved.found) > 0 {
		file.change[name] = w
		o.noteOption(f, name, true, "paths are changed to where the files are brought: %s",
			strings.Join(moved.found, ", "))
	}

	for _, p := range moved.lost {
		o.noteOption(f, name, false,
			"it names %s, which is not imported: bring it to the nodes, or below a root, and change the option",
			p)
	}

	switch kind, why := conf.Use(name); kind {
	case "":
		o.noteOption(f, name, true, "it is not known: kept for templates and modules of your own")
	case "python":
		o.noteOption(f, name, true, "it is used by Salt's library in the Python that the master starts")
	case "other":
		o.noteOption(f, name, true, "another program of Salt uses it: %s", why)
	}
}

// paths finds and changes paths in the value of an option.
type paths struct {
	sorter      *sorter
	found, lost []string
}

func (p *paths) change(v any, depth int) any {
	if depth > maxDepth {
		return v
	}

	switch v := v.(type) {
	case string:
		return p.movedText(v)
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = p.change(e, depth+1)
		}
		return out
	case *value.Map:
		out := &value.Map{}
		for k, e := range v.All() {
			out.Set(k, p.change(e, depth+1))
		}
		return out
	}

	return v
}

func (p *paths) movedText(s string) string {
	if !path.IsAbs(s) || len(s) > 4096 || strings.ContainsAny(s, "\n\x00") {
		return s
	}

	for _, r := range p.sorter.roots {
		if r.dir == "/" {
			continue
		}
		if rest, ok := strings.CutPrefix(s, r.dir); ok && (rest == "" || rest[0] == '/') {
			p.found = append(p.found, s)
			return r.served + rest
		}
	}

	if (p.sorter.tree.exists(s) || plainPath(s)) && s != "/" && !slices.Contains(p.lost, s) {
		p.lost = append(p.lost, s)
	}

	return s
}

// plainPath reports whether a text has the form of a file's path. It does not check that the tree
// has the file, because an archive may lack files that options name.
func plainPath(s string) bool {
	return strings.Count(s, "/") > 1 && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune("/._-+@", r))
	})
}

// writeText sets the file's text: the other master's text without the lines of dropped and changed
// options. If that text does not parse to the wanted values, the new text consists of these values
// only.
func (f *optionFile) writeText() error {
	want := f.from.options.Clone()
	for name := range f.drop {
		want.Delete(name)
	}

	for _, name := range slices.Sorted(maps.Keys(f.change)) {
		want.Set(name, f.change[name])
	}

	head := "# Imported from " + fmt.Sprintf("%q", f.from.path) + " by applianced import.\n"
	if want.Len() == 0 {
		f.text = nil
		return nil
	}

	text, err := f.cutLines(head)
	if err == nil {
		if v, derr := saltyaml.Decode(text, f.name); derr == nil && value.Equal(v, want) {
			f.text = text
			return nil
		}
	}

	plain, err := saltyaml.EncodeStyle(want, saltyaml.Style{KeepKeys: true})
	if err != nil {
		return fmt.Errorf("write the options of %s: %w", f.from.path, err)
	}

	f.text = append([]byte(head), plain...)
	return nil
}

// cutLines returns the file's text without the lines of options that are left out or changed.
func (f *optionFile) cutLines(head string) ([]byte, error) {
	lines := bytes.SplitAfter(f.from.text, []byte("\n"))
	starts := slices.Sorted(maps.Values(f.from.lines))
	out := bytes.NewBufferString(head)
	next := 0
	for name, at := range byLine(f.from.lines) {
		i, _ := slices.BinarySearch(starts, at)
		end := len(lines)
		if i+1 < len(starts) {
			end = starts[i+1] - 1
		}

		why, dropped := f.drop[name]
		v, changed := f.change[name]
		if !dropped && !changed {
			continue
		}
		if at < 1 || at > len(lines) || at-1 < next {
			return nil, fmt.Errorf("option %s stands in the line of another", name)
		}

		for _, l := range lines[next : at-1] {
			out.Write(l)
		}

		next = end
		if dropped {
			fmt.Fprintf(out, "# %s: left out: %s\n", name, why)
			continue
		}

		text, err := saltyaml.Encode(value.NewMap(name, v))
		if err != nil {
			return nil, err
		}

		out.Write(text)
	}

	for _, l := range lines[min(next, len(lines)):] {
		out.Write(l)
	}

	return out.Bytes(), nil
}

// byLine returns an iterator over options in the order of their lines.
func byLine(lines map[string]int) func(func(string, int) bool) {
	names := slices.Collect(maps.Keys(lines))
	slices.SortFunc(names, func(a, b string) int {
		if d := lines[a] - lines[b]; d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})

	return func(yield func(string, int) bool) {
		for _, n := range names {
			if !yield(n, lines[n]) {
				return
			}
		}
	}
}
