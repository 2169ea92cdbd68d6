package storage

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"saltern/internal/durable"
	"saltern/internal/room"

	"golang.org/x/sys/unix"
)

func (w *walk) dir(rel string, depth int) error {
	if depth > mirrorMaxDepth {
		w.r.Skipped++
		return nil
	}

	src := filepath.Join(w.spec.Source, rel)
	fi, err := os.Lstat(src)
	if err != nil {
		return err
	}
	if !fi.IsDir() {
		return fmt.Errorf("%s: %w", src, unix.ENOTDIR)
	}

	if w.spec.Stage != "" {
		w.dirs = append(w.dirs, foundDir{rel, fi})
	} else if err := w.makeDir(rel, fi); err != nil {
		return err
	}

	if w.names == nil {
		w.names = map[string][]string{}
	}

	if w.stillEmpty(rel, fi) {
		w.names[rel] = nil
		return nil
	}

	leave := w.enter(rel)
	defer leave()
	listed := time.Now()
	entries, err := readDir(src)
	if err != nil {
		return err
	}

	if len(entries) == 0 {
		w.vacant[rel] = emptied{fi.ModTime().UnixNano(), ctime(fi), listed}
	}

	names := make([]string, 0, len(entries))
	for _, e := range entries {
		w.r.Files++
		if w.r.Files > mirrorMaxEntries || w.r.Bytes > mirrorMaxBytes {
			return fmt.Errorf("more than %d files or %d GiB: this is not copied", mirrorMaxEntries, mirrorMaxBytes>>30)
		}

		p := path.Join(rel, e.Name())
		if w.skip != nil && w.skip(p) || foreign(p) {
			continue
		}

		taken, err := w.entry(p, e.Type(), depth)
		if changed(err) {
			taken, err = w.again(p, depth)
		}

		if err != nil {
			return err
		}

		if taken {
			names = append(names, e.Name())
		}
	}

	w.names[rel] = names
	return nil
}

// entry copies one entry of a directory, and reports whether the copy has it.
func (w *walk) entry(p string, kind fs.FileMode, depth int) (taken bool, err error) {
	switch {
	case kind.IsDir():
		err = w.dir(p, depth+1)
	case kind&fs.ModeSymlink != 0:
		err = w.link(p)
	case kind.IsRegular():
		err = w.file(p)
	default:
		w.r.Skipped++
		return false, nil
	}
	return err == nil, err
}

// changed reports whether an entry was removed, or replaced, since it was listed.
func changed(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESTALE) || errors.Is(err, unix.ENOTDIR)
}

// again copies an entry that has changed since it was listed, when a new list has it
// still. What changes once more stays as it is in the copy until the next pass.
func (w *walk) again(p string, depth int) (taken bool, err error) {
	entries, err := readDir(filepath.Join(w.spec.Source, path.Dir(p)))
	if changed(err) {
		return false, nil // with its directory
	}
	if err != nil {
		return false, err
	}

	i := slices.IndexFunc(entries, func(e fs.DirEntry) bool { return e.Name() == path.Base(p) })
	if i < 0 {
		return false, nil
	}

	taken, err = w.entry(p, entries[i].Type(), depth)
	if !changed(err) {
		return taken, err
	}

	w.r.Changing++
	w.r.Example = p
	if k, known := w.known[p]; known {
		w.next[p] = k
	}

	return true, nil
}

// emptied is a directory of the source that had no entry.
type emptied struct {
	mtime, ctime int64     // ns
	listed       time.Time // when
}

// The times of a directory tell of a new entry, but for one that comes at once after
// another change, or from a node whose clock is behind: the volume never puts them
// back. So what has changed of late is listed in each pass, and all now and then.
// Listing asks all bricks several times.
const (
	emptySettled = time.Minute
	emptyAnyway  = 30 * time.Second
)

