package pillar

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"

	"saltern/master/internal/fileserver/regular"
	"saltern/master/internal/pillar/memo"
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

// Check renders the files of a minion's pillar twice, in the fast way and as Salt does, and returns
// the paths of the files with different results. It leaves out templates whose result differs each
// time, because they read a clock for example: it renders a file with a difference once more in
// each way, and counts the file only if both ways repeat their results.
//
// ext_pillar and decrypt_pillar do not run, except what comes before the files (ext_pillar_first).
func (c *Compiler) Check(ctx context.Context, req Request) (different []string, err error) {
	if c.cfg.Renderers == nil || needsPython(c.cfg.Strategy, c.cfg.Renderer) {
		return nil, nil
	}

	if req.asked == nil { // a command runs once for all four
		req.asked = c.cfg.External.Ask()
		defer req.asked.End()
	}

	var before []fileResult
	var first [2]map[fileResult][]memo.Sum
	for try := range 2 {
		var now [2]map[fileResult][]memo.Sum
		for way, fresh := range []bool{false, true} {
			if now[way], err = c.renderForCheck(ctx, req, fresh); err != nil {
				return nil, fmt.Errorf("check the pillar of %s: %w", req.ID, err)
			}
		}

		differ := differences(now[0], now[1])
		if try == 0 {
			before, first = differ, now
			if len(differ) == 0 {
				return nil, nil
			}
			continue
		}

		for _, file := range before {
			again := slices.Contains(differ, file)
			same := slices.Equal(first[0][file], now[0][file]) && slices.Equal(first[1][file], now[1][file])
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
	n.check = &checkRun{fresh: fresh, results: map[fileResult][]memo.Sum{}}
	n.withoutMemo = true
	defer n.giveUp(nil)
	defer n.closeSession()

	if err := n.admit(); err != nil {
		return nil, err
	}

	envs, files := n.readTops()
	top, err := n.mergeTops(envs, files)
	if err != nil {
		return nil, err
	}

	if c.cfg.ExtPillarFirst {
		n.pillar = n.extPillar(req.Override.Clone())
		if n.session != nil {
			if err := n.session.SetPillar(n.ctx, n.pillar); err != nil {
				return nil, err
			}
		}
	}

	n.renderSelected(n.matchTops(top))
	return n.check.results, context.Cause(n.ctx)
}

// maxDistrusted bounds the files that are distrusted one by one.
const maxDistrusted = 1000

// distrusted holds the files that are rendered as Salt does, because a check has found another
// result in the fast way. A file that changes is trusted again. Overflow policy: when there are too
// many, all files are distrusted until the master ends. distrusted is safe for concurrent use.
type distrusted struct {
	mu    sync.Mutex
	files map[string]regular.ID
	all   bool
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

// fault returns an error that names the distrusted files, or nil when there are none.
func (d *distrusted) fault() error {
	d.mu.Lock()
	defer d.mu.Unlock()
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
