package storage

import (
	"cmp"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// With a stage, a pass first brings all changes to this node's disk. Then it puts the files into
// place in the order in which they were changed. So a reader never sees a file before the files to
// which it refers.

// foundDir is a directory of the source.
type foundDir struct {
	rel  string
	like fs.FileInfo
}

// stagedFile is a file or link in the stage.
type stagedFile struct {
	from, to string
	changed  int64 // change time at the source, ns
}

// tempPath returns the path where a new version of a file or link is written.
func (w *walk) tempPath() (string, error) {
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

// replaceOrStage renames tmp to dst. If there is a stage, it only records the two names, and
// placeEach renames the file later.
func (w *walk) replaceOrStage(tmp, dst string, changed int64) error {
	if w.spec.Stage == "" {
		return w.replaceBy(tmp, dst)
	}
	w.staged = append(w.staged, stagedFile{tmp, dst, changed})
	return nil
}

// placeStaged moves the staged files into place.
func (w *walk) placeStaged() error { return w.placeEach(func(stagedFile) {}) }

// placeEach moves the staged files into place, and calls placed after each file.
func (w *walk) placeEach(placed func(stagedFile)) error {
	for _, d := range w.stagedDirs {
		w.noteProgress()
		if err := w.makeDir(d.rel, d.like); err != nil {
			return err
		}
	}

	slices.SortStableFunc(w.staged, func(a, b stagedFile) int { return cmp.Compare(a.changed, b.changed) })
	for _, f := range w.staged {
		w.noteProgress()
		if err := w.replaceBy(f.from, f.to); err != nil {
			return err
		}
		placed(f)
	}

	return nil
}

// unstage removes the files that this pass left in the stage. If a pass was killed, the next use of
// the stage removes its files.
func (w *walk) unstage() {
	switch {
	case w.spec.Stage == "":
		_ = w.dest.Remove(tempFile)
	case w.stagedNames > 0:
		_ = w.dest.RemoveAll(w.spec.Stage)
	}
}

// listParents lists the directories above the trees before a complete pass: a list refreshes the
// names that the kernel otherwise caches for a second.
func (w *walk) listParents() {
	if !w.listAll {
		return
	}
	looked := map[string]bool{}
	for _, t := range w.spec.Trees {
		for up := filepath.Dir(t); !looked[up]; up = filepath.Dir(up) {
			looked[up] = true
			_, _ = os.ReadDir(filepath.Join(w.spec.Source, up)) // the copying of the tree reports the fault
		}
	}
}
