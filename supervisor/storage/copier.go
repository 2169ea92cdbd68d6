package storage

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"saltern/internal/durable"

	"saltern/internal/room"
)

// copier makes one directory tree equal to another, file by file. It replaces each file in one
// step, so that a reader sees either the old version or the new one. It stores a hash of each file
// that it has copied. If the times of a file have changed, it reads the file again, but writes the
// copy only if the content differs. It restores copied files that somebody has changed.
type copier struct {
	spec        mirrorSpec
	source      mountRoot
	known       map[string]copied      // files of the copy, by path relative to both roots; nil: not loaded
	emptyDirs   map[string]emptied     // directories of the source that the pass before found empty
	skip        func(path string) bool // reports whether a path is left out; nil: none is
	listAll     bool                   // the next pass lists all directories again
	askEach     bool                   // the next pass asks the volume for each file's attributes
	clockSpread time.Duration          // largest known difference between the clocks of the nodes
	step        func()                 // called whenever a pass has made progress; may be nil
}

// copied describes one file of the copy.
type copied struct {
	Size  int64  `json:"s"`
	MTime int64  `json:"m"` // modification time of the source, ns
	CTime int64  `json:"c"` // change time of the source, ns
	Hash  string `json:"h"`
	Local int64  `json:"l"` // modification time of the copy, ns
	// Read is the time at which the source was read, by this node's clock, in ns. Zero: not known.
	// See readTooEarly.
	Read int64 `json:"r,omitempty"`
}

// stageDir is the value of mirrorSpec.Stage for a node's mirror.
const stageDir = ".staging"

const indexFile = ".index.json"

func (s mirrorSpec) indexPath() string {
	if s.Index != "" {
		return s.Index
	}
	return filepath.Join(s.Dest, indexFile)
}

func newCopier(spec mirrorSpec) *copier {
	return &copier{spec: spec, source: mountRoot{path: spec.Source}}
}

// noteProgress reports that the pass has made progress.
func (c *copier) noteProgress() {
	if c.step != nil {
		c.step()
	}
}

// stepping is a writer that reports progress of the pass with each write.
type stepping struct {
	to     io.Writer
	copier *copier
}

func (s stepping) Write(b []byte) (int, error) {
	s.copier.noteProgress()
	return s.to.Write(b)
}

// checkSource refuses a source that is not a mounted volume, unless Any is set.
func (c *copier) checkSource() error {
	if c.spec.Any {
		return nil
	}
	return c.source.requireVolume()
}

// runPass makes the trees equal once. If it cannot read an entry of the source, the pass fails and
// the copy of that entry stays unchanged. It removes files only after a complete listing.
func (c *copier) runPass() (r mirrorReport, err error) {
	if err := errors.Join(c.spec.validate(), c.checkSource()); err != nil {
		return r, err
	}

	if err := c.loadIndex(); err != nil {
		return r, err
	}

	if err := os.MkdirAll(c.spec.Dest, 0o755); err != nil {
		return r, err
	}

	dest, err := os.OpenRoot(c.spec.Dest)
	if err != nil {
		return r, err
	}
	defer dest.Close()

	w := &walk{
		copier:    c,
		dest:      dest,
		report:    &r,
		copiedNow: map[string]copied{},
		emptyNow:  map[string]emptied{},
	}
	defer w.unstage()

	w.listParents()
	for _, t := range c.spec.Trees {
		if err := w.copyTree(t, 0); err != nil && !(isOptional(t) && errors.Is(err, fs.ErrNotExist)) {
			return r, err
		}
	}

	if err := c.checkSource(); err != nil { // if the volume was unmounted during the walk, nothing may be removed
		return r, err
	}

	if err := w.placeStaged(); err != nil {
		return r, err
	}

	for _, t := range c.spec.Trees {
		if err := w.removeExtra(t); err != nil && !(isOptional(t) && errors.Is(err, fs.ErrNotExist)) {
			return r, err
		}
	}

	c.known, c.emptyDirs = w.copiedNow, w.emptyNow
	if r.Copied+r.Removed > 0 || w.indexChanged {
		return r, c.saveIndex()
	}

	return r, nil
}

// walk is the state of one pass.
type walk struct {
	*copier
	// dest is the root of the copy. Its folders belong to the master's account, as those of the
	// source do. os.Root prevents that root follows a link of that account out of the copy.
	dest         *os.Root
	report       *mirrorReport
	copiedNow    map[string]copied
	emptyNow     map[string]emptied  // directories that this pass finds empty; the next pass has them as emptyDirs
	indexChanged bool                // the index must be saved, even if no file changed
	watch        *room.Watch         // stops the copy before its disk is full; nil until the first write
	names        map[string][]string // names in each directory of the source
	openDir      copyDir             // the counterpart of the directory being listed
	stagedDirs   []foundDir          // directories to create, if there is a stage
	staged       []stagedFile        // files to put into place, if there is a stage
	stagedNames  int                 // number of names used in the stage
}

// tempPrefix is the prefix of the names of files that are being written. Each pass removes such
// files of earlier passes.
const tempPrefix = ".mirror-"

// tempFile is the file being written when there is no stage. It is beside the trees, so that its
// name cannot equal a name in the trees and cannot grow too long.
const tempFile = tempPrefix + "new"

// verify reads every copied file again and compares it with the hash of the source's content.
func (c *copier) verify() error {
	for _, rel := range slices.Sorted(maps.Keys(c.known)) {
		c.noteProgress()
		f, err := os.Open(filepath.Join(c.spec.Dest, rel))
		if err != nil {
			return fmt.Errorf("verify: %w", err)
		}

		sum := sha256.New()
		_, err = io.Copy(stepping{sum, c}, f)
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("verify: %w", err)
		}
		if hex.EncodeToString(sum.Sum(nil)) != c.known[rel].Hash {
			return fmt.Errorf("verify: %s on the volume differs from what was copied", rel)
		}
	}

	return nil
}

// loadIndex reads the index once. Without a usable index the copier copies everything again.
func (c *copier) loadIndex() error {
	if c.known != nil {
		return nil
	}

	c.known = map[string]copied{}
	f, err := os.Open(c.spec.indexPath())
	if errors.Is(err, fs.ErrNotExist) {
		return os.MkdirAll(filepath.Dir(c.spec.indexPath()), 0o755)
	}
	if err != nil {
		return err
	}
	defer f.Close()

	if json.NewDecoder(io.LimitReader(f, 256<<20)).Decode(&c.known) != nil || c.known == nil {
		c.known = map[string]copied{}
	}

	return nil
}

func (c *copier) saveIndex() error {
	b, err := json.Marshal(c.known)
	if err != nil {
		return err
	}
	return durable.Swap(c.spec.indexPath(), b, 0o600)
}
