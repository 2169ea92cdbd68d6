package extpillar

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"unicode/utf8"

	"saltern/internal/command"
	"saltern/master/internal/fileserver/regular"
	"saltern/master/pattern"
	"saltern/master/value"
)

// Bounds of what one minion gets from a tree. A loop of links ends at them.
const (
	maxTreeFiles = 100_000  // files and directories
	maxTreeBytes = 32 << 20 // bytes of all files
	maxTreeDepth = 100
	filesAtOnce  = 1000 // entries that are read from a directory at once
)

// tree is the arguments of file_tree.
type tree struct {
	root        string   // absolute path of a directory
	followLinks bool     // follow links to directories
	keepAll     bool     // keep the newline at the end of each file
	keep        []string // globs of files whose newline at the end is kept
}

// read returns the files of a minion: those of its nodegroups, in the order of their directory, and
// over them its own (salt/pillar/file_tree.py _ext_pillar).
func (t tree) read(ctx context.Context, log *slog.Logger, m Minion) (*value.Map, error) {
	if fi, err := os.Stat(t.root); err != nil || !fi.IsDir() {
		log.Error("the root_dir of a file_tree is no directory", "minion", m.ID, "path", t.root)
		return nil, nil
	}

	r := &treeReader{tree: t, ctx: ctx}
	out, err := r.ofGroups(m)
	if err != nil {
		return nil, err
	}

	own := filepath.Join(t.root, "hosts", m.ID)
	fi, err := os.Stat(own)
	if err == nil && !fi.IsDir() {
		log.Error("a file_tree has a file in place of a directory", "minion", m.ID, "path", own)
	}
	if err == nil && fi.IsDir() {
		files := value.NewMap()
		if err := r.directory(own, ".", files, 0); err != nil {
			return nil, err
		}
		out = mergeTrees(out, files)
	}

	if r.skipped > 0 {
		log.Warn("files of a file_tree are left out, as in Salt", "minion", m.ID, "files", r.skipped, "error", r.firstSkipped)
	}
	return out, nil
}

// treeReader reads the files of one minion.
type treeReader struct {
	tree
	ctx          context.Context
	files        int
	bytes        int
	skipped      int
	firstSkipped error
}

// ofGroups returns the files of the nodegroups that a minion is in.
func (r *treeReader) ofGroups(m Minion) (*value.Map, error) {
	out := value.NewMap()
	dir := filepath.Join(r.root, "nodegroups")
	if _, err := os.Stat(dir); err != nil || m.Groups.Len() == 0 {
		return out, nil
	}

	groups, err := r.list(dir)
	if err != nil {
		return nil, ErrInexact // Salt's module says what is wrong with the directory
	}
	for _, group := range groups {
		definition, known := m.Groups.Get(group.Name())
		if !known {
			continue
		}
		in, err := m.InGroup(definition)
		if err != nil {
			return nil, ErrInexact
		}
		if !in {
			continue
		}

		files := value.NewMap()
		if err := r.directory(filepath.Join(dir, group.Name()), ".", files, 0); err != nil {
			return nil, err
		}
		out = mergeTrees(out, files)
	}
	return out, nil
}

