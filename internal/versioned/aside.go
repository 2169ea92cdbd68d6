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

// SetAside gives the file, and each successor, whose content cannot be understood
// ([ErrContent]) the name NAME.broken-TIME-NUMBER beside it, and returns these names. The newest
// successor that is whole takes the place of a broken file, at once: nobody finds that there is
// none. Since every version is made as a successor first, that is the version of the broken file,
// or the one before.
//
// Several machines may do so at once. Where something cannot be read for another reason, nothing
// is touched: it may be the newest.
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

// findBroken returns the paths of what is broken, the file last, and the content of the newest
// successor that is whole; nil: there is none.
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

// replaceBroken keeps the broken file under another name, and makes content the file's. Somebody
// else may have done so a moment ago: whatever is newer than content follows it.
func (f File) replaceBroken(content []byte) (name string, err error) {
	name = f.freeName()
	if err := os.Link(f.Path, name); err != nil {
		return "", err
	}
	if err := f.replaceContent(content); err != nil {
		_ = os.Remove(name) // or each try leaves one more
		return "", err
	}
	return name, nil
}

// moveBroken renames what is broken. What somebody else has put there a moment ago, and is
// whole, goes back.
func (f File) moveBroken(path string) (name string, err error) {
	name = f.freeName()
	if err := os.Rename(path, name); err != nil {
		if errors.Is(err, os.ErrNotExist) { // another machine was faster
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

// freeName returns a name for what is broken.
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
