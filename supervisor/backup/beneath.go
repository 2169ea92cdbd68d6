package backup

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"saltern/internal/room"
)

// folder is an open directory below one that only root can write to. The folders on the path belong
// to the master's account, which could replace any of them by a link while root works there. So
// beneath opens each folder by its name in the open parent. It follows links only in a folder that
// only root, or this process's account, can change.
type folder struct {
	fd   int
	path string
}

// beneath opens the folder rel below base. base itself may be a link.
func beneath(base, rel string) (folder, error) {
	fd, err := unix.Open(base, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return folder{}, &fs.PathError{Op: "open", Path: base, Err: err}
	}

	f := folder{fd, base}
	for _, name := range strings.Split(filepath.ToSlash(filepath.Clean(rel)), "/") {
		if name == "." {
			continue
		}

		next, err := f.openChild(name)
		f.Close()
		if err != nil {
			return folder{}, err
		}

		f = next
	}

	return f, nil
}

// Close closes the folder.
func (f folder) Close() { _ = unix.Close(f.fd) }

func (f folder) pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: filepath.Join(f.path, name), Err: err}
}

func (f folder) openChild(name string) (folder, error) {
	flags := unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC
	if !f.isProtected() {
		flags |= unix.O_NOFOLLOW
	}
	fd, err := unix.Openat(f.fd, name, flags, 0)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
		return folder{}, fmt.Errorf("%s is not a directory, or a link: "+
			"root works on none in a folder of the master's; remove it",
			filepath.Join(f.path, name))
	}
	if err != nil {
		return folder{}, f.pathError("open", name, err)
	}
	return folder{fd, filepath.Join(f.path, name)}, nil
}

// isProtected reports whether only root, or this process's account, can change the folder.
func (f folder) isProtected() bool {
	var st unix.Stat_t
	return unix.Fstat(f.fd, &st) == nil && (st.Uid == 0 || int(st.Uid) == os.Geteuid()) && st.Mode&0o022 == 0
}

// asRoot opens the folder as an [os.Root].
func (f folder) asRoot() (*os.Root, error) { return os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", f.fd)) }

// openFile opens a regular file for reading.
func (f folder) openFile(name string) (*os.File, error) {
	fd, err := unix.Openat(f.fd, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, f.pathError("open", name, err)
	}

	file := os.NewFile(uintptr(fd), filepath.Join(f.path, name))
	fi, err := file.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", file.Name())
	}

	if err != nil {
		_ = file.Close()
		return nil, err
	}

	return file, nil
}

// readKey reads a key file. It follows one link to another file in the same folder, because masters
// create master.pem as such a link.
func (f folder) readKey(name string) ([]byte, error) {
	to := make([]byte, 256)
	if n, err := unix.Readlinkat(f.fd, name, to); err == nil {
		name = filepath.Base(string(to[:n]))
	}
	file, err := f.openFile(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, 64<<10))
}

// lstat returns the file status of name without following a link.
func (f folder) lstat(name string) (st unix.Stat_t, err error) {
	if err := unix.Fstatat(f.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return st, f.pathError("stat", name, err)
	}
	return st, nil
}

// makeDir creates a folder with its owner. If uid is -1, the owner is the account of this process.
// makeDir does not change a folder that exists.
func (f folder) makeDir(name string, mode fs.FileMode, uid, gid int) error {
	err := unix.Mkdirat(f.fd, name, 0o700)
	if errors.Is(err, unix.EEXIST) {
		d, err := f.openChild(name)
		if err == nil {
			d.Close()
		}
		return err
	}

	if err != nil {
		return f.pathError("make directory", name, err)
	}

	d, err := f.openChild(name)
	if err != nil {
		return err
	}
	defer d.Close()

	self := fmt.Sprintf("/proc/self/fd/%d", d.fd)
	if err := os.Chmod(self, mode); err != nil {
		return err
	}
	if uid < 0 {
		return nil
	}

	return os.Chown(self, uid, gid)
}

// moveIn moves the file at the path source into the folder as name, and replaces an existing file.
// Only root can write to source. If source is on another file system, moveIn copies the file.
func (f folder) moveIn(source, name string) error {
	err := unix.Renameat(unix.AT_FDCWD, source, f.fd, name)
	if !errors.Is(err, unix.EXDEV) {
		if err != nil {
			return f.pathError("move to", name, err)
		}
		return nil
	}

	in, err := os.Open(source)
	if err != nil {
		return err
	}
	defer in.Close()

	if fi, err := in.Stat(); err != nil {
		return err
	} else if err := room.Check(fmt.Sprintf("/proc/self/fd/%d", f.fd), fi.Size(), 1, room.Usual()); err != nil {
		return fmt.Errorf("copy to %s: %w", f.path, err)
	}

	tmp := restoringPrefix + name
	_ = unix.Unlinkat(f.fd, tmp, 0)
	fd, err := unix.Openat(f.fd, tmp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return f.pathError("create", tmp, err)
	}

	err = copyTo(os.NewFile(uintptr(fd), tmp), in)
	if err == nil {
		if err = unix.Renameat(f.fd, tmp, f.fd, name); err != nil {
			err = f.pathError("move to", name, err)
		}
	}
	if err != nil {
		_ = unix.Unlinkat(f.fd, tmp, 0)
		return err
	}

	return os.Remove(source)
}

// entries returns what is in the folder, by name.
func (f folder) entries() ([]fs.DirEntry, error) {
	root, err := f.asRoot()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return fs.ReadDir(root.FS(), ".")
}

// restoringPrefix begins the names of files that moveIn is copying.
const restoringPrefix = ".restoring-"

// removeRestoring removes the copies that killed restores have left. The caller must have the lock of the storage.
func (f folder) removeRestoring() error {
	entries, err := f.entries()
	if err != nil {
		return fmt.Errorf("look for what a restore has left: %w", err)
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), restoringPrefix) {
			_ = unix.Unlinkat(f.fd, entry.Name(), 0) // best effort: it only takes room
		}
	}
	return nil
}

// moveOut moves name out of the folder to the path target, to which only root can write.
func (f folder) moveOut(name, target string) error {
	err := unix.Renameat(f.fd, name, unix.AT_FDCWD, target)
	if !errors.Is(err, unix.EXDEV) {
		if err != nil {
			return f.pathError("move", name, err)
		}
		return nil
	}

	in, err := f.openFile(name)
	if err != nil {
		return err
	}
	defer in.Close()

	out, err := os.OpenFile(target, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}

	if err := copyTo(out, in); err != nil {
		return err
	}

	if err := unix.Unlinkat(f.fd, name, 0); err != nil {
		return f.pathError("remove", name, err)
	}

	return nil
}

// copyTo copies content, mode and owner of src to dst. Then it syncs and closes dst.
func copyTo(dst, src *os.File) error {
	_, err := io.Copy(dst, src)
	if err == nil {
		err = copyOwner(dst, src)
	}
	if err == nil {
		err = dst.Sync()
	}
	return errors.Join(err, dst.Close())
}

// copyOwner copies the mode and, as root, the owner.
func copyOwner(out, in *os.File) error {
	fi, err := in.Stat()
	if err != nil {
		return err
	}

	if err := out.Chmod(fi.Mode().Perm()); err != nil {
		return err
	}

	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 {
		return nil
	}

	return out.Chown(int(st.Uid), int(st.Gid))
}
