package storage

import (
	"cmp"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// With a stage nothing of the copy is touched before all that has changed lies on this
// node's disk. Then it comes into place in the order in which it was changed, so that
// a reader sees a file that refers to another one no sooner than that other one.

// foundDir is a directory of the source.
type foundDir struct {
	rel  string
	like fs.FileInfo
}

// stagedFile is a file or link that waits to come into place.
type stagedFile struct {
	from, to string
	changed  int64 // at the source, ns
}

// temp names a place for a new version of a file or link.
func (w *walk) temp() (string, error) {
	if w.spec.Stage == "" {
		return tempFile, nil
	}
	if w.stagedNames == 0 {
		if err := w.dest.RemoveAll(w.spec.Stage); err != nil {
			return "", err
		}
		if err := w.dest.Mkdir(w.spec.Stage, 0o700); err != nil {
			return "", err
		}
	}
	w.stagedNames++
	return filepath.Join(w.spec.Stage, strconv.Itoa(w.stagedNames)), nil
}

// put makes tmp the new dst, with a stage later.
func (w *walk) put(tmp, dst string, changed int64) error {
	if w.spec.Stage == "" {
		return w.replaceBy(tmp, dst)
	}
	w.staged = append(w.staged, stagedFile{tmp, dst, changed})
	return nil
}

// place puts what was staged into place.
func (w *walk) place() error { return w.placeEach(func(stagedFile) {}) }

// placeEach is place; placed is told of each file.
func (w *walk) placeEach(placed func(stagedFile)) error {
	for _, d := range w.dirs {
		if err := w.makeDir(d.rel, d.like); err != nil {
			return err
		}
	}

	slices.SortStableFunc(w.staged, func(a, b stagedFile) int { return cmp.Compare(a.changed, b.changed) })
	for _, f := range w.staged {
		if err := w.replaceBy(f.from, f.to); err != nil {
			return err
		}
		placed(f)
	}

	return nil
}

// unstage removes what is left of the stage; what cannot be removed is when it is used next.
func (w *walk) unstage() {
	switch {
	case w.spec.Stage == "":
		_ = w.dest.Remove(tempFile)
	case w.stagedNames > 0:
		_ = w.dest.RemoveAll(w.spec.Stage)
	}
}

// lookAbove lists the directories above the trees. The kernel believes what it knows
// of a name for a second, and takes it anew from a list.
func (w *walk) lookAbove() {
	if !w.whole {
		return
	}
	looked := map[string]bool{}
	for _, t := range w.spec.Trees {
		for up := filepath.Dir(t); !looked[up]; up = filepath.Dir(up) {
			looked[up] = true
			_, _ = os.ReadDir(filepath.Join(w.spec.Source, up)) // what fails here fails again below
		}
	}
}
