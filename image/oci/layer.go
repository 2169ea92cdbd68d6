package oci

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// Entry is one file of a layer: a folder, a link or a regular file, depending on the type in Mode.
// The runtime creates missing folders, so only folders whose owner or mode matters need an entry.
type Entry struct {
	Path   string      // in the image, without a slash at its beginning
	Mode   fs.FileMode // type: fs.ModeDir, fs.ModeSymlink or 0 (regular); with permissions and fs.ModeSticky
	Owner  int         // number of the user and of the group
	Link   string      // target of a link
	Data   []byte      // content of a regular file
	Source string      // in place of Data: path of a file on this machine, whose content is copied
}

// header returns an entry's header in a tar archive. size is the size of a regular file's content.
func (e Entry) header(size int64, at time.Time) (*tar.Header, error) {
	if e.Path == "" || path.Clean("/"+e.Path) != "/"+e.Path {
		return nil, fmt.Errorf("oci: %q is no path in an image", e.Path)
	}

	h := &tar.Header{
		Name:    e.Path,
		Mode:    int64(e.Mode.Perm()),
		Uid:     e.Owner,
		Gid:     e.Owner,
		ModTime: at,
	}

	if e.Mode&fs.ModeSticky != 0 {
		h.Mode |= 0o1000
	}

	switch e.Mode.Type() {
	case fs.ModeDir:
		h.Typeflag, h.Name = tar.TypeDir, e.Path+"/"
	case fs.ModeSymlink:
		h.Typeflag, h.Linkname = tar.TypeSymlink, e.Link
	case 0:
		h.Typeflag, h.Size = tar.TypeReg, size
	default:
		return nil, fmt.Errorf("oci: %s: a layer has no files of type %s here", e.Path, e.Mode.Type())
	}

	return h, nil
}

// openFile opens the content of a regular file and returns its size.
func (e Entry) openFile() (io.ReadCloser, int64, error) {
	if e.Source == "" {
		return io.NopCloser(bytes.NewReader(e.Data)), int64(len(e.Data)), nil
	}
	f, err := os.Open(e.Source)
	if err != nil {
		return nil, 0, fmt.Errorf("oci: %w", err)
	}
	fi, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(fmt.Errorf("oci: %w", err), f.Close())
	}
	return f, fi.Size(), nil
}

// writeLayer writes entries as a compressed tar archive. It returns the digest of the uncompressed
// archive, which the image's configuration names (diff_ids).
func writeLayer(w io.Writer, entries []Entry, at time.Time) (diffID string, err error) {
	entries = slices.Clone(entries)
	slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
	sum := sha256.New()
	z := gzip.NewWriter(w) // gzip's header contains neither name nor time
	t := tar.NewWriter(io.MultiWriter(z, sum))
	for i, e := range entries {
		if i > 0 && entries[i-1].Path == e.Path {
			return "", fmt.Errorf("oci: %s is there twice", e.Path)
		}
		if err := e.writeTo(t, at); err != nil {
			return "", err
		}
	}

	if err := errors.Join(t.Close(), z.Close()); err != nil {
		return "", fmt.Errorf("oci: write a layer: %w", err)
	}

	return digest(sum), nil
}

func (e Entry) writeTo(t *tar.Writer, at time.Time) error {
	r, size, err := e.openFile()
	if err != nil {
		return err
	}
	defer r.Close()

	h, err := e.header(size, at)
	if err != nil {
		return err
	}

	if err := t.WriteHeader(h); err != nil {
		return fmt.Errorf("oci: %s: %w", e.Path, err)
	}
	if h.Typeflag != tar.TypeReg {
		return nil
	}

	if _, err := io.Copy(t, r); err != nil {
		return fmt.Errorf("oci: %s: %w", e.Path, err)
	}

	return nil
}

func digest(h hash.Hash) string { return fmt.Sprintf("sha256:%x", h.Sum(nil)) }
