package adopt

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
)

// Tree holds the files of another master, under the paths that the files have on that master. It
// follows links within the tree, as that master would.
type Tree struct{ root *os.Root }

// Open opens the tree in the folder dir, which contains the files of the other master below /.
func Open(dir string) (*Tree, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open the tree: %w", err)
	}
	return &Tree{root}, nil
}

// Close closes the tree.
func (t *Tree) Close() error { return t.root.Close() }

// resolve follows all links of a path, and returns a path relative to the tree. The returned path
// contains no link, unless somebody changes the tree after the check.
func (t *Tree) resolve(name string) (string, fs.FileInfo, error) {
	at := "."
	rest := strings.Split(name, "/")
	links := 0
	for len(rest) > 0 {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			at = path.Dir(at)
			continue
		}

		next := path.Join(at, part)
		fi, err := t.root.Lstat(next)
		if err != nil {
			return "", nil, err
		}
		if fi.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}

		links++
		if links > maxLinks {
			return "", nil, &fs.PathError{Op: "open", Path: name, Err: syscall.ELOOP}
		}

		to, err := t.root.Readlink(next)
		if err != nil {
			return "", nil, err
		}

		if path.IsAbs(to) {
			at = "."
		}

		rest = append(strings.Split(to, "/"), rest...)
	}

	fi, err := t.root.Lstat(at)
	return at, fi, err
}

// openFile opens a regular file.
func (t *Tree) openFile(name string) (*os.File, fs.FileInfo, error) {
	at, _, err := t.resolve(name)
	if err != nil {
		return nil, nil, err
	}

	f, err := t.root.OpenFile(at, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, nil, err
	}

	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = &fs.PathError{Op: "read", Path: name, Err: errors.New("it is not a regular file")}
	}

	if err != nil {
		_ = f.Close()
		return nil, nil, err
	}

	return f, fi, nil
}

// readFile returns the content of a regular file of at most limit bytes.
func (t *Tree) readFile(name string, limit int64) ([]byte, error) {
	f, _, err := t.openFile(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = &fs.PathError{Op: "read", Path: name, Err: fmt.Errorf("it has more than %d bytes", limit)}
	}
	return b, err
}

// listNames returns the sorted names in a folder, or none if the folder is missing.
func (t *Tree) listNames(name string) ([]string, error) {
	at, fi, err := t.resolve(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !fi.IsDir() {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}

	d, err := t.root.Open(at)
	if err != nil {
		return nil, err
	}
	defer d.Close()

	names, err := d.Readdirnames(maxEntries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(names) > maxEntries {
		return nil, fmt.Errorf("%s has more than %d files", name, maxEntries)
	}

	slices.Sort(names)
	return names, nil
}

// globPaths returns the paths that match a pattern, in the order in which Salt reads them.
func (t *Tree) globPaths(pattern string) (out []string) {
	out = []string{"/"}
	for _, part := range strings.Split(strings.Trim(path.Clean("/"+pattern), "/"), "/") {
		var next []string
		for _, dir := range out {
			if !strings.ContainsAny(part, "*?[") {
				next = append(next, path.Join(dir, part))
				continue
			}

			names, _ := t.listNames(dir)
			for _, n := range names {
				if ok, err := path.Match(part, n); err == nil && ok && (n[0] != '.' || part[0] == '.') &&
					len(next) < maxEntries {
					next = append(next, path.Join(dir, n))
				}
			}
		}

		out = next
	}

	return slices.DeleteFunc(out, func(p string) bool { _, _, err := t.resolve(p); return err != nil })
}

// exists reports whether a path exists.
func (t *Tree) exists(name string) bool {
	_, _, err := t.resolve(name)
	return err == nil
}
