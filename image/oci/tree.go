package oci

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Tree returns the files of a folder as entries of a layer. It omits special rights (setuid,
// setgid), and devices, sockets and pipes, which the runtime creates. The group number of each file
// becomes its owner's number.
func Tree(dir string) ([]Entry, error) {
	var out []Entry
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}

		fi, err := d.Info()
		if err != nil {
			return err
		}

		name, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}

		e := Entry{Path: filepath.ToSlash(name), Mode: fi.Mode() & (fs.ModeType | fs.ModePerm | fs.ModeSticky)}
		if st, ok := fi.Sys().(*syscall.Stat_t); ok {
			e.Owner = int(st.Uid)
		}

		switch fi.Mode().Type() {
		case fs.ModeDir:
		case fs.ModeSymlink:
			if e.Link, err = os.Readlink(p); err != nil {
				return err
			}
		case 0:
			e.Source = p
		default:
			return nil
		}

		out = append(out, e)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("oci: read the tree: %w", err)
	}

	return out, nil
}
