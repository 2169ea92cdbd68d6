package pillar

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"saltern/master/internal/fileserver"
	"saltern/master/internal/fileserver/regular"
	"saltern/master/internal/pillar/memo"
	"saltern/master/saltyaml"
	"saltern/master/value"
)

// Bounds of one file, of the cache of parsed files, and of the directory trees.
const (
	maxSLS       = 8 << 20
	maxKept      = 64 << 20 // total size of the sources of the parsed files, in bytes
	maxKeptFile  = 1 << 20
	maxKeptFiles = 20000
	maxNames     = 200000
	maxDepth     = 100
	settled      = 100 * time.Millisecond
)

var errTooLarge = fmt.Errorf("the file is larger than %d bytes", maxSLS)

// environment is the name of an environment and its directories, in the order in which they are
// searched.
type environment struct {
	name string
	dirs []string
}

// parsed is one version of a file in parsed form. Its value is shared between pillars, so a merge
// must copy what it changes.
type parsed struct {
	id        regular.ID
	plain     bool // Go can render the file: value and err are the result
	template  bool // the file is a template that Go can render: all of its marks are comments
	value     any
	err       error
	gpg       gpgStep  // where in the pipe of renderers gpg stands; value is from before gpg
	shareable bool     // the file is a template whose result the memo may store
	sum       memo.Sum // digest of the file's text
	mark      fileMark // only with Config.Compare
	cost      int64    // bytes by which the value counts in the cache
}

// hashed is the hash of one version of a file.
type hashed struct {
	id  regular.ID
	sum memo.Sum
}

// files finds and parses pillar files, and caches the parsed form.
type files struct {
	ignore    *fileserver.Ignore
	plain     func(text []byte) bool
	comments  func(text []byte) (string, bool)
	shareable func(text []byte) bool
	config    *Config
	compared  *Config // for the marks of files; nil: pillars are served
	now       func() time.Time

	mu     sync.Mutex
	kept   map[string]parsed
	size   int64
	hashes map[string]hashed // hashes of files that templates import, by path
	trees  map[string]*slsNames
}

func newFiles(c *Config) *files {
	var compared *Config
	if c.Compare != nil {
		compared = c
	}
	return &files{
		compared:  compared,
		ignore:    c.Ignore,
		plain:     plainFor(c),
		comments:  commentsFor(c),
		shareable: shareableFor(c),
		config:    c,
		now:       c.Now,
		kept:      map[string]parsed{},
		hashes:    map[string]hashed{},
		trees:     map[string]*slsNames{},
	}
}

// findFile returns the path of the first regular file with this relative name in the environment's
// directories, or "" if there is none.
func findFile(env environment, rel string) (string, error) {
	if !filepath.IsLocal(rel) || strings.ContainsRune(rel, 0) {
		return "", nil
	}

	for _, dir := range env.dirs {
		full := filepath.Join(dir, rel)
		fi, err := os.Stat(full)
		if err == nil && fi.Mode().IsRegular() {
			return full, nil
		}
		if err != nil && !regular.Missing(err) {
			return "", err
		}
	}

	return "", nil
}

// findSLS returns the path of the SLS with this dotted name (salt/fileclient.py get_state), or ""
// if there is none. init reports whether the file is the init.sls of a directory.
func findSLS(env environment, name string) (path string, init bool, err error) {
	rel := strings.ReplaceAll(name, ".", "/")
	for _, suffix := range []string{".sls", "/init.sls"} {
		if path, err = findFile(env, rel+suffix); path != "" || err != nil {
			return path, suffix == "/init.sls", err
		}
	}
	return "", false, nil
}

// parsedFile returns a file, parsed if Go can parse it.
func (f *files) parsedFile(path string) (parsed, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return parsed{}, err
	}

	id, known := regular.IDOf(fi)
	f.mu.Lock()
	p, there := f.kept[path]
	f.mu.Unlock()

	if there && known && p.id == id {
		return p, nil
	}

	text, id, steady, err := f.loadFile(path)
	if err != nil {
		return parsed{}, err
	}

	p = f.parse(text, path)
	p.id = id

	if steady {
		f.keepParsed(path, p)
	}

	return p, nil
}