// stillEmpty reports whether a directory that was empty has not changed since.
func (w *walk) stillEmpty(rel string, fi fs.FileInfo) bool {
	e, ok := w.empty[rel]
	now := time.Now()
	ok = ok && !w.whole && fi.ModTime().UnixNano() == e.mtime && ctime(fi) == e.ctime &&
		now.Sub(fi.ModTime()) > emptySettled && now.Sub(e.listed) < emptyAnyway
	if ok {
		w.vacant[rel] = e
	}
	return ok
}

// readDir lists a directory. GlusterFS sometimes says ESTALE for one that was
// just replaced.
func readDir(p string) (entries []fs.DirEntry, err error) {
	err = durable.RetryStale(50*time.Millisecond, func() (err error) {
		entries, err = os.ReadDir(p)
		return err
	})
	return entries, err
}

func (w *walk) makeDir(dst string, like fs.FileInfo) error {
	have, err := w.dest.Lstat(dst)
	if err == nil && !have.IsDir() {
		if err := w.dest.Remove(dst); err != nil {
			return err
		}
		err = fs.ErrNotExist
	}

	if errors.Is(err, fs.ErrNotExist) {
		if err := w.dest.MkdirAll(filepath.Dir(dst), 0o755); err != nil {
			return err
		}
		if err := w.dest.Mkdir(dst, 0o700); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}

	return w.sameOwner(dst, dst, like, have)
}

// sameOwner gives dst the owner and mode of like, and what is in the keyring those
// that gpg takes. rel is its place in the tree; have is what dst is, nil: not known.
func (w *walk) sameOwner(dst, rel string, like, have fs.FileInfo) error {
	uid, gid, ok := owner(like)
	if !ok {
		return nil
	}

	mode := like.Mode()
	if _, in := keyPart(rel); in {
		mode &^= 0o077
		if w.spec.Keys != nil {
			uid, gid = w.spec.Keys.UID, w.spec.Keys.GID
		}
	}

	if have != nil {
		if u, g, ok := owner(have); ok && u == uid && g == gid && have.Mode() == mode {
			return nil
		}
	}

	if os.Geteuid() == 0 {
		if err := w.dest.Lchown(dst, uid, gid); err != nil {
			return err
		}
	}

	return w.dest.Chmod(dst, mode.Perm())
}

func (w *walk) link(rel string) error {
	src, dst := filepath.Join(w.spec.Source, rel), rel
	to, err := os.Readlink(src)
	if err != nil {
		return err
	}

	// An absolute link into the volume would make the copy hang with it.
	if in, ok := strings.CutPrefix(to, w.spec.Source+
		"/"); ok && slices.ContainsFunc(w.spec.Trees,
		func(t string) bool { return in == t || strings.HasPrefix(in, t+"/") }) {
		to = filepath.Join(w.spec.Dest, in)
	}

	if have, err := w.dest.Readlink(dst); err == nil && have == to {
		return nil
	}

	fi, err := os.Lstat(src)
	if err != nil {
		return err
	}

	tmp, err := w.temp()
	if err != nil {
		return err
	}

	_ = w.dest.Remove(tmp)
	if err := w.dest.Symlink(to, tmp); err != nil {
		return err
	}

	w.r.Copied++
	return w.put(tmp, dst, ctime(fi))
}

// replaceBy renames tmp to dst, also where a directory was.
func (w *walk) replaceBy(tmp, dst string) error {
	err := w.dest.Rename(tmp, dst)
	if fi, lerr := w.dest.Lstat(dst); err != nil && lerr == nil && fi.IsDir() {
		if err = w.dest.RemoveAll(dst); err == nil {
			err = w.dest.Rename(tmp, dst)
		}
	}
	return err
}

