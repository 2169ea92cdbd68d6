package oci

import (
	"archive/tar"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Archive writes a layout as one tar file (oci-archive), which podman load and skopeo read. The
// same layout and time give the same bytes.
func Archive(out, dir string, at time.Time) error {
	f, err := os.Create(out)
	if err != nil {
		return fmt.Errorf("oci: %w", err)
	}

	t := tar.NewWriter(f)
	err = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}

		name, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}

		e := Entry{Path: filepath.ToSlash(name), Mode: 0o644, Source: p}
		if d.IsDir() {
			e = Entry{Path: e.Path, Mode: fs.ModeDir | 0o755}
		}

		return e.writeTo(t, at)
	})
	if err := errors.Join(err, t.Close(), f.Close()); err != nil {
		return fmt.Errorf("oci: archive %s: %w", dir, err)
	}

	return nil
}