func (f *files) parse(text []byte, path string) (p parsed) {
	p.mark = markOf(f.compared, text)
	if p.gpg = gpgStepOf(f.config, text); p.gpg == gpgFirst {
		p.value = string(text)
		p.cost = int64(len(text))
		return p
	}

	if f.plain(text) {
		p.plain = true
		p.value, p.err = parseYAML(text, path, f.limits())
		p.cost = f.costOf(p.value, len(text))
		if errors.Is(p.err, saltyaml.ErrLimit) {
			return p
		}
		if p.err != nil && f.compared != nil && f.shareable(text) { // Salt's own parser may read it
			p.shareable = true
			p.sum = sha256.Sum256(text)
		}
		return p
	}

	if p.shareable = f.shareable(text); p.shareable {
		p.sum = sha256.Sum256(text)
	}

	rendered, ok := f.comments(text)
	if !ok {
		return p
	}

	// A text with an error goes to Python, which says what is wrong in Salt's words.
	v, err := parseYAML([]byte(rendered), path, f.limits())
	if f.compared != nil && errors.Is(err, saltyaml.ErrLimit) {
		p.plain = true
		p.shareable = false
		p.err = err
	}
	if err == nil {
		p.cost = f.costOf(v, len(text))
		p.plain = true
		p.template = true
		p.value = v
	}

	return p
}

// loadFile reads a file. steady reports whether id identifies the text: the file did not change
// during the reading, and its last change is old enough that the file's times would show another
// change.
func (f *files) loadFile(path string) (text []byte, id regular.ID, steady bool, err error) {
	file, fi, err := regular.Open(path)
	if err != nil {
		return nil, id, false, err
	}
	defer file.Close()

	if fi.Size() > maxSLS {
		return nil, id, false, errTooLarge
	}

	text = make([]byte, fi.Size())
	n, err := file.ReadAt(text, 0)
	if n < len(text) && err != nil {
		return nil, id, false, err
	}

	after, err := file.Stat()
	if err != nil {
		return nil, id, false, err
	}

	before, _ := regular.IDOf(fi)
	id, known := regular.IDOf(after)
	return text, id, known && id == before && f.now().UnixNano()-id.Newest() > int64(settled), nil
}

// contentSum returns the digest of a file, from the cache if the file has not changed. exists is
// false if the file does not exist. contentSum is a memo.Content.
func (f *files) contentSum(path string) (sum memo.Sum, exists bool, err error) {
	fi, err := os.Stat(path)
	if err != nil {
		if regular.Missing(err) {
			err = nil
		}
		return sum, false, err
	}

	id, known := regular.IDOf(fi)
	f.mu.Lock()
	h, exists := f.hashes[path]
	f.mu.Unlock()

	if exists && known && h.id == id {
		return h.sum, true, nil
	}

	text, id, steady, err := f.loadFile(path)
	if err != nil {
		return sum, false, err
	}

	h = hashed{id, sha256.Sum256(text)}
	if steady {
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.hashes) >= maxKeptFiles {
			clear(f.hashes)
		}
		f.hashes[path] = h
	}

	return h.sum, true, nil
}

