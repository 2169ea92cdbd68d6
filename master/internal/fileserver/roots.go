package fileserver

import (
	"context"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"saltern/master/internal/fileserver/regular"
)

// envKey is the entry of file_roots that applies to all environments without an entry. In the
// directories of that entry, the text of envKey is replaced by the name of the environment.
const envKey = "__env__"

// roots is the backend that serves directories of the master (salt/fileserver/roots.py).
type roots struct {
	dirs           map[string][]string
	ignore         *Ignore
	follow         bool
	ignoreSymlinks bool
	log            *slog.Logger
	unlisted       sync.Once // logs only the first file name that no minion can request
}

func newRoots(c *Config, ig *Ignore) *roots {
	return &roots{
		dirs:           c.Roots,
		ignore:         ig,
		follow:         c.FollowSymlinks,
		ignoreSymlinks: c.IgnoreSymlinks,
		log:            c.Log,
	}
}

func (*roots) Name() string { return "roots" }

func (r *roots) Envs() []string { return slices.Sorted(maps.Keys(r.dirs)) }

// dirsOf returns the directories of an environment, or nil if there is no such environment.
func (r *roots) dirsOf(env string) []string {
	if dirs, ok := r.dirs[env]; ok {
		return dirs
	}
	dynamic, ok := r.dirs[envKey]
	if !ok || !validEnv(env) {
		return nil
	}
	out := make([]string, len(dynamic))
	for i, d := range dynamic {
		out[i] = strings.ReplaceAll(d, envKey, env)
	}
	return out
}

func (r *roots) candidates(q Query) []string {
	dirs := r.dirsOf(q.Saltenv)
	if q.Index < 0 {
		return dirs
	}
	if q.Index >= len(dirs) {
		return nil
	}
	return dirs[q.Index : q.Index+1]
}

func (r *roots) Find(ctx context.Context, q Query) (File, bool, error) {
	for _, dir := range r.candidates(q) {
		if ctx.Err() != nil {
			return File{}, false, ctx.Err()
		}

		full := filepath.Join(dir, q.Path)
		var fi fs.FileInfo
		var err error
		if r.follow {
			fi, err = os.Stat(full)
		} else {
			var f *os.File
			if f, fi, err = r.openBelow(dir, full); err == nil {
				f.Close()
			}
		}

		if err == nil && fi.Mode().IsRegular() && !r.ignore.Match(full) {
			return File{Path: full, Rel: q.Path, Stat: statOf(fi)}, true, nil
		}
		if err != nil && !regular.Missing(err) {
			return File{}, false, err
		}
	}

	return File{}, false, nil
}

func (r *roots) Open(ctx context.Context, q Query) (Handle, File, bool, error) {
	for _, dir := range r.candidates(q) {
		if ctx.Err() != nil {
			return nil, File{}, false, ctx.Err()
		}

		full := filepath.Join(dir, q.Path)
		if r.ignore.Match(full) {
			continue
		}

		var f *os.File
		var fi fs.FileInfo
		var err error
		if r.follow {
			f, fi, err = regular.Open(full)
		} else {
			f, fi, err = r.openBelow(dir, full)
		}

		if err == nil {
			return f, File{Path: full, Rel: q.Path, Stat: statOf(fi)}, true, nil
		}
		if !regular.Missing(err) {
			return nil, File{}, false, err
		}
	}

	return nil, File{}, false, nil
}

// openBelow opens a file if the file's real path is below the real path of root. Like Salt it
// follows links that lead to files inside the root, including absolute ones. The kernel resolves
// the final name below the root. So a link that is changed in the meantime cannot lead out of the
// root.
func (r *roots) openBelow(root, full string) (*os.File, fs.FileInfo, error) {
	realRoot, err := filepath.EvalSymlinks(root)
	if err != nil {
		return nil, nil, err
	}

	real, err := filepath.EvalSymlinks(full)
	if err != nil {
		return nil, nil, err
	}

	rel, err := filepath.Rel(realRoot, real)
	if err != nil || !filepath.IsLocal(rel) {
		return nil, nil, fs.ErrNotExist
	}

	dir, err := os.OpenRoot(realRoot)
	if err != nil {
		return nil, nil, err
	}
	defer dir.Close()

	fi, err := dir.Stat(rel)
	if err != nil {
		return nil, nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, nil, fs.ErrNotExist
	}

	f, err := dir.OpenFile(rel, os.O_RDONLY|regular.Flags, 0)
	if err != nil {
		return nil, nil, err
	}

	return regular.Check(f)
}

func (r *roots) Times(ctx context.Context) (map[string]int64, error) {
	out := map[string]int64{}
	for env, dirs := range r.dirs {
		if env == envKey {
			continue
		}

		for _, dir := range dirs {
			w := walker{ctx: ctx, visit: func(parent string, _, files []fs.DirEntry) {
				for _, f := range files {
					full := filepath.Join(parent, f.Name())
					if r.ignore.Match(full) {
						continue
					}
					if fi, err := os.Stat(full); err == nil {
						out[full] = fi.ModTime().UnixNano()
					}
				}
			}}

			if err := w.walkRoot(dir); err != nil {
				return nil, err
			}
		}
	}

	return out, nil
}
