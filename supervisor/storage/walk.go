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

func (w *walk) copyTree(rel string, depth int) error {
	if depth > mirrorMaxDepth {
		w.report.Skipped++
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
		w.stagedDirs = append(w.stagedDirs, foundDir{rel, fi})
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

	leave := w.openCopyDir(rel)
	defer leave()
	listed := time.Now()
	entries, err := readDir(src)
	if err != nil {
		return err
	}

	if len(entries) == 0 {
		w.emptyNow[rel] = emptied{fi.ModTime().UnixNano(), changeTime(fi), listed}
	}

	names := make([]string, 0, len(entries))
	for _, e := range entries {
		w.noteProgress()
		w.report.Files++
		if w.report.Files > mirrorMaxEntries || w.report.Bytes > mirrorMaxBytes {
			return fmt.Errorf("more than %d files or %d GiB: this is not copied", mirrorMaxEntries, mirrorMaxBytes>>30)
		}

		p := path.Join(rel, e.Name())
		if w.skip != nil && w.skip(p) || ownedByGPG(p) {
			continue
		}

		taken, err := w.copyEntry(p, e.Type(), depth)
		if hasVanished(err) {
			taken, err = w.retryEntry(p, depth)
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

// copyEntry copies one entry of a directory, and reports whether the copy now has the entry.
func (w *walk) copyEntry(p string, kind fs.FileMode, depth int) (taken bool, err error) {
	switch {
	case kind.IsDir():
		err = w.copyTree(p, depth+1)
	case kind&fs.ModeSymlink != 0:
		err = w.copyLink(p)
	case kind.IsRegular():
		err = w.copyFile(p)
	default:
		w.report.Skipped++
		return false, nil
	}
	return err == nil, err
}

// hasVanished reports whether err means that an entry was removed, or replaced, since it was
// listed.
func hasVanished(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESTALE) || errors.Is(err, unix.ENOTDIR)
}

// retryEntry lists the directory again and copies an entry that has changed since the first
// listing. taken reports whether the copy has the entry. If the entry changes once more, its copy
// keeps the earlier version until the next pass.
func (w *walk) retryEntry(p string, depth int) (taken bool, err error) {
	entries, err := readDir(filepath.Join(w.spec.Source, path.Dir(p)))
	if hasVanished(err) {
		return false, nil // the entry has vanished with its directory
	}
	if err != nil {
		return false, err
	}

	i := slices.IndexFunc(entries, func(e fs.DirEntry) bool { return e.Name() == path.Base(p) })
	if i < 0 {
		return false, nil
	}

	taken, err = w.copyEntry(p, entries[i].Type(), depth)
	if !hasVanished(err) {
		return taken, err
	}

	w.report.Changing++
	w.report.Example = p
	if k, known := w.known[p]; known {
		w.copiedNow[p] = k
	}

	return true, nil
}

// emptied describes a directory of the source that had no entry when it was listed.
type emptied struct {
	mtime, ctime int64 // ns
	listed       time.Time
}

// A new entry changes the times of its directory, with two exceptions: right after another change,
// and if the clock of the entry's node is behind, because the volume never sets times back. So each
// pass lists the directories that changed less than emptySettled ago, and every directory whose
// last listing is emptyAnyway old. Listing is expensive: it asks all bricks several times.
const (
	emptySettled = time.Minute
	emptyAnyway  = 30 * time.Second
)

// stillEmpty reports whether a directory that was empty has certainly not changed.
func (w *walk) stillEmpty(rel string, fi fs.FileInfo) bool {
	e, ok := w.emptyDirs[rel]
	now := time.Now()
	ok = ok && !w.listAll && fi.ModTime().UnixNano() == e.mtime && changeTime(fi) == e.ctime &&
		now.Sub(fi.ModTime()) > emptySettled && now.Sub(e.listed) < emptyAnyway
	if ok {
		w.emptyNow[rel] = e
	}
	return ok
}

// readDir lists a directory. If the directory was just replaced, GlusterFS sometimes fails with
// ESTALE; then readDir tries again.
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

// sameOwner sets the owner and mode of dst to those of like, or in the keyring to those that gpg
// accepts. rel is the path of dst in the tree. have describes dst; it may be nil: not known.
func (w *walk) sameOwner(dst, rel string, like, have fs.FileInfo) error {
	uid, gid, ok := fileOwner(like)
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
		if u, g, ok := fileOwner(have); ok && u == uid && g == gid && have.Mode() == mode {
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

func (w *walk) copyLink(rel string) error {
	src, dst := filepath.Join(w.spec.Source, rel), rel
	to, err := os.Readlink(src)
	if err != nil {
		return err
	}

	// An absolute link into the volume would make a reader of the copy hang with the volume.
	below, onVolume := strings.CutPrefix(to, w.spec.Source+"/")
	isCopied := onVolume && slices.ContainsFunc(w.spec.Trees, func(tree string) bool {
		return below == tree || strings.HasPrefix(below, tree+"/")
	})
	if isCopied {
		to = filepath.Join(w.spec.Dest, below)
	}

	if have, err := w.dest.Readlink(dst); err == nil && have == to {
		return nil
	}

	fi, err := os.Lstat(src)
	if err != nil {
		return err
	}

	tmp, err := w.tempPath()
	if err != nil {
		return err
	}

	_ = w.dest.Remove(tmp)
	if err := w.dest.Symlink(to, tmp); err != nil {
		return err
	}

	w.report.Copied++
	return w.replaceOrStage(tmp, dst, changeTime(fi))
}

// replaceBy renames tmp to dst, even if dst is a directory.
func (w *walk) replaceBy(tmp, dst string) error {
	err := w.dest.Rename(tmp, dst)
	if fi, lerr := w.dest.Lstat(dst); err != nil && lerr == nil && fi.IsDir() {
		if err = w.dest.RemoveAll(dst); err == nil {
			err = w.dest.Rename(tmp, dst)
		}
	}
	return err
}

func (w *walk) copyFile(rel string) error {
	src := filepath.Join(w.spec.Source, rel)
	if w.askEach {
		askAttributes(src)
	}

	fi, err := os.Lstat(src) // before the file is opened, because an open on the volume is expensive
	if err != nil {
		return err
	}

	k, known := w.known[rel]
	have, herr := w.statCopy(rel)
	intact := herr == nil && have.Mode().IsRegular() && known && have.Size() == k.Size &&
		have.ModTime().UnixNano() == k.Local
	unchanged := fi.Size() == k.Size && fi.ModTime().UnixNano() == k.MTime && changeTime(fi) == k.CTime
	if intact && unchanged && !k.readTooEarly(time.Now(), w.clockSpread) {
		w.copiedNow[rel] = k
		return w.sameOwner(rel, rel, fi, have)
	}

	times := readTimes
	if fi.Size() > readAgainMost {
		times = 1
	}

	for range times {
		whole, err := w.copyContent(rel, k, intact)
		if whole || err != nil {
			return err
		}
	}

	w.report.Changing++
	w.report.Example = rel
	if known && herr == nil { // keep the earlier version for now
		w.copiedNow[rel] = k
	}

	return nil
}

const (
	// readTimes is how often one pass tries to read a file that changes while it is read.
	readTimes = 3
	// readAgainMost is the size in bytes of the largest file that one pass tries again: larger
	// files also take long to write.
	readAgainMost = 64 << 20
)

// copyContent copies a file. whole reports whether the source stayed unchanged during the copy. k
// describes the earlier copy; intact reports whether that copy still matches k.
func (w *walk) copyContent(rel string, k copied, intact bool) (whole bool, err error) {
	f, fi, err := openRegular(filepath.Join(w.spec.Source, rel))
	if err != nil {
		return false, err
	}
	defer f.Close()

	forgetPages(f)
	tmp, err := w.tempPath()
	if err != nil {
		return false, err
	}

	opened := time.Now()
	hash, n, err := w.writeCopy(f, tmp, rel, fi)
	if err != nil {
		_ = w.dest.Remove(tmp)
		return false, err
	}

	after, err := f.Stat()
	if err != nil || n != fi.Size() || after.Size() != fi.Size() || after.ModTime() != fi.ModTime() {
		_ = w.dest.Remove(tmp)
		return false, nil
	}

	k.Size = fi.Size()
	k.MTime = fi.ModTime().UnixNano()
	k.CTime = changeTime(fi)
	k.Read = opened.UnixNano()
	if intact && k.Hash == hash {
		w.indexChanged = true
		_ = w.dest.Remove(tmp)
		w.copiedNow[rel] = k
		return true, w.sameOwner(rel, rel, fi, nil)
	}

	k.Hash = hash
	have, err := w.dest.Lstat(tmp)
	if err != nil {
		return false, err
	}

	k.Local = have.ModTime().UnixNano()
	if err := w.replaceOrStage(tmp, rel, k.CTime); err != nil {
		return false, err
	}

	w.copiedNow[rel] = k
	w.report.Copied++
	w.report.Bytes += n
	return true, nil
}

// askAttributes forces the kernel to ask the volume for the attributes of a file, which the kernel
// otherwise caches for a second. A list of the directory contains the attributes of its files.
// While copies heal, it omits those of some files (afr_readdir_transform_entries in GlusterFS's
// xlators/cluster/afr/src/afr-dir-read.c).
func askAttributes(path string) {
	var st unix.Statx_t
	// An error here shows again in the Lstat that follows.
	_ = unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_STATX_FORCE_SYNC, unix.STATX_BASIC_STATS, &st)
}

// forgetPages drops the cached contents of a file from the kernel. GlusterFS keeps them
// from one open to the next while it knows of no change (fuse_fd_cbk in
// xlators/mount/fuse/src/fuse-bridge.c), and it may learn of a change too late.
func forgetPages(f *os.File) {
	_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) // only advice: a refusal changes nothing
}

// openRegular opens a regular file. If path is no longer a regular file, it fails with
// fs.ErrNotExist.
func openRegular(path string) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	fi, err := f.Stat()
	if err == nil && fi.Mode().IsRegular() {
		return f, fi, nil
	}
	_ = f.Close() // read only: an error of Close loses nothing
	return nil, nil, errors.Join(err, fs.ErrNotExist)
}

// settleFor is the difference between nodes' clocks that may stay undetected. Callers add known
// differences to it.
const settleFor = skewLimit

// readTooEarly reports whether a file must be read again, because a change after the last reading
// may have left the same times. The volume uses the clock of the node that makes a change, and
// never sets times back. So a change by a node whose clock is behind may leave the times of the
// previous change. That is possible for as long after that change as the clocks differ. apart is
// the known difference of the clocks.
func (k copied) readTooEarly(now time.Time, apart time.Duration) bool {
	settled := time.Duration(k.Read - k.CTime)
	clockPutBack := k.Read > now.UnixNano() // this node's clock was put back, so Read is not comparable with now
	return settled < settleFor+apart || clockPutBack
}

// writeCopy copies f to tmp with the mode, owner and time of like. rel is the path of f in the
// tree. It returns the hash and the number of bytes of the content.
func (w *walk) writeCopy(f *os.File, tmp, rel string, like fs.FileInfo) (hash string, n int64, err error) {
	_ = w.dest.Remove(tmp)
	watch, err := w.watchRoom()
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
	n, err = io.Copy(stepping{io.MultiWriter(watch.Writer(out), sum), w.copier}, io.LimitReader(f, mirrorMaxBytes))
	if err == nil {
		err = w.sameOwner(tmp, rel, like, nil)
	}

	err = errors.Join(err, out.Close())
	if err == nil {
		err = w.dest.Chtimes(tmp, like.ModTime(), like.ModTime())
	}

	return hex.EncodeToString(sum.Sum(nil)), n, err
}

// watchRoom returns the watch that keeps room free on the disk of the copy. The first write starts
// the watch: a pass that writes nothing needs none.
func (w *walk) watchRoom() (*room.Watch, error) {
	if w.watch != nil {
		return w.watch, nil
	}
	watch, err := room.Guard(w.spec.Dest, mirrorKeep())
	if err == nil {
		w.watch = watch
	}
	return watch, err
}

// mirrorKeep returns how much room a copy leaves free on the disk. It is less than usual, because
// without this copy a node cannot serve while the volume does not answer.
func mirrorKeep() room.Keep { return room.Keep{Bytes: 64 << 20, Files: 2000} }

// copyDir is an open directory of the copy.
type copyDir struct {
	rel  string
	root *os.Root // nil: the copy does not have this directory
}

// openCopyDir opens a directory of the copy for statCopy. The caller calls leave to close the
// directory. openCopyDir opens only directories, because opening a pipe would wait for a writer.
func (w *walk) openCopyDir(rel string) (leave func()) {
	above := w.openDir
	w.openDir = copyDir{rel: rel}
	if fi, err := w.dest.Lstat(rel); err == nil && fi.IsDir() {
		if root, err := w.dest.OpenRoot(rel); err == nil {
			w.openDir.root = root
		}
	}

	return func() {
		if w.openDir.root != nil {
			_ = w.openDir.root.Close() // read only: an error of Close loses nothing
		}
		w.openDir = above
	}
}

// statCopy is Lstat in the copy. It resolves the name from the open directory: os.Root opens a
// longer path directory by directory, which took most of this node's time in a pass.
func (w *walk) statCopy(rel string) (fs.FileInfo, error) {
	if w.openDir.root != nil && w.openDir.rel == path.Dir(rel) {
		return w.openDir.root.Lstat(path.Base(rel))
	}
	return w.dest.Lstat(rel)
}

// readCopy lists a directory of the copy. The directory's name may be any bytes; fs.ReadDir would
// refuse invalid UTF-8.
func (w *walk) readCopy(rel string) ([]fs.DirEntry, error) {
	dir, err := w.dest.Open(rel)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.ReadDir(-1)
}

// removeExtra removes from the copy what the source does not have.
func (w *walk) removeExtra(rel string) error {
	entries, err := w.readCopy(rel)
	if err != nil {
		return err
	}

	keep := map[string]bool{}
	for _, n := range w.names[rel] {
		keep[n] = true
	}

	for _, e := range entries {
		w.noteProgress()
		p := path.Join(rel, e.Name())
		if !keep[e.Name()] {
			if _, ours := w.known[p]; w.spec.OnlyOwn && !ours ||
				ownedByGPG(p) && !strings.HasPrefix(e.Name(), tempPrefix) {
				continue
			}

			if err := w.dest.RemoveAll(p); err != nil {
				return err
			}

			w.report.Removed++
			continue
		}

		if _, listed := w.names[p]; listed && e.IsDir() {
			if err := w.removeExtra(p); err != nil {
				return err
			}
		}
	}

	return nil
}