// keepParsed caches a parsed file. The file counts with the size of its source. A template counts
// almost nothing, because for it only the fact that it is a template is cached.
func (f *files) keepParsed(path string, p parsed) {
	if p.cost > maxKeptFile && f.compared == nil {
		return
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	f.size -= f.kept[path].cost
	if f.size+p.cost > maxKept || len(f.kept) >= maxKeptFiles {
		clear(f.kept)
		f.size = 0
	}

	f.kept[path] = p
	f.size += p.cost
}

// limits returns the bounds of a file that Go parses. A file that is compared may be written by
// anybody, to take the master's memory.
func (f *files) limits() saltyaml.Limits {
	if f.compared != nil {
		return saltyaml.Limits{Bytes: 1 << 20, Depth: 64, Nodes: maxComparedFile}
	}
	return saltyaml.DefaultLimits()
}

// costOf returns the cost of a value of a text of so many bytes. By aliases the value may be much larger
// than its text.
func (f *files) costOf(v any, size int) int64 {
	if f.compared == nil {
		return int64(size)
	}
	const bytesPerValue = 64
	return int64(max(size, bytesPerValue*countValues(v, maxComparedFile)))
}

// omapTag matches the tag of an ordered map. Salt's renderer expects a map below it, and its parser for
// everything else a list (salt/utils/yamlloader.py).
var omapTag = regexp.MustCompile(`(?m)(?:^|[\s\[{,:])!(?:!|<tag:yaml\.org,2002:)omap\b`)

// parseYAML reads plain YAML as Salt's yaml renderer does (salt/renderers/yaml.py): it returns an
// empty map for an empty file, and for a value that is false in Python.
func parseYAML(text []byte, path string, limits saltyaml.Limits) (any, error) {
	if at := omapTag.FindIndex(text); at != nil {
		line := 1 + bytes.Count(text[:at[1]], []byte("\n"))
		return nil, &saltyaml.Error{Name: path, Line: line, Err: errors.New("!!omap is read by Salt's renderer only")}
	}
	v, err := saltyaml.DecodeWithin(text, path, limits)
	if err != nil {
		return nil, err
	}

	switch x := v.(type) {
	case nil:
		v = value.NewMap()
	case bool:
		if !x {
			v = value.NewMap()
		}
	case string:
		if x == "" {
			v = value.NewMap()
		}
	case int64:
		if x == 0 {
			v = value.NewMap()
		}
	case float64:
		if x == 0 {
			v = value.NewMap()
		}
	case []any:
		if len(x) == 0 {
			v = value.NewMap()
		}
	}

	return v, nil
}

// plainFor returns a function that reports whether a file is plain: its template renderer would not
// change it. Plain files are read in Go.
func plainFor(c *Config) func([]byte) bool {
	if c.RestrictedRenderers {
		return func(text []byte) bool { return len(bytes.TrimSpace(text)) == 0 }
	}

	return func(text []byte) bool {
		if len(bytes.TrimSpace(text)) == 0 {
			return true
		}
		if !utf8.Valid(text) || bytes.HasPrefix(text, []byte("\ufeff")) {
			return false
		}

		switch rendererPipe(c, text) {
		case "yaml":
			return true
		case jinjaYAML, yamlJinja:
		default:
			return false
		}

		if c.CustomJinja || bytes.Contains(text, []byte("#jinja2:")) {
			return false
		}

		for _, mark := range []string{"{{", "{%", "{#"} {
			if bytes.Contains(text, []byte(mark)) {
				return false
			}
		}

		return true
	}
}

// The renderer pipe of most SLS, in both spellings.
const (
	jinjaYAML = "jinja|yaml"
	yamlJinja = "yaml_jinja"
)

// rendererPipe returns the renderer pipe of a file, without spaces: the pipe in the file's first
// line or, if there is none, the option renderer. gpg at its end is left out if Go does its work.
func rendererPipe(c *Config, text []byte) string {
	pipe := fullPipe(c, text)
	switch {
	case c.Compare != nil:
		return withoutGPG(pipe)
	case gpgStepOf(c, text) == gpgLast:
		return strings.TrimSuffix(pipe, "|gpg")
	}
	return pipe
}

func fullPipe(c *Config, text []byte) string {
	pipe := c.Renderer
	if bytes.HasPrefix(text, []byte("#!")) && !bytes.HasPrefix(text, []byte("#!/")) {
		line, _, _ := bytes.Cut(text[2:], []byte("\n"))
		pipe = string(bytes.TrimSpace(line))
	}
	return strings.ReplaceAll(pipe, " ", "")
}

// shareableFor returns a function that reports whether the memo may store the result of a template.
// It may store only those of Jinja and YAML templates, because only their inputs are known.
func shareableFor(c *Config) func([]byte) bool {
	return func(text []byte) bool {
		return !c.RestrictedRenderers && utf8.Valid(text) && (rendererPipe(c, text) == jinjaYAML || rendererPipe(c, text) == yamlJinja)
	}
}

// slsNames holds the sorted dotted names of all SLS of an environment (salt/fileclient.py
// list_states), and the state of the environment's directories.
type slsNames struct {
	dirs     []stamp
	list     []string
	modified int64
}

type stamp struct {
	path string
	id   regular.ID
}

func (n *slsNames) hasName(name string) bool {
	_, ok := slices.BinarySearch(n.list, name)
	return ok
}

// available returns the names of the SLS of an environment. It caches them until a directory of the
// environment changes.
func (f *files) available(env environment) (*slsNames, error) {
	key := strings.Join(append([]string{env.name}, env.dirs...), "\x00")
	f.mu.Lock()
	n := f.trees[key]
	f.mu.Unlock()

	if n != nil && n.current() {
		return n, nil
	}

	n = &slsNames{modified: f.now().UnixNano()}
	for _, dir := range env.dirs {
		if err := f.addSLSBelow(n, dir, "", nil); err != nil {
			return nil, err
		}
	}

	slices.Sort(n.list)
	n.list = slices.Compact(n.list)
	var newest int64
	for _, d := range n.dirs {
		newest = max(newest, d.id.Newest())
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	if n.modified-newest > int64(settled) {
		if len(f.trees) >= 200 { // with __env__ minions can invent environment names
			clear(f.trees)
		}
		f.trees[key] = n
	}

	return n, nil
}

func (n *slsNames) current() bool {
	for _, d := range n.dirs {
		fi, err := os.Stat(d.path)
		if err != nil {
			return false
		}
		if id, ok := regular.IDOf(fi); !ok || id != d.id {
			return false
		}
	}
	return len(n.dirs) > 0
}

var errTooMany = errors.New("the pillar environment has too many files")

// addSLSBelow adds the names of the SLS below a directory. It follows links. It enters a directory
// that is linked into itself only once.
func (f *files) addSLSBelow(n *slsNames, dir, rel string, above []regular.ID) error {
	fi, err := os.Stat(dir)
	if err != nil || !fi.IsDir() || len(above) > maxDepth {
		return nil
	}

	id, _ := regular.IDOf(fi)
	for _, a := range above {
		if a.Dev == id.Dev && a.Ino == id.Ino {
			return nil
		}
	}

	n.dirs = append(n.dirs, stamp{dir, id})
	entries, err := os.ReadDir(dir)
	if err != nil && len(entries) == 0 {
		return nil
	}

	for _, e := range entries {
		name := e.Name()
		isDir := e.IsDir()
		if e.Type()&fs.ModeSymlink != 0 {
			fi, err := os.Stat(filepath.Join(dir, name))
			isDir = err == nil && fi.IsDir()
		}

		if isDir {
			if !f.ignore.Match(name) {
				if err := f.addSLSBelow(n, filepath.Join(dir, name), rel+name+"/",
					append(slices.Clip(above), id)); err != nil {
					return err
				}
			}
			continue
		}

		full := rel + name
		if !strings.HasSuffix(full, ".sls") {
			continue
		}

		dotted := strings.ReplaceAll(full, "/", ".")
		if strings.HasSuffix(full, "/init.sls") {
			dotted = dotted[:len(dotted)-len(".init.sls")]
		} else {
			dotted = dotted[:len(dotted)-len(".sls")]
		}

		if n.list = append(n.list, dotted); len(n.list) > maxNames || len(n.dirs) > maxNames {
			return errTooMany
		}
	}

	return nil
}
