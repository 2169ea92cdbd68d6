package fileserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"
)

// Bounds of one environment: entries in a listing, and nesting of directories.
const (
	maxListing   = 1 << 20
	maxWalkDepth = 100
)

var errTooMany = errors.New("the environment has too many files to list")

// Listing is the content of one environment. Paths are relative to its roots.
type Listing struct {
	Files, Dirs, EmptyDirs map[string]struct{}
	Links                  map[string]string // target of each link, as stored in the link
	dirs                   []dirState        // the listed directories; nil: unknown
}

// NewListing returns an empty Listing.
func NewListing() *Listing {
	return &Listing{map[string]struct{}{}, map[string]struct{}{}, map[string]struct{}{}, map[string]string{}, nil}
}

func (r *roots) List(ctx context.Context, env string) (*Listing, error) {
	dirs := r.dirsOf(env)
	if dirs == nil {
		return nil, nil
	}

	out := NewListing()
	for _, root := range dirs {
		realRoot := realpath(root)
		add := func(tgt map[string]struct{}, parent string, items []fs.DirEntry) {
			for _, e := range items {
				r.addEntry(out, tgt, root, realRoot, parent, e)
			}
		}

		w := walker{ctx: ctx, follow: r.follow, visit: func(parent string, subdirs, files []fs.DirEntry) {
			add(out.Dirs, parent, subdirs)
			add(out.Files, parent, files)
		}, listing: func(dir string, fi fs.FileInfo) { out.noteDir(dir, fi) }}

		if err := w.walkRoot(root); err != nil {
			return nil, fmt.Errorf("list environment %q: %w", env, err)
		}
	}

	return out, nil
}

func (r *roots) addEntry(l *Listing, tgt map[string]struct{}, root, realRoot, parent string, e fs.DirEntry) {
	full := filepath.Join(parent, e.Name())
	isLink := e.Type()&fs.ModeSymlink != 0
	if isLink && r.ignoreSymlinks {
		return
	}

	rel, err := filepath.Rel(root, full)
	if err != nil || r.ignore.Match(rel) {
		return
	}
	if !utf8.ValidString(rel) {
		r.unlisted.Do(func() {
			r.log.Warn("names that are no UTF-8 are not listed: minions cannot ask for them; this is the first",
				"path", strconv.QuoteToASCII(full))
		})
		return
	}

	if !isLink && !e.IsDir() && !e.Type().IsRegular() {
		return // FIFOs, sockets and devices are never served
	}

	tgt[rel] = struct{}{}
	if e.IsDir() || isLink && isDir(full) {
		if isLink && !r.follow {
			fi, err := os.Stat(full)
			l.noteDir(full, stateOr(fi, err)) // the walk does not follow a link
		}
		if isEmptyDir(full) {
			l.EmptyDirs[rel] = struct{}{}
		}
	}

	if !isLink {
		return
	}

	dest, err := os.Readlink(full)
	if err != nil || !utf8.ValidString(dest) {
		return
	}

	// A target that starts with .. is resolved relative to the link itself, not to the link's
	// directory. Salt does the same, and minions depend on it.
	base := filepath.Dir(full)
	if strings.HasPrefix(dest, "..") {
		base = full
	}

	joined := dest
	if !filepath.IsAbs(dest) {
		joined = filepath.Join(base, dest)
	}

	inside, err := filepath.Rel(realRoot, realpath(joined))
	if err == nil && !strings.HasPrefix(inside, "..") || !r.follow {
		l.Links[rel] = dest
	}
}

// walker walks a tree top down, as os.walk does. walker lists a link to a directory as a directory,
// but enters it only if follow is set. It enters a directory that is linked into itself only once.
type walker struct {
	ctx    context.Context
	follow bool
	prune  func(name string) bool // reports whether to skip a directory; may be nil
	visit  func(parent string, dirs, files []fs.DirEntry)
	// listing is called before the walker lists a directory. fi is nil if the directory does not
	// exist. listing may be nil.
	listing func(dir string, fi fs.FileInfo)
	seen    int
}

type dirID struct{ dev, ino uint64 }

// walkRoot walks the tree below root. It returns nil if root does not exist.
func (w *walker) walkRoot(root string) error { return w.enterDir(root, nil) }

func (w *walker) enterDir(dir string, above []dirID) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}

	fi, err := os.Stat(dir)
	if w.listing != nil {
		w.listing(dir, stateOr(fi, err))
	}

	if err != nil || !fi.IsDir() || len(above) >= maxWalkDepth {
		return nil
	}

	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		id := dirID{uint64(st.Dev), st.Ino}
		if slices.Contains(above, id) {
			return nil
		}
		above = append(slices.Clip(above), id)
	}

	entries, err := os.ReadDir(dir)
	if err != nil && len(entries) == 0 {
		return nil // treat an unreadable directory as an empty one
	}

	if w.seen += len(entries); w.seen > maxListing {
		return errTooMany
	}

	var dirs, files []fs.DirEntry
	for _, e := range entries {
		switch {
		case e.IsDir(), e.Type()&fs.ModeSymlink != 0 && isDir(filepath.Join(dir, e.Name())):
			if w.prune == nil || !w.prune(e.Name()) {
				dirs = append(dirs, e)
			}
		default:
			files = append(files, e)
		}
	}

	w.visit(dir, dirs, files)
	for _, e := range dirs {
		if e.IsDir() || w.follow {
			if err := w.enterDir(filepath.Join(dir, e.Name()), above); err != nil {
				return err
			}
		}
	}

	return nil
}

func isDir(p string) bool {
	fi, err := os.Stat(p)
	return err == nil && fi.IsDir()
}

func isEmptyDir(dir string) bool {
	d, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer d.Close()
	names, _ := d.Readdirnames(1)
	return len(names) == 0
}

// realpath returns p with all links resolved (Python's os.path.realpath). It does not change parts
// of the path that do not exist.
func realpath(p string) string {
	p = filepath.Clean(p)
	rest := ""
	for cur := p; ; {
		if real, err := filepath.EvalSymlinks(cur); err == nil {
			return filepath.Join(real, rest)
		}
		up := filepath.Dir(cur)
		if up == cur {
			return p
		}
		rest = filepath.Join(filepath.Base(cur), rest)
		cur = up
	}
}
