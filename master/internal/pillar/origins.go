package pillar

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"saltern/master/internal/gitpillar"
	"saltern/master/pattern"
	"saltern/master/redact"
	"saltern/master/value"
)

// Bounds of what is recorded of one pillar.
const (
	maxOrigins  = 20000 // files, and ways to them
	maxWays     = 10    // of one file
	maxWaySteps = 1000  // SLS that a search for the ways to one file visits
	// maxOtherLines bounds the lines of top files that do not select the minion.
	maxOtherLines = 5000
	maxTarget     = 200 // characters of the target of a line
)

// Origins says where the values of the pillar of a minion come from. It holds values; its readers must
// not show them.
type Origins struct {
	// Files are the files that were rendered for the minion, and the external pillars that have run.
	Files []Origin
	// Roots are the directories of git pillars. Those of pillar_roots are not among them.
	Roots   []gitpillar.Root
	Refused []Refusal // files whose result cannot be told, only of a confined compilation
	Faults  int       // faults that the pillar has in _errors, but for those of decrypt_pillar

	pillar *value.Map // with marks
	log    *originLog
}

// Origin is a file, or an external pillar, that may give something to a pillar.
type Origin struct {
	FileKey
	Path     string
	Imports  []string // files that the template has read
	External string   // name of the external pillar; "": a file
	scope    int
}

// Source is a file that gives a value to a place of a pillar.
type Source struct {
	File  int  // index in Origins.Files
	Gives bool // false: the value of another file has replaced it
}

// originLog records origins while a pillar is compiled. All methods take a nil log, which records nothing.
type originLog struct {
	files    []Origin
	numbers  map[originKey]int
	roots    []gitpillar.Root
	lines    []scopedLine
	includes map[scopedKey][]include
	size     int
	// otherLines are lines that do not select the minion.
	otherLines []Line
	linesLost  int // lines beyond the bounds
	// scope is 0 in pillar_roots, and another number in each root of a git pillar.
	scope, scopes int
}

type originKey struct {
	scopedKey
	path, external string
}

// scopedKey is an SLS of pillar_roots or of one root of a git pillar.
type scopedKey struct {
	scope int
	FileKey
}

type scopedLine struct {
	scope int
	Line
}

// include is an include entry of an SLS.
type include struct{ by, key string }

func newOriginLog() *originLog {
	return &originLog{numbers: map[originKey]int{}, includes: map[scopedKey][]include{}}
}

var errManyOrigins = fmt.Errorf("the pillar of one minion comes from more than %d files and lines", maxOrigins)

var errNotTraced = errors.New("with the renderer yamlex, or the pillar_source_merging_strategy aggregate, Salt's Python makes the pillar: which file has which key is not known")

// Origins compiles the pillar of a minion as Compile does and returns where its values come from. It decrypts
// nothing for decrypt_pillar. With Config.Compare it uses the memo, runs nothing with an effect if that is
// Confined, and opens no secrets at all.
func (c *Compiler) Origins(ctx context.Context, req Request) (*Origins, error) {
	if needsPython(c.cfg.Strategy, c.cfg.Renderer) {
		return nil, errNotTraced
	}

	n := c.newCompilation(ctx, req)
	defer n.giveUp(nil)
	if c.cfg.Compare != nil {
		n.outcome = &Outcome{}
	}
	n.trace = newOriginLog()
	n.withoutMemo = c.cfg.Compare == nil
	if err := n.admit(); err != nil {
		return nil, err
	}

	compile := func(n *compilation) (*value.Map, error) {
		defer n.closeSession()
		if n.outcome != nil {
			*n.outcome = Outcome{marks: map[FileKey]fileMark{}}
		}
		*n.trace = *newOriginLog()
		return n.compilePillar()
	}
	var pillar *value.Map
	var err error
	if c.cfg.Compare != nil {
		pillar, err = c.compileMemoized(n, compile)
	} else {
		pillar, err = compile(n)
	}
	if cause := context.Cause(n.ctx); cause != nil {
		err = cause
	}
	if err == nil && n.trace.size > maxOrigins {
		err = errManyOrigins
	}
	if err != nil {
		return nil, fmt.Errorf("trace the pillar of %s: %w", req.ID, err)
	}

	log := n.trace
	faults, _ := unmarked(pillar.Value("_errors")).([]any)
	out := &Origins{
		Files:  log.files,
		Roots:  log.roots,
		Faults: len(faults),
		pillar: pillar,
		log:    log,
	}
	if n.outcome != nil {
		out.Refused = n.outcome.Refused
	}
	return out, nil
}

