package diff

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"saltern/master/internal/pillar"
	"saltern/master/runner"
	"saltern/master/value"
)

// pillarReaders is the name of the runner.
const pillarReaders = "pillar.readers"

// readersQuestion asks which minions get a key, a file or a secret of a file.
type readersQuestion struct {
	key    []string // parts of the key; nil: asks for the file
	file   string   // name of an SLS, or path of a file: absolute, or as its root has it; "": any
	block  int      // number of the file's PGP message, the first is 1; 0: no message
	blocks bool     // all messages of the file
	Request
}

// readersParameters are the names of the arguments.
const readersParameters = "key tgt tgt_type file block saltenv pillarenv format"

// questionOf reads the arguments of the runner.
func questionOf(args []any, named *value.Map) (q readersQuestion, err error) {
	wrong := func(form string, a ...any) error {
		usage := "salt-run " + pillarReaders + " [key=]KEY [tgt=MINIONS tgt_type=TYPE file=SLS|PATH block=NUMBER|all saltenv=ENV pillarenv=ENV format=text]"
		return &runner.ArgumentError{Reason: fmt.Sprintf(form, a...), Usage: usage}
	}
	given, texts, err := readArguments(readersParameters, args, named, wrong)
	if err != nil {
		return q, err
	}

	q.file = texts["file"]
	q.Request = Request{
		Target:     cmp.Or(given["tgt"], any("*")),
		TargetType: cmp.Or(texts["tgt_type"], "glob"),
		Saltenv:    texts["saltenv"],
		Pillarenv:  texts["pillarenv"],
		Form:       texts["format"],
		readers:    true,
	}
	if key := texts["key"]; key != "" {
		if q.key, err = pillar.SplitKey(key); err != nil {
			return q, wrong("%v", err)
		}
	}

	switch block := texts["block"]; block {
	case "":
	case "all":
		q.blocks = true
	default:
		if q.block, err = strconv.Atoi(block); err != nil || q.block < 1 {
			return q, wrong("block is the number of a PGP message in the file, such as 1, or all")
		}
	}

	switch {
	case q.key == nil && q.file == "":
		return q, wrong("name a key of the pillar (key=), or a file (file=)")
	case q.asksBlocks() && (q.file == "" || q.key != nil):
		return q, wrong("block= needs file=, and no key=")
	case !slices.Contains([]string{"", "text", "colour"}, q.Form):
		return q, wrong("format is text or colour")
	}
	return q, nil
}

func (q *readersQuestion) asksBlocks() bool { return q.blocks || q.block > 0 }

// String returns the question in words.
func (q *readersQuestion) String() string {
	file := q.file
	key := shownKey(q.key)
	switch {
	case q.blocks:
		return "the PGP messages of " + file
	case q.block > 0:
		return fmt.Sprintf("PGP message %d of %s", q.block, file)
	case q.key == nil:
		return file
	case file != "":
		return key + " of " + file
	}
	return key
}

// Readers finds which minions get what a question asks for. It ends when ctx ends. tell is called with a
// text when Readers waits.
func (s *Service) Readers(ctx context.Context, q readersQuestion, tell func(string)) (report *readersReport, err error) {
	err = s.inTurn(ctx, q.Target, q.TargetType, tell, func(ctx context.Context, ids []string) error {
		report, err = s.findReaders(ctx, q, ids)
		return err
	})
	return report, err
}

func (s *Service) findReaders(ctx context.Context, q readersQuestion, ids []string) (*readersReport, error) {
	began := time.Now()
	pool := s.renderers(true)
	defer pool.Close()

	served, err := s.side(ctx, q.Request, What{}, "", pool)
	defer served.close()
	if err != nil {
		return nil, err
	}

	search := &readerSearch{
		service:  s,
		question: q,
		side:     served,
		seen:     map[string]*seenFile{},
		report:   newReadersReport(&q, len(ids), s.unrun()),
	}
	if err := eachMinion(ctx, ids, workers(), served.keep, search.minion); err != nil {
		return nil, err
	}
	if q.file != "" && len(search.seen) == 0 {
		search.report.Notes = append(search.report.Notes,
			fmt.Sprintf("no minion's pillar has read a file %.200q: name it as an SLS, such as db.users, or by its path", q.file))
	}

	search.report.finish()
	search.report.date(ctx)
	search.report.Seconds = time.Since(began).Seconds()
	return search.report, nil
}

