package fileserver

import (
	"context"
	"crypto/rand"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"saltern/master/value"
)

// maxEdit bounds the size of a file that wheel functions read or write, in bytes.
const maxEdit = 16 << 20

// Tree implements the wheel functions file_roots.* and pillar_roots.* (salt/wheel), which show and
// edit files of environments. Only administrators can call them; still, Tree refuses paths that
// lead out of the roots.
type Tree struct {
	Roots map[string][]string // environment → directories
}

// Find returns the files with the relative path rel in an environment: for each root that has such
// a file, a map of the file's path to "txt" or "bin".
func (t Tree) Find(rel, env string) []any {
	out := []any{}
	for _, root := range t.Roots[env] {
		full, b, ok := t.readBelow(root, rel)
		if !ok {
			continue
		}
		form := "txt"
		if isBinary(b[:min(len(b), 512)]) {
			form = "bin"
		}
		out = append(out, value.NewMap(full, form))
	}
	return out
}

// Read returns the text files with the relative path rel in an environment: for each root that has
// such a file, a map of the file's path to its content.
func (t Tree) Read(rel, env string) []any {
	out := []any{}
	for _, root := range t.Roots[env] {
		full, b, ok := t.readBelow(root, rel)
		if ok && !isBinary(b[:min(len(b), 512)]) && utf8.Valid(b) {
			out = append(out, value.NewMap(full, string(b)))
		}
	}
	return out
}

func (t Tree) readBelow(root, rel string) (full string, data []byte, ok bool) {
	full = filepath.Join(root, rel)
	if !filepath.IsLocal(rel) {
		return "", nil, false
	}

	f, fi, err := (&roots{}).openBelow(root, full)
	if err != nil {
		return "", nil, false
	}
	defer f.Close()

	if fi.Size() > maxEdit {
		return "", nil, false
	}

	data = make([]byte, fi.Size())
	n, _ := f.ReadAt(data, 0)
	return full, data[:n], true
}

// Write replaces a file below the root that has this index in an environment. It returns Salt's
// sentence about the outcome, which may be a refusal. It returns an error if the file could not be
// written.
func (t Tree) Write(_ context.Context, data, rel, env string, index int) (string, error) {
	dir, refusal := t.rootDir(data, rel, env, index)
	if refusal != "" {
		return refusal, nil
	}
	dest := filepath.Join(dir, rel)
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = replaceBelow(dir, filepath.Clean(rel), data)
	}
	if err != nil {
		return "", fmt.Errorf("write %s: %w", dest, err)
	}
	return "Wrote data to file " + dest, nil
}

// rootDir returns the directory into which Write writes. If Write must refuse the file, dir is "",
// and refusal is Salt's sentence about the reason.
func (t Tree) rootDir(data, rel, env string, index int) (dir, refusal string) {
	dirs, ok := t.Roots[env]
	switch {
	case !ok:
		return "", fmt.Sprintf("Named environment %s is not present", env)
	case index < 0 || index >= len(dirs):
		return "", fmt.Sprintf("Specified index %d in environment %s is not present", index, env)
	case filepath.IsAbs(rel):
		return "", fmt.Sprintf("The path passed in %s is not relative to the environment %s", rel, env)
	case !filepath.IsLocal(rel) || filepath.Clean(rel) == "." || len(data) > maxEdit:
		return "", "Invalid path: " + rel
	}
	return dirs[index], ""
}

// replaceBelow writes data to a new file below dir and renames that file to rel, so that no minion
// gets an incomplete file.
func replaceBelow(dir, rel, data string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()

	if err := root.MkdirAll(filepath.Dir(rel), 0o755); err != nil {
		return err
	}

	mode := fs.FileMode(0o644)
	if fi, err := root.Stat(rel); err == nil {
		if !fi.Mode().IsRegular() {
			return fs.ErrExist
		}
		mode = fi.Mode().Perm()
	}

	// Another request or another node may write the same file at the same time.
	tmp := filepath.Join(filepath.Dir(rel), "."+rand.Text()+".tmp")
	f, err := root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}

	_, err = f.WriteString(data)
	if err == nil {
		err = f.Sync()
	}

	closeErr := f.Close()
	if err == nil {
		err = closeErr
	}

	if err == nil {
		err = root.Rename(tmp, rel)
	}

	if err != nil {
		root.Remove(tmp)
	}

	return err
}

// ListEnv returns a map from each root of an environment to the root's content. A directory is a
// map of the names in it, a file is "f".
func (t Tree) ListEnv(ctx context.Context, env string) (*value.Map, error) {
	out := value.NewMap()
	for _, root := range t.Roots[env] {
		top := value.NewMap()
		at := map[string]*value.Map{filepath.Clean(root): top}
		w := walker{ctx: ctx, visit: func(parent string, dirs, files []fs.DirEntry) {
			here := at[filepath.Clean(parent)]
			for _, d := range dirs {
				sub := value.NewMap()
				here.Set(d.Name(), sub)
				at[filepath.Join(parent, d.Name())] = sub
			}

			for _, f := range files {
				here.Set(f.Name(), "f")
			}
		}}

		if err := w.walkRoot(root); err != nil {
			return nil, err
		}

		out.Set(root, top)
	}

	return out, nil
}

// ListRoots returns a map with an entry for each environment. The value is a list whose only
// element is the result of ListEnv.
func (t Tree) ListRoots(ctx context.Context) (*value.Map, error) {
	out := value.NewMap()
	names := slices.Sorted(maps.Keys(t.Roots))
	for _, env := range names {
		l, err := t.ListEnv(ctx, env)
		if err != nil {
			return nil, err
		}
		out.Set(env, []any{l})
	}
	return out, nil
}

// isBinary guesses whether a file is binary, as Salt does (salt/utils/stringutils.py). b is the
// beginning of the file and may end within a character. isBinary returns true if b contains a NUL,
// or if more than three in ten bytes are not text.
func isBinary(b []byte) bool {
	isText := utf8.Valid(b)
	for cut := 1; !isText && cut < utf8.UTFMax && cut < len(b); cut++ {
		rest := b[len(b)-cut:]
		isText = utf8.Valid(b[:len(b)-cut]) && utf8.RuneStart(rest[0]) && !utf8.FullRune(rest)
	}

	odd := 0
	for _, c := range b {
		switch {
		case c == 0:
			return true
		case c < 0x20 && !strings.ContainsRune("\n\r\t\f\b", rune(c)), c == 0x7f, c == 0xff, c >= 0x80 && !isText:
			odd++
		}
	}

	return odd*10 > len(b)*3
}