// Release lets the pillar go: many Origins may wait for the report of one that is slow. Find and Leaves find nothing
// afterwards.
func (o *Origins) Release() { o.pillar = nil }

// of returns the number of an origin, and adds it if it is new.
func (l *originLog) of(o Origin) int {
	key := originKey{scopedKey{l.scope, o.FileKey}, o.Path, o.External}
	n, known := l.numbers[key]
	if !known {
		n = len(l.files)
		l.numbers[key] = n
		o.scope = l.scope
		l.files = append(l.files, o)
		l.size++
	}
	return n
}

// markFile records that a file was rendered, and returns its value with marks. name is its SLS.
func (l *originLog) markFile(path, env, name string, imports []string, v any) any {
	if l == nil {
		return v
	}
	if l.size > maxOrigins {
		return v
	}

	n := l.of(Origin{FileKey: FileKey{env, name}, Path: path})
	for _, file := range imports {
		if !slices.Contains(l.files[n].Imports, file) {
			l.files[n].Imports = append(l.files[n].Imports, file)
			l.size++
		}
	}

	m, ok := v.(*value.Map)
	if !ok || name == "" {
		return v
	}
	out := markBelow(m, n)
	if list, there := m.Get("include"); there {
		out.Set("include", list)
	}
	return out
}

// addInclude records that an SLS includes another one, below a key if that is not "".
func (l *originLog) addInclude(env, by, name, key string) {
	if l == nil || l.size > maxOrigins {
		return
	}
	at := scopedKey{l.scope, FileKey{env, name}}
	if one := (include{by, key}); !slices.Contains(l.includes[at], one) {
		l.includes[at] = append(l.includes[at], one)
		l.size++
	}
}

// addRoots records the roots of a git pillar.
func (l *originLog) addRoots(roots []gitpillar.Root) {
	if l != nil {
		l.roots = append(l.roots, roots...)
	}
}

// enterRoot begins a root of a git pillar. The caller must call leave.
func (l *originLog) enterRoot() (leave func()) {
	if l == nil {
		return func() {}
	}
	outer := l.scope
	l.scopes++
	l.scope = l.scopes
	return func() { l.scope = outer }
}

// marks reports whether values have marks now.
func (l *originLog) marks() bool { return l != nil }

// withoutMarks returns a pillar without marks.
func (l *originLog) withoutMarks(pillar *value.Map) *value.Map {
	if !l.marks() {
		return pillar
	}
	return unmarkedMap(pillar)
}

// remarkExternal returns what an external pillar has made of a marked pillar.
func (l *originLog) remarkExternal(before, after *value.Map, name string) *value.Map {
	if !l.marks() {
		return after
	}
	n := l.of(Origin{External: name})
	out, _ := remark(before, after, n).(*value.Map)
	return out
}

// Lines returns the lines of top files, first those that select the minion. lost of them are left out.
func (o *Origins) Lines() (lines []Line, lost int) { return o.log.allLines() }

// Ways returns how a file comes into the pillar: the lines of top files that select it, and the SLS that
// include it.
func (o *Origins) Ways(file int) (ways []string) {
	f := o.Files[file]
	if f.External != "" {
		return []string{"ext_pillar " + f.External}
	}
	if f.SLS == "" {
		return []string{"top file of " + f.Env}
	}
	steps := maxWaySteps
	return o.waysTo(scopedKey{f.scope, f.FileKey}, nil, &steps)
}

// waysTo returns the ways to an SLS that do not go through the SLS below. steps is how many SLS it may still
// visit: SLS that all include each other have more ways than can be counted.
func (o *Origins) waysTo(key scopedKey, below []string, steps *int) (ways []string) {
	*steps--
	if *steps < 0 {
		return nil
	}

	for _, l := range o.log.lines {
		if len(ways) >= maxWays {
			return ways
		}
		selects := func(name string) bool { return name == key.SLS || pattern.HasMeta(name) && pattern.Glob(name, key.SLS) }
		if l.scope == key.scope && l.Env == key.Env && slices.ContainsFunc(l.SLS, selects) {
			ways = append(ways, fmt.Sprintf("top of %s: %s", l.Top, redact.Text(value.Str(l.Target))))
		}
	}

	for _, in := range o.log.includes[key] {
		if slices.Contains(below, in.by) || in.by == key.SLS || len(below) > maxIncludeDepth || len(ways) >= maxWays {
			continue
		}
		above := o.waysTo(scopedKey{key.scope, FileKey{key.Env, in.by}}, append(slices.Clip(below), key.SLS), steps)
		text := " > " + in.by
		if in.key != "" {
			text += fmt.Sprintf(" (below %s)", in.key)
		}
		for _, way := range above {
			ways = append(ways, way+text)
		}
	}
	return ways[:min(len(ways), maxWays)]
}