// unrun returns the external pillars that are not run.
func (s *Service) unrun() (names []string) {
	for _, entry := range s.cfg.Pillar.ExtPillar {
		m, _ := entry.(*value.Map)
		for _, name := range m.Keys() {
			if name != "git" {
				names = append(names, name)
			}
		}
	}
	return names
}

// readerSearch is one search in progress.
type readerSearch struct {
	service  *Service
	question readersQuestion
	side     *side
	report   *readersReport
	seen     map[string]*seenFile // files that the question names, by path; guarded by the report's mutex
}

// seenFile is a file that the question names.
type seenFile struct {
	once   sync.Once
	blocks []string // its PGP messages that are asked for, packed; written by once
}

// minion searches the pillar of one minion. note adds the result to the report.
func (r *readerSearch) minion(ctx context.Context, id string) (note func(), err error) {
	if ctx.Err() != nil {
		return nil, nil
	}
	grains, ok := r.service.cfg.Fleet.Grains(id)
	if !ok || grains.Len() == 0 {
		return func() { r.report.noteUnknown(id) }, nil
	}

	req := pillar.Request{ID: id, Grains: grains, Saltenv: r.question.Saltenv, Pillarenv: r.question.Pillarenv}
	origins, err := r.side.pillars.Origins(ctx, req)
	if err != nil {
		return nil, err
	}

	m := &minionSearch{readerSearch: r, origins: origins, ways: map[int][]string{}}
	m.run()
	reasons := m.reasons()
	origins.Release()
	return func() { r.report.noteMinion(id, m, reasons) }, nil
}

// minionSearch is the search in one pillar.
type minionSearch struct {
	*readerSearch
	origins *pillar.Origins
	ways    map[int][]string // those to files, once they are known
	found   []*finding
	more    int // findings, and keys of files, beyond maxFindings
}

// finding is a place of a pillar, or a file, that the question asks for.
type finding struct {
	Key     string // "" for a file
	Sources []findingSource
	path    []string // the key as it is; two may be shown alike
}

// findingSource is a file that gives something to a finding.
type findingSource struct {
	File    string // its path
	Name    string // its SLS, or what it is
	Ways    []string
	Gives   bool     // false: the value of a later file has replaced that of this one
	Keys    []string // first parts of the keys that the file gives, if the question asks for a file
	keyPath []string
}

// maxFindings bounds the findings of one minion, and the keys of one file.
const maxFindings = 500

func (m *minionSearch) run() {
	named, paths := m.namedFiles()
	q := &m.question
	switch {
	case q.asksBlocks():
		m.findBlocks(paths)
	case q.key != nil:
		m.origins.Find(q.key, func(path []string, _ any, sources []pillar.Source) {
			if q.file == "" || slices.ContainsFunc(sources, func(s pillar.Source) bool { return named[s.File] && s.Gives }) {
				m.add(path, sources)
			}
		})
	default:
		m.findFiles(named)
	}
}

// namedFiles returns which of the minion's files the question names, or import a file that it names. paths
// has a path for each of them.
func (m *minionSearch) namedFiles() (named map[int]bool, paths []string) {
	named = map[int]bool{}
	if m.question.file == "" {
		return named, nil
	}
	for n, f := range m.origins.Files {
		if f.SLS != "" && f.SLS == m.question.file || m.isNamed(f.Path, f.Env) {
			named[n] = true
			paths = append(paths, f.Path)
		}
		for _, path := range f.Imports {
			if m.isNamed(path, f.Env) {
				named[n] = true
				paths = append(paths, path)
			}
		}
	}
	for _, path := range paths {
		m.see(path)
	}
	return named, paths
}

// isNamed reports whether the question names the file of a path, which was read for an environment.
func (m *minionSearch) isNamed(path, env string) bool {
	name := m.question.file
	if filepath.IsAbs(name) || path == "" {
		return path == filepath.Clean(name)
	}
	if !strings.HasSuffix(path, name) {
		return false
	}
	isIn := func(dir string) bool {
		return path == filepath.Join(strings.ReplaceAll(dir, "__env__", env), name)
	}
	for _, root := range m.origins.Roots {
		if isIn(root.Dir) {
			return true
		}
	}
	for _, dirs := range m.service.cfg.Pillar.Roots {
		if slices.ContainsFunc(dirs, isIn) {
			return true
		}
	}
	return false
}

// add adds a place of the pillar.
func (m *minionSearch) add(path []string, sources []pillar.Source) {
	if len(m.found) >= maxFindings {
		m.more++
		return
	}
	f := &finding{Key: shownKey(path), path: path}
	inFile := pathInFiles(path, sources)
	for _, s := range sources {
		f.Sources = append(f.Sources, m.source(s.File, s.Gives, inFile))
	}
	m.found = append(m.found, f)
}

