package storage

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// copier makes one directory tree like another, file by file. Each file comes
// into place in one step, so that a reader sees the old or the new one. What
// was copied is remembered by content: a file that was only touched is read
// but not written again, and a copy that somebody changed is mended.
type copier struct {
	spec  mirrorSpec
	known map[string]copied      // by path relative to both roots; nil: not loaded
	skip  func(path string) bool // what is left out; nil: nothing
}

// copied is what is known about one file.
type copied struct {
	Size  int64  `json:"s"`
	MTime int64  `json:"m"` // of the source, ns
	CTime int64  `json:"c"` // of the source, ns
	Hash  string `json:"h"`
	Local int64  `json:"l"` // modification time of the copy, ns
}

const indexFile = ".index.json"

func (s mirrorSpec) index() string {
	if s.Index != "" {
		return s.Index
	}
	return filepath.Join(s.Dest, indexFile)
}

func newCopier(spec mirrorSpec) *copier { return &copier{spec: spec} }

// pass makes the trees equal once. What it could not read stays as it was, and
// the pass fails; nothing is removed unless the whole listing was complete.
func (c *copier) pass() (mirrorReport, error) {
	var r mirrorReport
	if err := c.spec.check(); err != nil {
		return r, err
	}
	if err := c.load(); err != nil {
		return r, err
	}
	w := &walk{copier: c, r: &r, next: map[string]copied{}}
	for _, t := range c.spec.Trees {
		if err := w.dir(t, 0); err != nil {
			return r, err
		}
	}
	if err := c.spec.check(); err != nil { // it may have gone meanwhile: then nothing may be removed
		return r, err
	}
	for _, t := range c.spec.Trees {
		if err := w.sweep(t); err != nil {
			return r, err
		}
	}
	c.known = w.next
	if r.Copied+r.Removed > 0 || w.touched {
		return r, c.save()
	}
	return r, nil
}

// walk is one pass.
type walk struct {
	*copier
	r       *mirrorReport
	next    map[string]copied
	touched bool                // the index changed although no file did
	names   map[string][]string // of each directory of the source
}

func (w *walk) dir(rel string, depth int) error {
	if depth > mirrorMaxDepth {
		w.r.Skipped++
		return nil
	}
	src, dst := filepath.Join(w.spec.Source, rel), filepath.Join(w.spec.Dest, rel)
	fi, err := os.Lstat(src)
	if err != nil {
		return err
	}
	if !fi.IsDir() {
		return fmt.Errorf("%s is not a directory", src)
	}
	if err := makeCopyDir(dst, fi); err != nil {
		return err
	}
	entries, err := readDir(src)
	if err != nil {
		return err
	}
	if w.names == nil {
		w.names = map[string][]string{}
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		if w.r.Files++; w.r.Files > mirrorMaxEntries || w.r.Bytes > mirrorMaxBytes {
			return fmt.Errorf("more than %d files or %d GiB: this is not copied", mirrorMaxEntries, mirrorMaxBytes>>30)
		}
		p := path.Join(rel, e.Name())
		switch kind := e.Type(); {
		case w.skip != nil && w.skip(p):
			continue
		case kind.IsDir():
			err = w.dir(p, depth+1)
		case kind&fs.ModeSymlink != 0:
			err = w.link(p)
		case kind.IsRegular():
			err = w.file(p)
		default:
			w.r.Skipped++
			continue
		}
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESTALE) {
			continue // removed or replaced since the listing
		}
		if err != nil {
			return err
		}
		names = append(names, e.Name())
	}
	w.names[rel] = names
	return nil
}