// list returns the entries of a directory in the order of the directory, as Salt takes them.
func (r *treeReader) list(dir string) ([]fs.DirEntry, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()

	var out []fs.DirEntry
	for {
		more, err := f.ReadDir(filesAtOnce)
		out = append(out, more...)
		if r.files += len(more); r.files > maxTreeFiles {
			return nil, r.tooMuch(fmt.Sprintf("%d files and directories", maxTreeFiles))
		}
		if r.ctx.Err() != nil {
			return nil, r.ctx.Err()
		}
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// tooLarge is an error that ends a tree.
type tooLarge string

func (t tooLarge) Error() string { return string(t) }

func (r *treeReader) tooMuch(what string) error {
	return tooLarge(fmt.Sprintf("one minion has more than %s below the root_dir; move what is no pillar to the file server, or look for a loop of links",
		what))
}

// directory adds the files of a directory to a map: first an empty map for each directory, then the
// files, then what is in the directories (os.walk, and _construct_pillar of file_tree.py). at is the
// path below the top directory.
func (r *treeReader) directory(dir, at string, out *value.Map, depth int) error {
	if depth > maxTreeDepth {
		return r.tooMuch(fmt.Sprintf("%d levels of directories", maxTreeDepth))
	}
	entries, err := r.list(dir)
	if err != nil {
		return r.skip(dir, err)
	}

	var below, files []fs.DirEntry
	for _, entry := range entries {
		if !utf8.ValidString(entry.Name()) {
			return ErrInexact // a pillar cannot carry the name
		}
		if !isDirectory(dir, entry) {
			files = append(files, entry)
			continue
		}
		below = append(below, entry)
		out.Set(entry.Name(), value.NewMap())
	}

	for _, entry := range files {
		if err := r.file(filepath.Join(dir, entry.Name()), path.Join(at, entry.Name()), at, out); err != nil {
			return err
		}
	}

	for _, entry := range below {
		if entry.Type()&fs.ModeSymlink != 0 && !r.followLinks {
			continue
		}
		inner := out.Map(entry.Name())
		if err := r.directory(filepath.Join(dir, entry.Name()), path.Join(at, entry.Name()), inner, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// isDirectory reports whether an entry is a directory, or a link to one.
func isDirectory(dir string, entry fs.DirEntry) bool {
	if entry.Type()&fs.ModeSymlink == 0 {
		return entry.IsDir()
	}
	fi, err := os.Stat(filepath.Join(dir, entry.Name()))
	return err == nil && fi.IsDir()
}

// file adds one file to a map.
func (r *treeReader) file(full, name, at string, out *value.Map) error {
	text, err := r.readFile(full)
	if err != nil {
		return r.skip(full, err)
	}

	if at == "." {
		name = "./" + name // Salt's path of a file at the top
	}
	if bytes.HasSuffix(text, []byte("\n")) && !r.keepsNewline(name) {
		text = text[:len(text)-1]
	}
	out.Set(path.Base(name), text)
	return nil
}

func (r *treeReader) readFile(full string) ([]byte, error) {
	if r.ctx.Err() != nil {
		return nil, r.ctx.Err()
	}
	f, fi, err := regular.Open(full)
	if err != nil {
		return nil, err
	}
	defer f.Close()

	left := int64(maxTreeBytes - r.bytes)
	var text bytes.Buffer
	text.Grow(int(min(fi.Size(), left)) + bytes.MinRead)
	if _, err := text.ReadFrom(io.LimitReader(f, left+1)); err != nil {
		return nil, err
	}
	if int64(text.Len()) > left {
		return nil, r.tooMuch(fmt.Sprintf("%d MiB of files", maxTreeBytes>>20))
	}
	r.bytes += text.Len()
	return text.Bytes(), nil
}

// keepsNewline reports whether the newline at the end of a file is kept.
func (t tree) keepsNewline(name string) bool {
	for _, glob := range t.keep {
		if pattern.Glob(glob, name) {
			return true
		}
	}
	return t.keepAll
}

// skip counts a file or directory that cannot be read. It returns an error if the tree ends there.
func (r *treeReader) skip(full string, err error) error {
	var large tooLarge
	switch {
	case errors.As(err, &large) || r.ctx.Err() != nil:
		return err
	case command.IsShortage(err):
		return errShort
	}
	r.skipped++
	if r.firstSkipped == nil {
		r.firstSkipped = fmt.Errorf("read %s: %w", full, err)
	}
	return nil
}

// mergeTrees returns a with b merged over it, map by map. It may change both.
func mergeTrees(a, b *value.Map) *value.Map {
	for name, v := range b.All() {
		below, isMap := v.(*value.Map)
		old, _ := a.GetAny(name)
		above, wasMap := old.(*value.Map)
		if isMap && wasMap {
			v = mergeTrees(above, below)
		}
		a.Set(name, v)
	}
	return a
}
