// Package tarball writes the tar archives that hold a disk for delivery: OVAs and boxes. Equal
// files always give an equal archive.
package tarball

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"time"
)

// Member is a file in an archive.
type Member struct {
	Name   string
	Size   int64 // number of bytes of Reader
	Reader io.Reader
}

// Write writes the members to the file out, in their order and all with the time modified. After an
// error, out is unchanged.
func Write(out string, members []Member, modified time.Time) error {
	part := out + ".part"
	f, err := os.Create(part)
	if err != nil {
		return err
	}
	defer os.Remove(part) // does nothing after the rename

	t := tar.NewWriter(f)
	for _, m := range members {
		err = errors.Join(err, t.WriteHeader(&tar.Header{
			Name:    m.Name,
			Size:    m.Size,
			Mode:    0o644,
			ModTime: modified,
			Format:  tar.FormatUSTAR,
		}))
		if err == nil {
			_, err = io.Copy(t, m.Reader)
		}
	}

	if err = errors.Join(err, t.Close(), f.Close()); err != nil {
		return err
	}
	return os.Rename(part, out)
}
