package pillar

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"saltern/master/internal/fileserver/regular"
	"saltern/master/internal/pillar/extpillar"
	"saltern/master/internal/pillar/memo"
	"saltern/master/value"
)

// fileResult names one rendering of a file in a compilation.
type fileResult struct{ path, env, name string }

// checkRun records the results of all files of a compilation, to compare them with those of another
// compilation. It keeps digests: values may be secret.
type checkRun struct {
	fresh   bool // render as Salt does, with nothing that is kept, and YAML in Python
	results map[fileResult][]memo.Sum
}

func (r *checkRun) isFresh() bool { return r != nil && r.fresh }

func (r *checkRun) addResult(file fileResult, v any, err error) {
	if err != nil {
		v = "cannot be rendered"
	}
	sum, err := memo.KeyOf(err == nil, v)
	if err != nil {
		return
	}
	r.results[file] = append(r.results[file], sum)
}

// The two ways that a check compares.
const (
	fastWay = iota // in Go, where it can
	saltWay        // as Salt does
)

// waysOfTry returns the ways in the order in which a try takes them. The order changes: otherwise what
// alternates, such as the addresses of a name, would repeat its results in both ways.
func waysOfTry(try int) [2]int {
	if try%2 == 1 {
		return [2]int{saltWay, fastWay}
	}
	return [2]int{fastWay, saltWay}
}

// Differences are what a check of a pillar has found.
type Differences struct {
	Files   []string           // paths
	Entries []*extpillar.Entry // of ext_pillar
}

// Check renders the files of a minion's pillar twice, in the fast way and as Salt does, and returns
// the files with different results. It leaves out templates whose result differs each
// time, because they read a clock for example: it renders a file with a difference once more in
// each way, and counts the file only if both ways repeat their results.
//
// Then it does so with the entries of ext_pillar that Go may run, see compareExternals; knowsGrains is for
// these. What comes before the files (ext_pillar_first) runs for the files: a command once for all four
// renderings. decrypt_pillar does not run.
//
// With an error, what was found before it is returned and is valid.
func (c *Compiler) Check(ctx context.Context, req Request, knowsGrains func() bool) (found Differences, err error) {
	if c.cfg.Renderers == nil || needsPython(c.cfg.Strategy, c.cfg.Renderer) {
		return found, nil
	}

	if req.asked == nil {
		req.asked = c.cfg.External.Ask()
		defer req.asked.End()
	}

	found.Files, err = c.checkFiles(ctx, req)
	if err == nil {
		found.Entries, err = c.checkExternals(ctx, req, knowsGrains)
	}
	if err != nil {
		return found, fmt.Errorf("check the pillar of %s: %w", req.ID, err)
	}
	return found, nil
}

// checkFiles returns the paths of the files with different results.
func (c *Compiler) checkFiles(ctx context.Context, req Request) (different []string, err error) {
	var before []fileResult
	var first [2]map[fileResult][]memo.Sum
	for try := range 2 {
		var now [2]map[fileResult][]memo.Sum
		for _, way := range waysOfTry(try) {
			if now[way], err = c.renderForCheck(ctx, req, way == saltWay); err != nil {
				return nil, err
			}
		}

		differ := differences(now[fastWay], now[saltWay])
		if try == 0 {
			before, first = differ, now
			if len(differ) == 0 {
				return nil, nil
			}
			continue
		}

		for _, file := range before {
			again := slices.Contains(differ, file)
			same := slices.Equal(first[fastWay][file], now[fastWay][file]) &&
				slices.Equal(first[saltWay][file], now[saltWay][file])
			if again && same {
				different = append(different, file.path)
			}
		}
	}

	slices.Sort(different)
	return slices.Compact(different), nil
}

// differences returns the files that both compilations rendered, but with different results. If
// only one of them rendered a file, it was included by a file with a different result.
func differences(a, b map[fileResult][]memo.Sum) (files []fileResult) {
	for file := range maps.Keys(a) {
		if other, both := b[file]; both && !slices.Equal(a[file], other) {
			files = append(files, file)
		}
	}
	return files
}

// renderForCheck renders the files of a minion's pillar and returns the digests of their results.
func (c *Compiler) renderForCheck(ctx context.Context, req Request, fresh bool) (map[fileResult][]memo.Sum, error) {
	n := c.newCompilation(ctx, req)
	defer n.giveUp(nil)
	defer n.closeSession()
	n.check = &checkRun{fresh: fresh, results: map[fileResult][]memo.Sum{}}
	if _, err := n.compileFiles(); err != nil {
		return nil, err
	}
	return n.check.results, context.Cause(n.ctx)
}

