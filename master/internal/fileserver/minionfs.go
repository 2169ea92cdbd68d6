package fileserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"saltern/master/internal/fileserver/regular"
	"saltern/master/pattern"
)

// minionFS serves files that minions have pushed, as <mountpoint>/<id>/<path>
// (salt/fileserver/minionfs.py). It does not follow links that lead out of a minion's directory. It
// never serves top.sls, because a minion must not define the states of other minions.
type minionFS struct {
	dir        string
	env, mount string
	white      []idPattern
	black      []idPattern
	ignore     *Ignore
}

type idPattern struct {
	glob string
	re   *regexp.Regexp
}

func (p idPattern) matches(id string) bool {
	return pattern.Glob(p.glob, id) || p.re != nil && p.re.MatchString(id)
}

func newMinionFS(c *Config, ig *Ignore) (*minionFS, error) {
	m := &minionFS{dir: filepath.Join(c.Cachedir, "minions"), env: c.MinionFS.Env, ignore: ig}
	_, mount, ok := strings.Cut(c.MinionFS.Mountpoint, "://")
	if !ok {
		mount = c.MinionFS.Mountpoint
	}

	m.mount = strings.Trim(mount, "/")
	if m.mount != "" && (!filepath.IsLocal(m.mount) || path.Clean(m.mount) != m.mount) {
		return nil, fmt.Errorf("minionfs_mountpoint %q is not a path", c.MinionFS.Mountpoint)
	}

	for _, l := range []struct {
		from []string
		to   *[]idPattern
	}{{c.MinionFS.Whitelist, &m.white}, {c.MinionFS.Blacklist, &m.black}} {
		for _, expr := range l.from {
			re, err := regexp.Compile(`\A(?:` + expr + `)\z`)
			if err != nil {
				re = nil // the entry, such as *, is a valid glob but not a valid expression
			}
			*l.to = append(*l.to, idPattern{expr, re})
		}
	}

	return m, nil
}

func (*minionFS) Name() string { return "minionfs" }

func (m *minionFS) Envs() []string { return []string{m.env} }

func (m *minionFS) exposed(id string) bool {
	any := func(l []idPattern) bool {
		return slices.ContainsFunc(l, func(p idPattern) bool { return p.matches(id) })
	}
	return (len(m.white) == 0 || any(m.white)) && !any(m.black)
}

func (m *minionFS) Open(_ context.Context, q Query) (Handle, File, bool, error) {
	p := q.Path
	if q.Saltenv != m.env || path.Base(p) == "top.sls" {
		return nil, File{}, false, nil
	}

	if m.mount != "" {
		var ok bool
		if p, ok = strings.CutPrefix(p, m.mount+"/"); !ok {
			return nil, File{}, false, nil
		}
	}

	id, name, ok := strings.Cut(p, "/")
	full := filepath.Join(m.dir, id, "files", name)
	if !ok || !validMinionID(id) || !m.exposed(id) || m.ignore.Match(full) {
		return nil, File{}, false, nil
	}

	f, fi, err := m.openBelow(id, name)
	if err != nil {
		if regular.Missing(err) {
			err = nil
		}
		return nil, File{}, false, err
	}

	return f, File{Path: full, Rel: p, Stat: statOf(fi)}, true, nil
}

func (m *minionFS) openBelow(id, name string) (*os.File, fs.FileInfo, error) {
	all, err := os.OpenRoot(m.dir)
	if err != nil {
		return nil, nil, err
	}
	defer all.Close()

	root, err := all.OpenRoot(id + "/files")
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()

	if fi, err := root.Stat(name); err != nil {
		return nil, nil, err
	} else if !fi.Mode().IsRegular() {
		return nil, nil, fs.ErrNotExist
	}

	f, err := root.OpenFile(name, os.O_RDONLY|regular.Flags, 0)
	if err != nil {
		return nil, nil, err
	}

	return regular.Check(f)
}

func (m *minionFS) Find(ctx context.Context, q Query) (File, bool, error) {
	h, f, ok, err := m.Open(ctx, q)
	if ok {
		h.Close()
	}
	return f, ok, err
}

func (m *minionFS) List(ctx context.Context, env string) (*Listing, error) {
	if env != m.env {
		return nil, nil
	}

	ids, err := os.ReadDir(m.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}

	out := NewListing()
	for _, id := range ids {
		if !validMinionID(id.Name()) || !m.exposed(id.Name()) {
			continue
		}

		base := filepath.Join(m.dir, id.Name(), "files")
		add := func(to map[string]struct{}, parent string, es []fs.DirEntry) {
			for _, e := range es {
				rel, err := filepath.Rel(base, filepath.Join(parent, e.Name()))
				rel = path.Join(m.mount, id.Name(), rel)
				if err == nil && (e.IsDir() || e.Type().IsRegular()) && !m.ignore.Match(rel) {
					to[rel] = struct{}{}
				}
			}
		}

		w := walker{ctx: ctx, visit: func(parent string, dirs, files []fs.DirEntry) {
			add(out.Dirs, parent, dirs)
			add(out.Files, parent, files)
		}}

		if err := w.walkRoot(base); err != nil {
			return nil, err
		}
	}

	return out, nil
}

// Times returns no files: minions push files all the time, so lists expire by their age.
func (m *minionFS) Times(context.Context) (map[string]int64, error) { return map[string]int64{}, nil }
