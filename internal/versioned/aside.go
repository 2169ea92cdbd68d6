package versioned

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"saltern/internal/durable"
)

// SetAside renames the file, and each successor, whose content cannot be decoded ([ErrContent]), to
// NAME.broken-TIME-NUMBER beside it, and returns the new names. It replaces a broken file in one
// step by the newest intact successor, so that no reader finds the file missing. That successor has
// the version of the broken file or the previous version, because every version begins as a
// successor.
//
// Several machines may call SetAside at once. It does not rename a file that it cannot read for
// another reason: that file may be the newest.
func (f File) SetAside() (aside []string, err error) {
	broken, newest, err := f.findBroken()
	for _, path := range broken {
		if err != nil {
			break
		}

		var name string
		if path == f.Path && newest != nil {
			name, err = f.replaceBroken(newest)
		} else {
			name, err = f.moveBroken(path)
		}

		if name != "" {
			aside = append(aside, name)
		}
	}

	if err != nil {
		return aside, fmt.Errorf("set a broken %s aside: %w", f.Path, err)
	}

	return aside, durable.SyncDir(filepath.Dir(f.Path))
}

// findBroken returns the broken paths, the file last, and the content of the newest intact
// successor. newest is nil if there is none.
func (f File) findBroken() (broken []string, newest []byte, err error) {
	siblings, err := f.successors()
	if err != nil {
		return nil, nil, err
	}

	highest := uint64(0)
	for _, path := range append(siblings, f.Path) {
		content, version, err := f.readOne(path)
		switch {
		case errors.Is(err, ErrContent):
			broken = append(broken, path)
		case err != nil && !errors.Is(err, os.ErrNotExist):
			return nil, nil, err
		case err == nil && path != f.Path && version > highest:
			newest, highest = content, version
		}
	}

	return broken, newest, nil
}

// replaceBroken keeps the broken file under another name, and writes content to the file. If
// another machine did so a moment ago, the file or a successor of it may already have a newer
// version than content.
func (f File) replaceBroken(content []byte) (name string, err error) {
	name = f.freeName()
	if err := os.Link(f.Path, name); err != nil {
		return "", err
	}
	if err := f.replaceContent(content); err != nil {
		_ = os.Remove(name) // each try that fails would otherwise leave a file
		return "", err
	}
	return name, nil
}

// moveBroken renames a broken file. If another machine has just replaced it by an intact file,
// moveBroken renames that file back.
func (f File) moveBroken(path string) (name string, err error) {
	name = f.freeName()
	if err := os.Rename(path, name); err != nil {
		if errors.Is(err, os.ErrNotExist) { // another machine has already renamed the file
			err = nil
		}
		return "", err
	}

	if _, _, err := f.readOne(name); err != nil {
		return name, nil
	}

	if err := os.Link(name, path); err != nil && !errors.Is(err, os.ErrExist) {
		return name, err
	}

	return "", os.Remove(name)
}

// freeName returns an unused name for a broken file.
func (f File) freeName() string {
	for number := 0; ; number++ {
		name := fmt.Sprintf("%s.broken-%d-%d", f.Path, time.Now().Unix(), number)
		if _, err := os.Lstat(name); err != nil {
			return name
		}
	}
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