// checkExternals returns the entries of ext_pillar with different results.
func (c *Compiler) checkExternals(ctx context.Context, req Request, hasGroups func() bool) ([]*extpillar.Entry, error) {
	if !slices.ContainsFunc(c.chain, func(p chainPart) bool { return p.inGo != nil }) {
		return nil, nil
	}

	n := c.newCompilation(ctx, req)
	defer n.giveUp(nil)
	defer n.closeSession()
	pillar := n.req.Override.Clone()
	var err error
	if c.cfg.ExtPillarFirst {
		n.withoutMemo = true
		err = n.admit()
	} else {
		pillar, err = n.compileFiles()
	}
	if err != nil {
		return nil, err
	}
	different := n.compareExternals(pillar, hasGroups)
	return different, context.Cause(n.ctx)
}

// compileFiles returns what the files give to the pillar, for a check.
func (c *compilation) compileFiles() (*value.Map, error) {
	c.withoutMemo = true
	if err := c.admit(); err != nil {
		return nil, err
	}

	envs, files := c.readTops()
	top, err := c.mergeTops(envs, files)
	if err != nil {
		return nil, err
	}

	if c.compiler.cfg.ExtPillarFirst {
		c.pillar = c.extPillar(c.req.Override.Clone())
		if c.session != nil {
			if err := c.session.SetPillar(c.ctx, c.pillar); err != nil {
				return nil, err
			}
		}
	}
	return c.renderSelected(c.matchTops(top)), nil
}

// maxDistrusted bounds the files that are distrusted one by one.
const maxDistrusted = 1000

// distrusted holds what is made as Salt does, because a check has found another result in the fast
// way. A file that changes is trusted again; an entry of ext_pillar is not, since what it reads has no
// end. Overflow policy: when there are too many files, all files are distrusted until the master ends.
// distrusted is safe for concurrent use.
type distrusted struct {
	mu      sync.Mutex
	files   map[string]regular.ID
	all     bool
	entries []*extpillar.Entry // as many as ext_pillar has, at most
}

func (d *distrusted) hasEntry(e *extpillar.Entry) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Contains(d.entries, e)
}

// addEntry distrusts an entry of ext_pillar.
func (d *distrusted) addEntry(e *extpillar.Entry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Contains(d.entries, e) {
		d.entries = append(d.entries, e)
	}
}

func (d *distrusted) has(path string, id regular.ID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	of, known := d.files[path]
	if known && of != id {
		delete(d.files, path)
		known = false
	}
	return known || d.all
}

// add distrusts a file as it is now.
func (d *distrusted) add(path string) error {
	fi, err := os.Stat(path)
	if err != nil {
		return err
	}

	id, _ := regular.IDOf(fi)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.files == nil {
		d.files = map[string]regular.ID{}
	}

	d.files[path] = id
	d.all = d.all || len(d.files) > maxDistrusted
	return nil
}

// dropMissing forgets the files that are gone.
func (d *distrusted) dropMissing() {
	d.mu.Lock()
	paths := slices.Collect(maps.Keys(d.files))
	d.mu.Unlock()

	for _, path := range paths {
		if _, err := os.Stat(path); regular.Missing(err) {
			d.mu.Lock()
			delete(d.files, path)
			d.mu.Unlock()
		}
	}
}

// fault returns an error that names what is distrusted, or nil when there is nothing.
func (d *distrusted) fault() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	files := d.filesFault()
	if len(d.entries) == 0 {
		return files
	}

	names := make([]string, len(d.entries))
	for i, e := range d.entries {
		names[i] = fmt.Sprintf("%s (entry %d)", e.Name, e.Number)
	}
	text := fmt.Sprintf("ext_pillar %s gives other values; Salt's module runs it, until the master restarts",
		strings.Join(names, ", "))
	if files != nil {
		return fmt.Errorf("%s; %w", text, files)
	}
	return errors.New(text)
}

// filesFault returns an error that names the distrusted files, or nil. The caller holds the lock.
func (d *distrusted) filesFault() error {
	paths := slices.Sorted(maps.Keys(d.files))
	switch {
	case d.all:
		return errors.New("more than 1,000 files give other values; all are rendered as Salt does, until the master restarts")
	case len(paths) == 0:
		return nil
	case len(paths) == 1:
		return fmt.Errorf("%s gives other values; it is rendered as Salt does, until it changes", paths[0])
	}
	return fmt.Errorf("%s and %d more give other values; they are rendered as Salt does, until they change",
		paths[0], len(paths)-1)
}
