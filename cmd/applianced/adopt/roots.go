package adopt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"saltern/master/value"
	"saltern/supervisor/backup"
	"saltern/supervisor/settings"
)

// root is one folder of file_roots or pillar_roots.
type root struct {
	kind   Kind
	env    string
	dir    string // folder on the other master
	to     string // destination below the storage
	served string // path from which the appliance's master reads the folder
}

// envDir holds the environments other than base. It is a separate folder because nodes copy only
// srv/salt and srv/pillar.
const envDir = "_env"

// findRoots returns the roots in the configuration, and the options that the appliance needs for
// environments other than base.
func findRoots(t *Tree, c *confs, s *settings.Settings) (roots []*root, options *value.Map, notes []Note) {
	options = &value.Map{}
	for _, o := range []struct {
		name, to, served string
		kind             Kind
		preset           []any
	}{
		{"file_roots", "srv/salt", s.FileRoot(), States, []any{"/srv/salt", "/srv/spm/salt"}},
		{"pillar_roots", "srv/pillar", s.PillarRoot(), Pillars, []any{"/srv/pillar", "/srv/spm/pillar"}},
	} {
		given := c.all.Map(o.name)
		if given.Len() == 0 {
			given = value.NewMap("base", o.preset)
		}

		envs := &value.Map{}
		for k, v := range given.All() {
			env, ok := k.(string)
			if !ok || env == "__env__" || backup.CheckName(env) != nil || strings.ContainsAny(env, `/\ `) {
				notes = append(notes,
					c.noteAt(o.name, "the environment %.60q is left out: bring its files by hand", fmt.Sprint(k)))
				continue
			}

			r := root{kind: o.kind, env: env, to: o.to, served: o.served}
			if env != "base" {
				r.to, r.served = path.Join(o.to, envDir, env), filepath.Join(o.served, envDir, env)
			}

			envs.Set(env, []any{r.served})
			dirs, missing := rootDirs(t, v)
			for _, d := range dirs {
				one := r
				one.dir = d
				roots = append(roots, &one)
			}

			for _, d := range missing {
				if given.Len() > 0 && !slices.Contains(o.preset, any(d)) {
					notes = append(notes, c.noteAt(o.name, "%s of the environment %s is not in the tree", d, env))
				}
			}
		}

		if envs.Len() > 1 || envs.Len() == 1 && envs.Keys()[0] != "base" {
			envs.Set("base", []any{o.served})
			options.Set(o.name, envs)
		}
	}

	return roots, options, notes
}

// rootDirs returns the folders of an environment: in dirs those that exist in the tree, in missing
// the others.
func rootDirs(t *Tree, v any) (dirs, missing []string) {
	list, ok := v.([]any)
	if s, one := v.(string); one && !ok {
		list = []any{s}
	}

	for _, e := range list {
		s, ok := e.(string)
		if !ok || !path.IsAbs(s) {
			missing = append(missing, fmt.Sprint(e))
			continue
		}

		found := []string{path.Clean(s)}
		if strings.ContainsAny(s, "*?[") {
			found = t.globPaths(s)
		}

		for _, d := range found {
			if _, fi, err := t.resolve(d); err == nil && fi.IsDir() {
				dirs = append(dirs, d)
			} else {
				missing = append(missing, d)
			}
		}
	}

	return dirs, missing
}

// scanner collects the files of roots.
type scanner struct {
	ctx     context.Context
	tree    *Tree
	seen    map[string]string // origin of each file, by its destination
	items   []*item
	notes   []Note
	leftOut map[Kind]int
	bytes   int64
	count   int
}

func (x *scanner) skipFile(r *root, name, why string) {
	x.leftOut[r.kind]++
	if len(x.notes) < maxListed {
		x.notes = append(x.notes, Note{File: name, Text: "left out: " + why})
	}
}

// scanRoot collects all files of a root. If several roots of an environment have the same file, the
// one in the first root is used, as in Salt's file server.
func (x *scanner) scanRoot(r *root) error {
	at, _, err := x.tree.resolve(r.dir)
	if err != nil {
		return err
	}
	return x.folder(r, r.dir, "", []string{at})
}

// folder collects the files in a folder. above are the resolved folders on the way to it.
func (x *scanner) folder(r *root, dir, rel string, above []string) error {
	names, err := x.tree.listNames(dir)
	if err != nil {
		return err
	}

	for _, n := range names {
		if err := x.ctx.Err(); err != nil {
			return err
		}

		x.count++
		if x.count > maxEntries {
			return fmt.Errorf("the roots hold more than %d files", maxEntries)
		}

		name, to := path.Join(dir, n), path.Join(r.to, rel, n)
		if err := backup.CheckName(to); err != nil {
			x.skipFile(r, dir, "something in it "+err.Error())
			continue
		}

		at, fi, err := x.tree.resolve(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			x.skipFile(r, name, "it is a link to nothing in the tree")
		case err != nil:
			x.skipFile(r, name, err.Error())
		case fi.IsDir() && slices.Contains(above, at):
			x.skipFile(r, name, "it is a link to a folder above it")
		case fi.IsDir() && len(above) >= maxDepth-4:
			x.skipFile(r, name, "it lies too deep")
		case fi.IsDir():
			if err := x.folder(r, name, path.Join(rel, n), append(slices.Clone(above), at)); err != nil {
				return err
			}
		case !fi.Mode().IsRegular():
			x.skipFile(r, name, "it is neither a file nor a folder")
		default:
			if err := x.scanFile(r, name, to, fi); err != nil {
				return err
			}
		}
	}

	return nil
}

func (x *scanner) scanFile(r *root, name, to string, fi fs.FileInfo) error {
	if first, ok := x.seen[to]; ok {
		if first != name {
			x.notes = append(x.notes,
				Note{
					File: name,
					Text: "not served by the old master either: " + first + " comes before it",
					Info: true,
				})
		}

		return nil
	}

	x.seen[to] = name
	if fi.Size() > maxFile || x.bytes+fi.Size() > maxBytes {
		return fmt.Errorf("%s makes the files larger than is taken (%d GiB each, %d GiB together)", name,
			maxFile>>30, maxBytes>>30)
	}

	x.bytes += fi.Size()
	x.items = append(x.items, &item{
		kind: r.kind,
		to:   to,
		from: name,
		size: fi.Size(),
		mode: fi.Mode().Perm()&0o755 | 0o400,
	})

	return nil
}