func (w *walk) file(rel string) error {
	src := filepath.Join(w.spec.Source, rel)
	if w.each {
		askAttributes(src)
	}

	fi, err := os.Lstat(src) // first: an open is dear on a volume
	if err != nil {
		return err
	}

	k, known := w.known[rel]
	have, herr := w.lookAtCopy(rel)
	intact := herr == nil && have.Mode().IsRegular() && known && have.Size() == k.Size &&
		have.ModTime().UnixNano() == k.Local
	unchanged := fi.Size() == k.Size && fi.ModTime().UnixNano() == k.MTime && ctime(fi) == k.CTime
	if intact && unchanged && !k.early(time.Now(), w.apart) {
		w.next[rel] = k
		return w.sameOwner(rel, rel, fi, have)
	}

	times := readTimes
	if fi.Size() > readAgainMost {
		times = 1
	}

	for range times {
		whole, err := w.read(rel, k, intact)
		if whole || err != nil {
			return err
		}
	}

	w.r.Changing++
	w.r.Example = rel
	if known && herr == nil { // the old one stays for now
		w.next[rel] = k
	}

	return nil
}

const (
	// readTimes is how often a file is read in one pass, at most, because it changes meanwhile.
	readTimes = 3
	// readAgainMost is up to which size: a larger one takes long to write as well.
	readAgainMost = 64 << 20
)

// read copies a file, and reports whether it stayed as it was meanwhile. k is what is
// known of the copy, which is intact or not.
func (w *walk) read(rel string, k copied, intact bool) (whole bool, err error) {
	f, fi, err := openRegular(filepath.Join(w.spec.Source, rel))
	if err != nil {
		return false, err
	}
	defer f.Close()

	forgetPages(f)
	tmp, err := w.temp()
	if err != nil {
		return false, err
	}

	opened := time.Now()
	hash, n, err := w.fetch(f, tmp, rel, fi)
	if err != nil {
		_ = w.dest.Remove(tmp)
		return false, err
	}

	after, err := f.Stat()
	if err != nil || n != fi.Size() || after.Size() != fi.Size() || after.ModTime() != fi.ModTime() {
		_ = w.dest.Remove(tmp)
		return false, nil
	}

	k.Size, k.MTime, k.CTime = fi.Size(), fi.ModTime().UnixNano(), ctime(fi)
	k.Read = opened.UnixNano()
	if intact && k.Hash == hash {
		w.touched = true
		_ = w.dest.Remove(tmp)
		w.next[rel] = k
		return true, w.sameOwner(rel, rel, fi, nil)
	}

	k.Hash = hash
	have, err := w.dest.Lstat(tmp)
	if err != nil {
		return false, err
	}

	k.Local = have.ModTime().UnixNano()
	if err := w.put(tmp, rel, k.CTime); err != nil {
		return false, err
	}

	w.next[rel] = k
	w.r.Copied++
	w.r.Bytes += n
	return true, nil
}

// askAttributes has the kernel ask the volume for the attributes of a file, which it
// otherwise believes for a second. A list of the directory brings them, but while copies
// are healed not those of all files (afr_readdir_transform_entries in GlusterFS's
// xlators/cluster/afr/src/afr-dir-read.c).
func askAttributes(path string) {
	var st unix.Statx_t
	// what fails here fails again in Lstat
	_ = unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_STATX_FORCE_SYNC, unix.STATX_BASIC_STATS, &st)
}

// forgetPages has the kernel forget what it knows of the contents of a file. GlusterFS lets
// it keep that from one open to the next while it knows of no change (fuse_fd_cbk in
// xlators/mount/fuse/src/fuse-bridge.c), and it may hear of a change too late.
func forgetPages(f *os.File) {
	_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) // advice: nothing follows from a refusal
}

// openRegular opens a file that may have become something else meanwhile.
func openRegular(path string) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	fi, err := f.Stat()
	if err == nil && fi.Mode().IsRegular() {
		return f, fi, nil
	}
	_ = f.Close() // it was only read
	return nil, nil, errors.Join(err, fs.ErrNotExist)
}

// earlyFor covers how far apart the clocks of nodes are although nobody notices; what is
// noticed is added.
const earlyFor = skewLimit