// pathInFiles returns the path of a key as its files have it. Lists of several files are joined, so the index
// of what is in one is not that of the file: then the path ends at the list.
func pathInFiles(path []string, sources []pillar.Source) []string {
	isLost := func(s pillar.Source) bool { return !s.Gives }
	if len(slices.DeleteFunc(slices.Clone(sources), isLost)) < 2 {
		return path
	}
	isIndex := func(part string) bool { _, err := strconv.Atoi(part); return err == nil }
	if at := slices.IndexFunc(path, isIndex); at > 0 {
		return path[:at]
	}
	return path
}

// shownKey returns a key as pillar.get takes it.
func shownKey(path []string) string { return cut(pillar.JoinKey(path), maxPath) }

func (m *minionSearch) source(file int, gives bool, path []string) findingSource {
	o := m.origins.Files[file]
	ways, known := m.ways[file]
	if !known {
		ways = m.origins.Ways(file)
		m.ways[file] = ways
	}

	name := nameOf(o.FileKey)
	if o.External != "" {
		name = "ext_pillar " + o.External
	}
	return findingSource{
		File:    o.Path,
		Name:    name,
		Ways:    slices.Clip(ways),
		Gives:   gives,
		keyPath: path,
	}
}

// findFiles adds the files that the question names, with the keys that they give.
func (m *minionSearch) findFiles(named map[int]bool) {
	keys := map[int][]string{}
	m.origins.Find([]string{"*"}, func(path []string, _ any, sources []pillar.Source) {
		for _, s := range sources {
			switch {
			case !named[s.File] || !s.Gives:
			case len(keys[s.File]) >= maxFindings:
				m.more++
			default:
				keys[s.File] = append(keys[s.File], shownKey(path))
			}
		}
	})

	for n := range m.origins.Files {
		if !named[n] || len(m.found) >= maxFindings {
			continue
		}
		s := m.source(n, true, nil)
		s.Keys = keys[n]
		for _, path := range m.origins.Files[n].Imports {
			if m.isNamed(path, m.origins.Files[n].Env) {
				s.Ways = append(s.Ways, "imports "+path)
			}
		}
		m.found = append(m.found, &finding{Sources: []findingSource{s}})
	}
}

// findBlocks adds the places that have one of the PGP messages that are asked for.
func (m *minionSearch) findBlocks(paths []string) {
	blocks := m.blocksOf(paths)
	if len(blocks) == 0 {
		return
	}
	m.origins.Leaves(func(path []string, v any, sources []pillar.Source) {
		if text := pack(textsIn(v)); slices.ContainsFunc(blocks, func(b string) bool { return strings.Contains(text, b) }) {
			m.add(path, slices.DeleteFunc(sources, func(s pillar.Source) bool { return !s.Gives }))
		}
	})
}

// textsIn returns all texts of a value.
func textsIn(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case []byte:
		return string(v)
	case []any:
		var all []string
		for _, x := range v {
			all = append(all, textsIn(x))
		}
		return strings.Join(all, "\n")
	case *value.Map:
		var all []string
		for _, x := range v.All() {
			all = append(all, textsIn(x))
		}
		return strings.Join(all, "\n")
	}
	return ""
}

var pgpMessage = regexp.MustCompile(`(?s)-----BEGIN PGP MESSAGE-----.*?-----END PGP MESSAGE-----`)

// pack returns a text without what YAML may change in a PGP message: white space, and line ends that are
// written as \n.
func pack(text string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(text, `\n`, " ")), "")
}

// see notes a file that the question names, with its PGP messages if they are asked for.
func (r *readerSearch) see(path string) {
	r.report.mu.Lock()
	f := r.seen[path]
	if f == nil {
		f = &seenFile{}
		r.seen[path] = f
	}
	r.report.mu.Unlock()
	if !r.question.asksBlocks() {
		return
	}

	f.once.Do(func() {
		var err error
		if f.blocks, err = messagesIn(path, r.question.block); err != nil {
			r.report.noteFault(fmt.Sprintf("%s: %v", path, err))
		}
	})
}

// blocksOf returns the PGP messages that are asked for, of files that were seen.
func (r *readerSearch) blocksOf(paths []string) (blocks []string) {
	r.report.mu.Lock()
	defer r.report.mu.Unlock()
	for _, path := range paths {
		blocks = append(blocks, r.seen[path].blocks...)
	}
	return blocks
}