// Find calls yield with the places of the pillar that a pattern of keys selects, with what is there and
// the files that gave something to it, in the order of merging. As for Salt's pillar.get, a part of the
// pattern that meets a list is an index, or a key of the maps in the list; the path has the index. What is
// in a list has the sources of the list.
func (o *Origins) Find(keys []string, yield func(path []string, v any, sources []Source)) {
	finder(yield).below(o.pillar, nil, nil, keys)
}

// finder is called with what a pattern of keys selects.
type finder func(path []string, v any, sources []Source)

// below searches v, which is at a path. list is the marked list that v is in; it may be nil.
func (f finder) below(v any, list *marked, at, keys []string) {
	if m, ok := v.(*marked); ok {
		v = m.value
		list = m
	}
	isGlob := pattern.HasMeta(keys[0])
	match := func(name string) bool { return name == keys[0] || isGlob && pattern.Glob(keys[0], name) }

	switch v := v.(type) {
	case *value.Map:
		for k, x := range v.All() {
			name := value.Str(k)
			isOurs := k == marksKey || len(at) == 0 && k == "_errors"
			if !isOurs && match(name) {
				f.place(x, list, append(slices.Clip(at), name), keys[1:])
			}
		}
	case []any:
		for i, x := range v {
			path := append(slices.Clip(at), strconv.Itoa(i))
			isIndex := match(path[len(at)]) || keys[0] == strconv.Itoa(i-len(v))
			if isIndex {
				f.place(x, list, path, keys[1:])
			}
			if _, isMap := x.(*value.Map); isMap && !(isIndex && isGlob) {
				f.below(x, list, path, keys)
			}
		}
	}
}

// place takes what is at a path, or searches it for the rest of the keys.
func (f finder) place(v any, list *marked, path, rest []string) {
	switch {
	case len(rest) > 0:
		f.below(v, list, path, rest)
	case list != nil:
		f(path, v, sourcesOf(list))
	default:
		f(path, unmarked(v), sourcesOf(v))
	}
}

// Leaves calls yield with the places of the pillar that are no maps.
func (o *Origins) Leaves(yield func(path []string, v any, sources []Source)) {
	leavesOf(o.pillar, nil, yield)
}

func leavesOf(m *value.Map, at []string, yield func([]string, any, []Source)) {
	for k, v := range m.All() {
		if k == marksKey || len(at) == 0 && k == "_errors" {
			continue
		}
		path := append(slices.Clip(at), value.Str(k))
		if below, ok := v.(*value.Map); ok {
			leavesOf(below, path, yield)
			continue
		}
		yield(path, unmarked(v), sourcesOf(v))
	}
}

// sourcesOf returns the files that gave something to a value, each once.
func sourcesOf(v any) (out []Source) {
	gives := givesOf(v)
	var order []int
	switch v := v.(type) {
	case *marked:
		order = v.from
	default:
		order = marksOf(v)
	}
	seen := map[int]bool{}
	for _, file := range slices.Backward(order) {
		if !seen[file] {
			seen[file] = true
			out = append(out, Source{File: file, Gives: slices.Contains(gives, file)})
		}
	}
	slices.Reverse(out)
	return out
}

// SplitKey returns the parts of a key that are separated by colons.
func SplitKey(key string) ([]string, error) {
	const most = 64
	parts := strings.Split(key, ":")
	if key == "" || len(parts) > most {
		return nil, errors.New("the key is empty, or has too many parts")
	}
	return parts, nil
}

// JoinKey returns the name of a place of a pillar as pillar.get takes it, without what looks like a secret in
// a key.
func JoinKey(path []string) string {
	parts := make([]string, len(path))
	for i, part := range path {
		parts[i] = redact.Text(part)
	}
	return strings.Join(parts, ":")
}
