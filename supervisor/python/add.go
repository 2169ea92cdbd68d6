package python

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Addition says which packages to add: files, or names to be found in a folder or an index.
type Addition struct {
	Files []string      // paths of wheels
	Names []Requirement // packages that pip should find
	From  string        // folder of wheels in which pip looks for the names; empty: pip asks an index
	Index string        // address of the index; empty: the index in pip's configuration
	// Hashes lists SHA-256 sums. Each of Files must have one of them. It may be empty: Add then
	// checks no sums.
	Hashes []string
	// Agree gets the packages that would be added, and refuses them by returning an error.
	Agree func(fresh []Package) error
}

// ScratchPrefix begins the names of the folders, beside the layers, in which Add prepares packages.
// If an Add is killed, its folder stays; the next Add removes the folder.
const ScratchPrefix = ".python-add-"

// Add adds packages together with the packages that they need, and returns the new ones. It changes
// nothing unless all of them fit Salt and each other. Only one change of the cluster's packages
// runs at a time.
func (p Place) Add(ctx context.Context, a Addition) ([]Package, error) {
	for _, n := range a.Names {
		if err := n.validate(); err != nil {
			return nil, err
		}
	}

	unlock, err := p.lockFolder(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()

	before, _, err := readList(p.Shared)
	if err != nil {
		return nil, err
	}

	scratch, err := p.scratch()
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(scratch)

	fresh, err := p.collect(ctx, a, before, scratch)
	if err != nil {
		return nil, err
	}
	defer closeAll(fresh)

	after := slices.DeleteFunc(slices.Clone(before), func(k Package) bool {
		return slices.ContainsFunc(fresh, func(w *wheel) bool { return w.Name == k.Name })
	})
	kept, err := openWheels(p.Shared, after)
	if err != nil {
		return nil, fmt.Errorf("an earlier package cannot be read: %w; remove it, and add it again", err)
	}
	defer closeAll(kept)

	var packages []Package
	for _, w := range fresh {
		packages, after = append(packages, w.Package), append(after, w.Package)
	}

	if err := checkList(after); err != nil {
		return nil, err
	}

	if err := p.proven(ctx, append(kept, fresh...), filepath.Join(scratch, "layer")); err != nil {
		return nil, err
	}

	if a.Agree != nil {
		if err := a.Agree(packages); err != nil {
			return nil, err
		}
	}

	return packages, p.writeList(after, fresh)
}

// proven tests wheels: it builds a layer for this node's Python, in which Salt tries to load the
// packages.
func (p Place) proven(ctx context.Context, wheels []*wheel, layer string) error {
	f, err := p.askPython(ctx, wheels)
	if err != nil {
		return err
	}
	if err := f.checkWheels(wheels); err != nil {
		return err
	}
	if err := unpackLayer(layer, wheels); err != nil {
		return err
	}
	return f.tryLoad(ctx, layer)
}

// scratch creates a folder on this node's disk that all accounts may read.
func (p Place) scratch() (string, error) {
	base := filepath.Dir(p.Layers)
	// Killed additions have left these folders: no addition is running, because we hold the lock.
	old, _ := filepath.Glob(filepath.Join(base, ScratchPrefix+"*"))
	for _, dir := range old {
		_ = os.RemoveAll(dir)
	}

	dir, err := os.MkdirTemp(base, ScratchPrefix)
	if err != nil {
		return "", fmt.Errorf("make a folder for packages: %w", err)
	}

	err = os.Chmod(dir, 0o755)
	for _, sub := range []string{"given", "pip"} {
		if err == nil {
			err = os.Mkdir(filepath.Join(dir, sub), 0o755)
		}
	}

	if c := p.As; err == nil && c != nil {
		err = os.Chown(filepath.Join(dir, "pip"), int(c.Uid), int(c.Gid))
	}

	if err != nil {
		_ = os.RemoveAll(dir)
		return "", fmt.Errorf("make a folder for packages: %w", err)
	}

	return dir, nil
}

// collect copies or downloads the new wheels to the scratch folder and opens them.
func (p Place) collect(ctx context.Context, a Addition, before []Package, scratch string) (fresh []*wheel, err error) {
	defer func() {
		if err != nil {
			closeAll(fresh)
			fresh = nil
		}
	}()

	given := filepath.Join(scratch, "given")
	if fresh, err = copyWheels(a.Files, given); err != nil {
		return fresh, err
	}

	for _, w := range fresh {
		w.Asked = true
		if len(a.Hashes) > 0 && !slices.Contains(a.Hashes, w.SHA256) {
			return fresh, fmt.Errorf("%s has another SHA-256 than was asked for: %s", w.File, w.SHA256)
		}
	}

	if len(a.Names) == 0 {
		return fresh, nil
	}

	f, err := p.askPython(ctx, nil)
	if err != nil {
		return fresh, err
	}

	if a.From != "" {
		files, err := filepath.Glob(filepath.Join(a.From, "*.whl"))
		if err != nil || len(files) == 0 || len(files) > maxPackages {
			return fresh, fmt.Errorf("%s has %d wheels; 1 to %d can be looked through", a.From, len(files), maxPackages)
		}

		for _, file := range files {
			if err := copyWheel(file, given); err != nil {
				return fresh, err
			}
		}
	}

	r := &resolver{
		facts: f,
		dir:   filepath.Join(scratch, "pip"),
		wheel: given,
		index: a.Index,
		off:   a.From != "",
	}

	keep := slices.DeleteFunc(slices.Clone(before), func(k Package) bool {
		return slices.ContainsFunc(a.Names, func(n Requirement) bool { return n.packageName() == k.Name })
	})
	chosen, err := r.resolve(ctx, a.Names, keep)
	if err != nil {
		return fresh, err
	}

	chosen = slices.DeleteFunc(chosen, func(c found) bool { // packages in keep stay as they are
		return slices.ContainsFunc(keep, func(k Package) bool { return k.Name == c.Name && k.Version == c.Version })
	})
	if len(chosen) == 0 {
		return fresh, errors.New("nothing is missing: Salt's Python has it already")
	}

	dir, err := r.fetchWheels(ctx, chosen)
	if err != nil {
		return fresh, err
	}

	return gather(dir, a.Names, chosen, fresh)
}

// gather opens the wheels that pip has downloaded and compares them with the requirements in names.
func gather(dir string, names []Requirement, chosen []found, fresh []*wheel) ([]*wheel, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fresh, fmt.Errorf("read what pip brought: %w", err)
	}
	defer root.Close()

	entries, err := os.ReadDir(dir)
	if err != nil {
		return fresh, fmt.Errorf("read what pip brought: %w", err)
	}
	if len(entries) != len(chosen) {
		return fresh, fmt.Errorf("pip chose %d packages and brought %d", len(chosen), len(entries))
	}

	for _, e := range entries {
		w, err := openWheel(root, e.Name())
		if err != nil {
			return fresh, fmt.Errorf("read what pip brought: %w", err)
		}

		fresh = append(fresh, w)
		i := slices.IndexFunc(chosen, func(c found) bool { return c.Name == w.Name })
		if i < 0 || chosen[i].Hash != "" && chosen[i].Hash != w.SHA256 {
			return fresh, fmt.Errorf("%s is not what pip chose", w.File)
		}

		pinned := false
		for _, n := range names {
			pinned = pinned || len(n.Hashes) > 0
			if n.packageName() != w.Name {
				continue
			}

			w.Asked = true
			if len(n.Hashes) > 0 && !slices.Contains(n.Hashes, w.SHA256) {
				return fresh, fmt.Errorf("%s has the SHA-256 %s, which is none of those that are asked for",
					w.File, w.SHA256)
			}
		}

		if pinned && len(names) > 1 && !slices.ContainsFunc(names,
			func(n Requirement) bool { return n.packageName() == w.Name && len(n.Hashes) > 0 }) {
			return fresh, fmt.Errorf("%s %s comes without a hash, and others have one; name it with its own, sha256:%s",
				w.Name, w.Version, w.SHA256)
		}
	}

	return fresh, nil
}

