package conf

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"saltern/master/value"
)

// defaultLogFile is Salt's default of log_file.
const defaultLogFile = "/var/log/salt/master"

// DefaultKeyLogFile is Salt's default of key_logfile.
const DefaultKeyLogFile = "/var/log/salt/key"

// DefaultDir is the directory that Load reads when it is given no path.
const DefaultDir = "/etc/salt"

// Loader reads configurations. The zero Loader is ready to use. All fields except Tool replace
// properties of the machine in tests.
type Loader struct {
	Hostname  func() (string, error)
	Addresses func() []netip.Addr
	HostsFile string // "" means /etc/hosts
	User      string // user for whom a tool reads the options; "" means the user of this process
	// Tool means that the program is a command line tool and not a master. Then Load ignores faults
	// that matter only to a starting master, such as the length of a socket's path.
	Tool bool
}

// Load reads the configuration at path: a directory that contains the file master, or the file
// itself. If path is "", it means DefaultDir. If the file is missing, Load returns the defaults and
// a note about the missing file. The returned error joins all faults, each a *Fault, in the order
// of files and lines.
func Load(path string) (*Master, error) { return new(Loader).Load(path) }

// Load works like the function [Load] of the package, with the replacements in l.
func (l *Loader) Load(path string) (*Master, error) {
	path = cmp.Or(path, DefaultDir)
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("configuration path: %w", err)
	}

	if st, err := os.Stat(path); err == nil && st.IsDir() {
		path = filepath.Join(path, "master")
	}

	opts, err := builtin().defaults()
	if err != nil {
		return nil, fmt.Errorf("built-in defaults: %w", err)
	}

	r := &reader{origins: make(map[string]origin), places: make(map[string]origin)}
	a := &assembly{
		loader:    l,
		reader:    r,
		opts:      opts,
		fromFiles: r.overrides(path, opts.Str("default_include")),
		known:     builtin().options,
	}

	opts.Set("user", l.defaultUser())
	a.checkTypes()
	opts.Set("conf_file", path)
	opts.Set("__role", "master")
	opts.Set("__fs_update", true)
	a.deriveOptions()
	m := &Master{Raw: opts, Path: path, PillarEnvs: opts.Map("pillar_roots").Keys()}
	m.JobSegments = true // by default
	m.AutosignTimeout = 120 * time.Minute
	fillFields(m, opts, a.addFault)
	a.validate(m)

	if m.Nodegroups == nil {
		m.Nodegroups = &value.Map{}
	}

	if err := r.inOrder(); err != nil {
		return nil, err
	}

	m.Notes = r.notes
	m.Sources = r.files
	m.Set = r.settings
	return m, nil
}

// notKnown is the remark about an option that is not in the table of options.
const notKnown = "kept for renderers and modules"

// assembly is a configuration that is being loaded.
type assembly struct {
	loader *Loader
	*reader
	opts      *value.Map // options: first the defaults, later with the set and the derived options
	fromFiles *value.Map // the options that files set
	known     map[string]option
}

// addFault adds a fault of an option.
func (a *assembly) addFault(option string, err error) { a.badFrom(option, err) }

// badFrom adds a fault of an option that the master has derived from the options bases. The fault
// names the file and line that set the option. If no file sets the option, the fault names the file
// and line that set the first of bases.
func (a *assembly) badFrom(option string, err error, bases ...string) {
	o := a.origins[option]
	for _, f := range bases {
		if o.path == "" {
			o = a.origins[f]
		}
	}
	a.faults = append(a.faults, &Fault{Path: o.path, Line: o.line, Option: option, Err: err})
}

func (a *assembly) remark(l slog.Level, option, format string, args ...any) {
	o := a.origins[option]
	a.notes = append(a.notes, Note{
		Level:  l,
		Option: option,
		Path:   o.path,
		Line:   o.line,
		Text:   fmt.Sprintf(format, args...),
	})
}

// checkTypes checks the types of the options in the files and copies their values over the
// defaults.
func (a *assembly) checkTypes() {
	for k, v := range a.fromFiles.All() {
		name, ok := k.(string)
		if !ok {
			continue // readFile has reported the fault
		}

		option, known := a.known[name]
		switch {
		case !known:
			a.remark(slog.LevelDebug, name, "option is not known, %s", notKnown)
		case v == nil && !option.nullable():
			if _, has := a.opts.Get(name); has {
				a.remark(slog.LevelWarn, name, "option has no value, the default is used")
			}
			continue
		case strings.HasPrefix(textOrEmpty(v), "sdb://"):
			if option.use == "used" {
				a.addFault(name, errors.New("values from sdb:// are not supported"))
				continue
			}
		default:
			c, err := coerce(v, option.types)
			if err != nil {
				var taken bool
				if c, taken = a.lenient(option, v, err); !taken {
					continue
				}
			}

			v = c
		}

		a.unusedNote(option, v)
		a.opts.Set(name, v)
	}
}

