package versioned

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"saltern/durable"
)

// SetAside renames the file, and each successor, whose content cannot be understood
// ([ErrContent]) to NAME.broken-TIME-NUMBER beside it, and returns these names. The newest
// successor that is whole becomes the file, if the file went: since every version is made as a
// successor first, that is the version of the broken file, or the one before.
//
// Several machines may do so at once. What cannot be read for another reason stays.
func (f File) SetAside() (broken []string, err error) {
	siblings, err := f.successors()
	if err != nil {
		return nil, fmt.Errorf("set a broken %s aside: %w", f.Path, err)
	}

	newest := struct {
		content []byte
		version uint64
	}{}
	for _, path := range append(siblings, f.Path) {
		content, version, err := f.one(path)
		switch {
		case errors.Is(err, ErrContent):
			aside := fmt.Sprintf("%s.broken-%d-%d", f.Path, time.Now().Unix(), len(broken))
			if err := os.Rename(path, aside); err != nil {
				return broken, fmt.Errorf("set a broken %s aside: %w", f.Path, err)
			}
			broken = append(broken, aside)
		case err == nil && version > newest.version:
			newest.content = content
			newest.version = version
		}
	}

	if newest.version > 0 {
		if _, err := os.Lstat(f.Path); errors.Is(err, os.ErrNotExist) {
			if err := f.put(newest.content); err != nil {
				return broken, fmt.Errorf("put version %d of %s back: %w", newest.version, f.Path, err)
			}
		}
	}
	return broken, durable.SyncDir(filepath.Dir(f.Path))
}

// successors returns the paths of all successors that are there.
func (f File) successors() (paths []string, err error) {
	folder := filepath.Dir(f.Path)
	entries, err := os.ReadDir(folder)
	for _, entry := range entries {
		rest, ours := strings.CutPrefix(entry.Name(), f.prefix())
		if ours && !strings.HasPrefix(rest, "tmp-") {
			paths = append(paths, filepath.Join(folder, entry.Name()))
		}
	}
	return paths, err
}