// copyWheels copies the wheels that an administrator has named, and opens the copies.
func copyWheels(files []string, to string) (wheels []*wheel, err error) {
	root, err := os.OpenRoot(to)
	if err != nil {
		return nil, err
	}
	defer root.Close()

	for _, file := range files {
		if err := copyWheel(file, to); err != nil {
			return wheels, err
		}

		w, err := openWheel(root, filepath.Base(file))
		if err != nil {
			return wheels, err
		}

		if wheels = append(wheels, w); slices.ContainsFunc(wheels[:len(wheels)-1],
			func(o *wheel) bool { return o.Name == w.Name }) {
			return wheels, fmt.Errorf("there are two wheels of %s", w.Name)
		}
	}

	return wheels, nil
}

func copyWheel(file, to string) error {
	if !strings.HasSuffix(file, ".whl") {
		return fmt.Errorf("%s is no wheel (.whl); nothing is built here", file)
	}

	in, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("read the wheel: %w", err)
	}
	defer in.Close()

	if fi, err := in.Stat(); err != nil || !fi.Mode().IsRegular() || fi.Size() > maxWheel {
		return fmt.Errorf("read the wheel: %s is no regular file of at most %d MiB", file, maxWheel>>20)
	}

	path := filepath.Join(to, filepath.Base(file))
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return fmt.Errorf("copy the wheel: %w", err)
	}

	_, err = io.Copy(out, io.LimitReader(in, maxWheel))
	if err = errors.Join(err, out.Chmod(0o644), out.Close()); err != nil {
		return fmt.Errorf("copy the wheel: %w", err)
	}

	return nil
}