// unusedNote adds a note about an option that this master ignores, unless its value is the default
// or empty.
func (a *assembly) unusedNote(o option, v any) {
	level := slog.LevelInfo
	switch o.use {
	case "warn":
		level = slog.LevelWarn
	case "info":
	default:
		return
	}
	if d, has := a.opts.Get(o.name); has && value.Equal(d, v) || !has && !value.Truth(v) {
		return
	}
	a.remark(level, o.name, "option is not used by this master: %s", o.remark)
}

// setTokenDir sets the folder of tokens to one below cachedir, and ignores the value of the option,
// as Salt does (salt/config/__init__.py apply_master_config).
func (a *assembly) setTokenDir() {
	o := a.opts
	tokens := filepath.Join(o.Str("cachedir"), "tokens")
	given := o.Str("token_dir")
	if given != "" && filepath.Clean(given) != tokens && filepath.Clean(given) != filepath.Join(o.Str("root_dir"), tokens) {
		a.remark(slog.LevelWarn, "token_dir", "option is not used by this master: "+
			"the tokens of log-ins are always in cachedir/tokens, as in Salt")
	}
	o.Set("token_dir", tokens)
}

func textOrEmpty(v any) string {
	s, _ := v.(string)
	return s
}

// deriveOptions sets options that follow from others, in the order of Salt's apply_master_config.
func (a *assembly) deriveOptions() {
	o := a.opts
	if o.Str("log_file") == "" { // as Salt does in process_log_file (salt/utils/parsers.py)
		o.Set("log_file", defaultLogFile)
	}
	if o.Str("key_logfile") == "" {
		o.Set("key_logfile", DefaultKeyLogFile)
	}

	a.formerNames()
	if l := o.List("fileserver_backend"); l != nil {
		l = slices.Clone(l)
		for i, v := range l {
			switch v {
			case "git", "hg", "svn", "minion":
				l[i] = v.(string) + "fs"
			}
		}

		o.Set("fileserver_backend", l)
	}

	if cache := o.Str("cachedir"); len(o.Str("sock_dir")) > len(cache)+10 {
		o.Set("sock_dir", filepath.Join(cache, ".salt-unix"))
	}

	a.setTokenDir()
	o.Set("syndic_dir", filepath.Join(o.Str("cachedir"), "syndics"))
	if o.Str("extension_modules") == "" {
		o.Set("extension_modules", filepath.Join(o.Str("cachedir"), "extmods"))
	}

	if len(o.List("utils_dirs")) == 0 {
		o.Set("utils_dirs", []any{filepath.Join(o.Str("extension_modules"), "utils")})
	}

	if o.Str("ipc_write_buffer") == "dynamic" {
		o.Set("ipc_write_buffer", int64(10<<20)) // 10 MiB; Salt uses a share of the host's memory
	}

	a.deriveID()
	a.prependRoot()
	a.cluster()
	for _, name := range []string{"file_roots", "pillar_roots"} {
		o.Set(name, normalizeRoots(o.Map(name)))
	}

	if s := o.Str("file_ignore_regex"); s != "" {
		o.Set("file_ignore_regex", []any{s})
	}

	if s := o.Str("file_ignore_glob"); s != "" {
		o.Set("file_ignore_glob", []any{s})
	}

	o.Set("hash_type", strings.ToLower(o.Str("hash_type")))
	if v, _ := o.Get("ssl"); v == false {
		o.Set("ssl", nil)
	} else if v == true {
		o.Set("ssl", &value.Map{})
	}

	if l := o.List("nodegroups"); l != nil {
		a.nodegroups(l)
	}

	if o.Map("peer").Len() > 0 {
		if n, ok := o.Int("worker_threads"); ok && n < 3 {
			o.Set("worker_threads", int64(3))
		}
	}
}

// formerNames sets options from former names that files may still use, and sets options that other
// options imply.
func (a *assembly) formerNames() {
	o := a.opts
	if dir := a.fromFiles.Str("log_dir"); dir != "" {
		if f := a.fromFiles.Str("log_file"); f == "" {
			o.Set("log_file", filepath.Join(dir, "master"))
		} else if !filepath.IsAbs(f) {
			o.Set("log_file", filepath.Join(dir, f))
		}
	}

	if v, ok := a.fromFiles.Get("cluster_port"); ok {
		if _, set := a.fromFiles.Get("cluster_pool_port"); !set {
			a.remark(slog.LevelWarn, "cluster_port", "option is deprecated, use cluster_pool_port")
			if c, err := coerce(v, []string{"int"}); err == nil {
				o.Set("cluster_pool_port", c)
			}
		}
	}

	if h, ok := a.fromFiles.Int("keep_jobs"); ok {
		if _, set := a.fromFiles.Get("keep_jobs_seconds"); !set {
			a.remark(slog.LevelWarn, "keep_jobs",
				"Salt 3008 does not read the option, nor does this master; write keep_jobs_seconds: %d",
				h*3600)
		}
	}

	if _, rest := o.Map("external_auth").Get("rest"); rest {
		if !o.Bool("keep_acl_in_token") {
			a.remark(slog.LevelWarn, "keep_acl_in_token",
				"external_auth has rest, which needs keep_acl_in_token; it is switched on")
		}
		o.Set("keep_acl_in_token", true)
	}

	if env, ok := o.Get("environment"); ok {
		a.remark(slog.LevelWarn, "environment", "option is now called saltenv")
		if se, _ := o.Get("saltenv"); se == nil {
			o.Set("saltenv", env)
		} else {
			o.Set("environment", se)
		}
	}
}