// early reports whether a file was read so soon after its last change that its times may be
// those of a later one, too, so that it has to be read again. The volume takes the times of a
// change from the node that makes it, and never puts them back: a change by a node whose clock
// is behind leaves those of the change before, for as long as the clocks differ.
// apart is how far clocks are known to differ.
func (k copied) early(now time.Time, apart time.Duration) bool {
	settled := time.Duration(k.Read - k.CTime)
	clockPutBack := k.Read > now.UnixNano() // this node's: when it was read is not known
	return settled < earlyFor+apart || clockPutBack
}

// fetch copies f to tmp with the mode, owner and time of like; rel is its place in the tree.
func (w *walk) fetch(f *os.File, tmp, rel string, like fs.FileInfo) (hash string, n int64, err error) {
	_ = w.dest.Remove(tmp)
	watch, err := w.room()
	if err != nil {
		return "", 0, err
	}

	if err := watch.File(); err != nil {
		return "", 0, err
	}

	out, err := w.dest.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", 0, err
	}

	sum := sha256.New()
	n, err = io.Copy(io.MultiWriter(watch.Writer(out), sum), io.LimitReader(f, mirrorMaxBytes))
	if err == nil {
		err = w.sameOwner(tmp, rel, like, nil)
	}

	if cerr := out.Close(); err == nil {
		err = cerr
	}

	if err == nil {
		err = w.dest.Chtimes(tmp, like.ModTime(), like.ModTime())
	}

	return hex.EncodeToString(sum.Sum(nil)), n, err
}

// room begins to watch the room of the copy when the first file is written: a pass that
// writes nothing, or only removes, needs none.
func (w *walk) room() (*room.Watch, error) {
	if w.watch != nil {
		return w.watch, nil
	}
	watch, err := room.Guard(w.spec.Dest, mirrorKeep())
	if err == nil {
		w.watch = watch
	}
	return watch, err
}

// mirrorKeep is what a copy leaves free: less than is usual, since without the files for
// minions a node cannot serve while the volume is away.
func mirrorKeep() room.Keep { return room.Keep{Bytes: 64 << 20, Files: 2000} }

// copyDir is a directory of the copy.
type copyDir struct {
	rel  string
	root *os.Root // nil: the copy does not have it
}

// enter opens a directory of the copy until leave is called, for lookAtCopy. What else may lie there
// is not opened: a pipe would wait for a writer.
func (w *walk) enter(rel string) (leave func()) {
	above := w.here
	w.here = copyDir{rel: rel}
	if fi, err := w.dest.Lstat(rel); err == nil && fi.IsDir() {
		if root, err := w.dest.OpenRoot(rel); err == nil {
			w.here.root = root
		}
	}

	return func() {
		if w.here.root != nil {
			_ = w.here.root.Close() // it was only read
		}
		w.here = above
	}
}

// lookAtCopy is Lstat in the copy. From its directory that is one step: a path is opened
// directory by directory, which for each file was most of what a pass costs on this node.
func (w *walk) lookAtCopy(rel string) (fs.FileInfo, error) {
	if w.here.root != nil && w.here.rel == path.Dir(rel) {
		return w.here.root.Lstat(path.Base(rel))
	}
	return w.dest.Lstat(rel)
}

// readCopy lists a directory of the copy. Its name may be any bytes, which fs.ReadDir refuses.
func (w *walk) readCopy(rel string) ([]fs.DirEntry, error) {
	dir, err := w.dest.Open(rel)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.ReadDir(-1)
}

// sweep removes from the copy what the source does not have.
func (w *walk) sweep(rel string) error {
	entries, err := w.readCopy(rel)
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
			if _, ours := w.known[p]; w.spec.OnlyOwn && !ours ||
				foreign(p) && !strings.HasPrefix(e.Name(), tempPrefix) {
				continue
			}

			if err := w.dest.RemoveAll(p); err != nil {
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
