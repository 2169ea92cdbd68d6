// Package versioned keeps a small file that several machines change on a shared volume, without
// locks. To replace version 5, a machine first creates the file's successor under the name
// ".NAME.after-5-HASH" (the hash of version 5's content) by link(2), which succeeds on only one
// machine. Only then does that machine replace the file itself. A machine that finds such a
// successor continues from the successor. So a machine that stops between the two steps blocks
// nobody and loses nothing.
//
// Locks of a network file system are no alternative: GlusterFS (10.3) may never answer a lock
// request that is being sent when a node vanishes.
//
// Version numbers grow and are part of the content. If a machine is stopped during a rename for so
// long that the successors of its version have been removed (keepFor, keepVersions), its rename
// puts an older version back. A caller that remembers the newest version that it has seen notices
// that.
package versioned

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"saltern/internal/durable"
)

// ErrConflict means that another machine has replaced the version first.
var ErrConflict = errors.New("another version has come first")

// ErrContent means that a content has no readable version: it is damaged, or belongs to another
// file. [File.SetAside] moves such a file out of the way.
var ErrContent = errors.New("the content cannot be understood")

const (
	keepVersions = 64
	keepFor      = 10 * time.Minute
	maxChain     = 4096 // how many successors a reader follows
)

// File is a file that several machines change without locks. Its methods block as long as the file
// system does. They are safe for concurrent use by any number of processes.
type File struct {
	Path  string
	Mode  os.FileMode
	Limit int64 // largest size of the file, in bytes
	// Version checks a content and returns its version, which is above 0.
	Version func(content []byte) (uint64, error)
}

// successor returns the path of the successor of a version. Version 0, a missing file, has no
// content.
func (f File) successor(version uint64, content []byte) string {
	name := f.prefix() + strconv.FormatUint(version, 10)
	if version > 0 {
		name += fmt.Sprintf("-%.8x", sha256.Sum256(content))
	}
	return filepath.Join(filepath.Dir(f.Path), name)
}

func (f File) prefix() string {
	return "." + strings.TrimPrefix(filepath.Base(f.Path), ".") + ".after-"
}

// IsSuccessor reports whether a file called sibling is a successor of the file called name, or a
// temporary file of one. Whoever puts an older content back in place of a file must first move all
// its successors away.
func IsSuccessor(name, sibling string) bool {
	return strings.HasPrefix(sibling, File{Path: name}.prefix())
}

// Read returns the newest content and its version, or [fs.ErrNotExist] if there is none.
func (f File) Read() ([]byte, uint64, error) {
	b, v, err := f.newest()
	if err == nil && v == 0 {
		err = &fs.PathError{Op: "read", Path: f.Path, Err: fs.ErrNotExist}
	}
	return b, v, err
}

// newest works like Read, but returns version 0 for a missing file.
func (f File) newest() ([]byte, uint64, error) {
	b, v, err := f.readOne(f.Path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, 0, err
	}

	behind := false
	for range maxChain {
		next, n, err := f.readOne(f.successor(v, b))
		if errors.Is(err, fs.ErrNotExist) {
			if behind { // the machine that created the successor has not replaced the file
				_ = f.replaceContent(b)
			}
			return b, v, nil
		}

		if err == nil && n <= v {
			err = fmt.Errorf("%s has version %d", f.successor(v, b), n)
		}

		if err != nil {
			return nil, 0, err
		}

		b = next
		v = n
		behind = true
	}

	return nil, 0, fmt.Errorf("%s: more than %d versions follow", f.Path, maxChain)
}

// readOne reads a file and its version. It returns 0 and [fs.ErrNotExist] if the file is missing.
func (f File) readOne(path string) (b []byte, v uint64, err error) {
	err = durable.RetryStale(2*time.Second, func() (err error) {
		b, err = durable.Read(path, f.Limit)
		return err
	})
	if err != nil {
		return nil, 0, err
	}

	if v, err = f.Version(b); err == nil && v == 0 {
		err = errors.New("it has no version")
	}

	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w: %w", path, ErrContent, err)
	}

	return b, v, nil
}

// Write replaces version expect (0: there is no file) by content, whose version must be higher. It
// returns when the change is durable. If expect is not the newest version, the error is
// [ErrConflict]. After any other error the change may or may not have happened.
func (f File) Write(expect uint64, content []byte) error {
	v, err := f.Version(content)
	if err == nil && v <= expect {
		err = fmt.Errorf("version %d cannot follow %d", v, expect)
	}

	if err == nil && int64(len(content)) > f.Limit {
		err = fmt.Errorf("%d bytes are too many", len(content))
	}

	if err != nil {
		return fmt.Errorf("change %s: %w", f.Path, err)
	}

	if err := f.writeVersion(expect, content); err != nil {
		return fmt.Errorf("change %s: %w", f.Path, err)
	}

	return nil
}