func (a *assembly) deriveID() {
	o := a.opts
	id := o.Str("id")
	derived := false
	address := false
	if id == "" {
		id, address = a.loader.masterID(o, o.Str("root_dir"))
		derived = true
	}

	if d := o.Str("append_domain"); d != "" && !address && !strings.HasSuffix(id, d) && !strings.HasSuffix(id, ".") {
		id += "." + d
	}

	if derived {
		id += "_master"
	}

	o.Set("id", id)
}

// prependRoot moves below root_dir the paths that Salt moves there, by the rule of underRoot.
func (a *assembly) prependRoot() {
	o := a.opts
	root, err := filepath.Abs(o.Str("root_dir"))
	if err != nil {
		a.addFault("root_dir", err)
		return
	}

	names := []string{"pki_dir", "cachedir", "pidfile", "sock_dir", "extension_modules", "autosign_file",
		"autoreject_file", "token_dir", "syndic_dir", "sqlite_queue_dir", "autosign_grains_dir"}
	for _, n := range []string{"log_file", "key_logfile", "ssh_log_file"} {
		if s := o.Str(n); s != "" && !hasScheme(s) {
			names = append(names, n)
		}
	}

	for _, n := range names {
		s, ok := o.Get(n)
		if p := textOrEmpty(s); ok && p != "" {
			o.Set(n, underRoot(root, p))
		}
	}
}

// underRoot applies Salt's prepend_root_dir to one path. From an absolute path, Salt removes the
// prefix of its default root. That root is "/", and its prefix is empty. So every absolute path
// moves below root_dir, unless it is there already.
func underRoot(root, path string) string {
	if root == "/" {
		if filepath.IsAbs(path) {
			return path
		}
		return filepath.Join("/", path)
	}
	if rest, ok := strings.CutPrefix(path, root); ok && (rest == "" || rest[0] == '/') {
		return filepath.Join(root, rest)
	}
	return filepath.Join(root, path)
}

// hasScheme reports whether s is a URL such as file:///dev/log or udp://host.
func hasScheme(s string) bool {
	i := strings.IndexByte(s, ':')
	if i <= 0 {
		return false
	}
	for j, c := range []byte(s[:i]) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (j == 0 || !(c >= '0' && c <= '9' || c == '+' || c == '-' || c == '.')) {
			return false
		}
	}
	return true
}

func (a *assembly) cluster() {
	o := a.opts
	if v, _ := o.Get("cluster_id"); v == nil {
		for _, n := range []string{"cluster_peers", "cluster_pki_dir"} {
			if v, _ := o.Get(n); v != nil && value.Truth(v) {
				a.remark(slog.LevelWarn, n, "option is ignored without cluster_id")
				if n == "cluster_peers" {
					o.Set(n, []any{})
				} else {
					o.Set(n, nil)
				}
			}
		}

		return
	}

	if len(o.List("cluster_peers")) == 0 && o.Str("cluster_secret") == "" {
		a.remark(slog.LevelWarn, "cluster_id", "cluster_id is set, but neither cluster_peers nor cluster_secret")
		o.Set("cluster_peers", []any{})
	}

	if o.Str("cluster_pki_dir") == "" {
		a.remark(slog.LevelWarn, "cluster_id", "cluster_id is set without cluster_pki_dir, pki_dir is used")
		o.Set("cluster_pki_dir", o.Str("pki_dir"))
	}
}

// normalizeRoots returns a map of environments to directories. Its keys are text, values that are
// not lists become empty lists, and wildcards are expanded.
func normalizeRoots(m *value.Map) *value.Map {
	out := &value.Map{}
	for k, v := range m.All() {
		name, ok := convert(k, "str")
		if !ok {
			name = fmt.Sprint(k)
		}

		if s, ok := k.(string); ok {
			name = s
		}

		dirs, _ := v.([]any)
		list := make([]any, 0, len(dirs))
		for _, d := range dirs {
			s, ok := d.(string)
			if !ok || !hasWildcard(s) {
				list = append(list, d)
				continue
			}

			for _, f := range expandGlob(s) {
				list = append(list, f)
			}
		}

		out.Set(name, list)
	}

	return out
}

// nodegroups converts the list form of nodegroups to one map. In the list form each item is a map
// with one group.
func (a *assembly) nodegroups(l []any) {
	m := &value.Map{}
	for i, v := range l {
		g, ok := v.(*value.Map)
		if !ok || g.Len() != 1 {
			a.addFault("nodegroups", fmt.Errorf("item %d: expected one group, found %s", i+1, typeName(v)))
			continue
		}
		m.Update(g)
	}
	a.opts.Set("nodegroups", m)
}