// readDir lists a directory. GlusterFS sometimes says ESTALE for one that was
// just replaced.
func readDir(p string) (entries []fs.DirEntry, err error) {
	for range 3 {
		if entries, err = os.ReadDir(p); !errors.Is(err, unix.ESTALE) {
			return entries, err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return entries, err
}

func makeCopyDir(dst string, like fs.FileInfo) error {
	have, err := os.Lstat(dst)
	if err == nil && !have.IsDir() {
		if err := os.Remove(dst); err != nil {
			return err
		}
		err = fs.ErrNotExist
	}
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(dst), 0o755); err != nil {
			return err
		}
		if err := os.Mkdir(dst, 0o700); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	return sameOwner(dst, like, have)
}

// sameOwner gives dst the owner and mode of like; have is what dst is, nil:
// not known.
func sameOwner(dst string, like, have fs.FileInfo) error {
	uid, gid, ok := owner(like)
	if !ok {
		return nil
	}
	if have != nil {
		if u, g, ok := owner(have); ok && u == uid && g == gid && have.Mode() == like.Mode() {
			return nil
		}
	}
	if os.Geteuid() == 0 {
		if err := os.Lchown(dst, uid, gid); err != nil {
			return err
		}
	}
	return os.Chmod(dst, like.Mode().Perm())
}

func (w *walk) link(rel string) error {
	src, dst := filepath.Join(w.spec.Source, rel), filepath.Join(w.spec.Dest, rel)
	to, err := os.Readlink(src)
	if err != nil {
		return err
	}
	// An absolute link into the volume would make the copy hang with it.
	if in, ok := strings.CutPrefix(to, w.spec.Source+"/"); ok && slices.ContainsFunc(w.spec.Trees, func(t string) bool { return in == t || strings.HasPrefix(in, t+"/") }) {
		to = filepath.Join(w.spec.Dest, in)
	}
	if have, err := os.Readlink(dst); err == nil && have == to {
		return nil
	}
	tmp := filepath.Join(filepath.Dir(dst), tempPrefix+filepath.Base(dst))
	_ = os.Remove(tmp)
	if err := os.Symlink(to, tmp); err != nil {
		return err
	}
	w.r.Copied++
	return replaceBy(tmp, dst)
}

// replaceBy renames tmp to dst, also where a directory was.
func replaceBy(tmp, dst string) error {
	err := os.Rename(tmp, dst)
	if fi, lerr := os.Lstat(dst); err != nil && lerr == nil && fi.IsDir() {
		if err = os.RemoveAll(dst); err == nil {
			err = os.Rename(tmp, dst)
		}
	}
	return err
}

// tempPrefix marks files that are being written; they are swept away.
const tempPrefix = ".mirror-"

func (w *walk) file(rel string) error {
	src, dst := filepath.Join(w.spec.Source, rel), filepath.Join(w.spec.Dest, rel)
	fi, err := os.Lstat(src) // first: an open is dear on a volume
	if err != nil {
		return err
	}
	k, known := w.known[rel]
	have, herr := os.Lstat(dst)
	intact := herr == nil && have.Mode().IsRegular() && known && have.Size() == k.Size && have.ModTime().UnixNano() == k.Local
	if intact && fi.Size() == k.Size && fi.ModTime().UnixNano() == k.MTime && ctime(fi) == k.CTime {
		w.next[rel] = k
		return sameOwner(dst, fi, have)
	}
	f, err := os.OpenFile(src, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if fi, err = f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return errors.Join(err, fs.ErrNotExist) // replaced by something else
	}
	tmp := filepath.Join(filepath.Dir(dst), tempPrefix+filepath.Base(dst))
	hash, n, err := w.fetch(f, tmp, fi)
	if err != nil {
		_ = os.Remove(tmp)
		return err
	}
	after, err := f.Stat()
	if err != nil || n != fi.Size() || after.Size() != fi.Size() || after.ModTime() != fi.ModTime() {
		_ = os.Remove(tmp)
		w.r.Changing++
		if known && herr == nil { // the old one stays for now
			w.next[rel] = k
		}
		return nil
	}
	k.Size, k.MTime, k.CTime = fi.Size(), fi.ModTime().UnixNano(), ctime(fi)
	if intact && k.Hash == hash {
		w.touched = true
		_ = os.Remove(tmp)
		w.next[rel] = k
		return sameOwner(dst, fi, have)
	}
	k.Hash = hash
	if err := replaceBy(tmp, dst); err != nil {
		return err
	}
	if have, err = os.Lstat(dst); err != nil {
		return err
	}
	k.Local = have.ModTime().UnixNano()
	w.next[rel] = k
	w.r.Copied++
	w.r.Bytes += n
	return nil
}

// fetch copies f to tmp with the mode, owner and time of like.
func (w *walk) fetch(f *os.File, tmp string, like fs.FileInfo) (hash string, n int64, err error) {
	_ = os.Remove(tmp)
	out, err := os.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", 0, err
	}
	sum := sha256.New()
	n, err = io.Copy(io.MultiWriter(out, sum), io.LimitReader(f, mirrorMaxBytes))
	if err == nil {
		err = sameOwner(tmp, like, nil)
	}
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Chtimes(tmp, like.ModTime(), like.ModTime())
	}
	return hex.EncodeToString(sum.Sum(nil)), n, err
}

// sweep removes from the copy what the source does not have.
func (w *walk) sweep(rel string) error {
	entries, err := os.ReadDir(filepath.Join(w.spec.Dest, rel))
	if err != nil {
		return err
	}
	keep := map[string]bool{}
	for _, n := range w.names[rel] {
		keep[n] = true
	}
	for _, e := range entries {
		p := path.Join(rel, e.Name())
		if !keep[e.Name()] {
			if _, ours := w.known[p]; w.spec.OnlyOwn && !ours {
				continue
			}
			if err := os.RemoveAll(filepath.Join(w.spec.Dest, p)); err != nil {
				return err
			}
			w.r.Removed++
			continue
		}
		if _, listed := w.names[p]; listed && e.IsDir() {
			if err := w.sweep(p); err != nil {
				return err
			}
		}
	}
	return nil
}

// verify reads every file that was copied and compares it with what was read at
// the source.
func (c *copier) verify() error {
	for _, rel := range slices.Sorted(maps.Keys(c.known)) {
		f, err := os.Open(filepath.Join(c.spec.Dest, rel))
		if err != nil {
			return fmt.Errorf("verify: %w", err)
		}
		sum := sha256.New()
		_, err = io.Copy(sum, f)
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return fmt.Errorf("verify: %w", err)
		}
		if hex.EncodeToString(sum.Sum(nil)) != c.known[rel].Hash {
			return fmt.Errorf("verify: %s on the volume differs from what was copied", rel)
		}
	}
	return nil
}

// load reads the index once. Without a usable one everything is copied again.
func (c *copier) load() error {
	if c.known != nil {
		return nil
	}
	c.known = map[string]copied{}
	f, err := os.Open(c.spec.index())
	if errors.Is(err, fs.ErrNotExist) {
		return os.MkdirAll(filepath.Dir(c.spec.index()), 0o755)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if json.NewDecoder(io.LimitReader(f, 256<<20)).Decode(&c.known) != nil || c.known == nil {
		c.known = map[string]copied{}
	}
	return nil
}

func (c *copier) save() error {
	b, err := json.Marshal(c.known)
	if err != nil {
		return err
	}
	tmp := c.spec.index() + ".new"
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, c.spec.index())
}