func (f File) writeVersion(expect uint64, content []byte) error {
	old, now, err := f.newest()
	if err != nil {
		return err
	}
	if now != expect {
		return ErrConflict
	}

	tmp, err := f.temporary(content)
	if err != nil {
		return err
	}

	claim := f.successor(expect, old)
	if err := os.Link(tmp, claim); err != nil && !isSameFile(tmp, claim) {
		_ = os.Remove(tmp)
		if errors.Is(err, fs.ErrExist) {
			return ErrConflict
		}
		return err
	}

	// Remove tmp, and replace the file by another inode, so that no inode has two names for long:
	// copies of the volume have less to agree about.
	_ = os.Remove(tmp)
	switch b, now, err := f.readOne(f.Path); {
	case err == nil && now > expect && !bytes.Equal(b, content) && !f.followed(content):
		// The file has a newer content that does not come from our successor: this call took so
		// long that its successor has been removed as old.
		_ = os.Remove(claim)
		return ErrConflict
	case err == nil && now > expect: // a reader has already put our successor in place
	default:
		if err := f.replaceContent(content); err != nil {
			return err
		}
	}

	if err := durable.SyncDir(filepath.Dir(f.Path)); err != nil {
		return err
	}

	f.removeOld(expect)
	return nil
}

// Create creates a file with this content unless the name exists, and reports whether it did.
// Nobody ever sees an incomplete file. If several machines try at once, only one succeeds.
func Create(path string, content []byte, mode os.FileMode) (made bool, err error) {
	f := File{Path: path, Mode: mode}
	tmp, err := f.temporary(content)
	if err != nil {
		return false, err
	}
	defer os.Remove(tmp)
	if err := os.Link(tmp, path); err != nil && !isSameFile(tmp, path) {
		if errors.Is(err, fs.ErrExist) {
			return false, nil
		}
		return false, err
	}
	return true, durable.SyncDir(filepath.Dir(path))
}

// Mkdir creates a directory unless it exists. Several machines may call it at once. It creates the
// directory under another name and renames it, because after two mkdir of one name the copies of a
// GlusterFS volume may disagree.
func Mkdir(path string, mode os.FileMode) error {
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		return nil
	}

	tmp, err := os.MkdirTemp(filepath.Dir(path), "."+filepath.Base(path)+".new-*")
	if err != nil {
		return err
	}

	err = os.Chmod(tmp, mode)
	if err == nil {
		if err = os.Rename(tmp, path); err == nil {
			return durable.SyncDir(filepath.Dir(path))
		}
	}

	_ = os.Remove(tmp)
	if st, serr := os.Stat(path); serr == nil && st.IsDir() {
		return nil // another machine has created the directory
	}

	return err
}

// followed reports whether content has a successor file.
func (f File) followed(content []byte) bool {
	v, err := f.Version(content)
	if err == nil {
		_, err = os.Lstat(f.successor(v, content))
	}
	return err == nil
}

// isSameFile reports whether two names belong to one file. If so, link(2) has succeeded although
// the call returned an error.
func isSameFile(a, b string) bool {
	x, err := os.Lstat(a)
	if err != nil {
		return false
	}
	y, err := os.Lstat(b)
	return err == nil && os.SameFile(x, y)
}

// replaceContent replaces the file by a new one with this content.
func (f File) replaceContent(content []byte) error {
	tmp, err := f.temporary(content)
	if err == nil {
		if err = os.Rename(tmp, f.Path); err != nil {
			_ = os.Remove(tmp)
		}
	}
	return err
}

// temporary writes and syncs a temporary file with this content, and returns its path.
func (f File) temporary(content []byte) (path string, err error) {
	t, err := os.CreateTemp(filepath.Dir(f.Path), f.prefix()+"tmp-*")
	if err != nil {
		return "", err
	}
	err = durable.Fill(t, content, f.Mode)
	if err == nil {
		err = t.Sync()
	}
	if err = errors.Join(err, t.Close()); err != nil {
		_ = os.Remove(t.Name())
		return "", err
	}
	return t.Name(), nil
}

// sweepEvery: old successors are removed at every sweepEvery-th version.
const sweepEvery = 16

// removeOld removes successors that are no longer needed, and temporary files that crashes have
// left.
func (f File) removeOld(version uint64) {
	if version%sweepEvery != 0 {
		return
	}

	d, err := os.Open(filepath.Dir(f.Path))
	if err != nil {
		return
	}

	names, err := d.Readdirnames(1 << 16)
	_ = d.Close()
	if err != nil && len(names) == 0 {
		return
	}

	names = slices.DeleteFunc(names, func(n string) bool { return !strings.HasPrefix(n, f.prefix()) })
	for _, name := range names {
		number, _, _ := strings.Cut(strings.TrimPrefix(name, f.prefix()), "-")
		n, err := strconv.ParseUint(number, 10, 64)
		if err == nil && n+keepVersions > version {
			continue
		}

		path := filepath.Join(filepath.Dir(f.Path), name)
		if st, err := os.Lstat(path); err == nil && time.Since(st.ModTime()) > keepFor {
			_ = os.Remove(path)
		}
	}
}
