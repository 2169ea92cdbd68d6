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

// copier makes one directory tree like another, file by file. Each file comes
// into place in one step, so that a reader sees the old or the new one. What
// was copied is remembered by content: a file that was only touched is read
// but not written again, and a copy that somebody changed is fixed.
type copier struct {
	spec        mirrorSpec
	source      mountRoot
	known       map[string]copied      // by path relative to both roots; nil: not loaded
	emptyDirs   map[string]emptied     // directories of the source without an entry, in the pass before
	skip        func(path string) bool // reports what is left out; nil: nothing
	listAll     bool                   // the next pass lists all directories again
	askEach     bool                   // the next pass asks the volume for each file's attributes
	clockSpread time.Duration          // how far clocks of nodes are known to differ
	step        func()                 // called whenever a pass has got on; nil: nobody wants to know
}

// copied describes one file of the copy.
type copied struct {
	Size  int64  `json:"s"`
	MTime int64  `json:"m"` // of the source, ns
	CTime int64  `json:"c"` // of the source, ns
	Hash  string `json:"h"`
	Local int64  `json:"l"` // modification time of the copy, ns
	// Read is when it was read, by this node's clock, ns; zero: not known. See readTooEarly.
	Read int64 `json:"r,omitempty"`
}

// stageDir is the Stage of a mirror.
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

// gotOn reports that a pass does not stand still.
func (c *copier) gotOn() {
	if c.step != nil {
		c.step()
	}
}

// stepping reports with each write that a pass gets on.
type stepping struct {
	to     io.Writer
	copier *copier
}

func (s stepping) Write(b []byte) (int, error) {
	s.copier.gotOn()
	return s.to.Write(b)
}

// checkSource refuses a source that is no mounted volume, unless Any is set.
func (c *copier) checkSource() error {
	if c.spec.Any {
		return nil
	}
	return c.source.requireVolume()
}

// runPass makes the trees equal once. If it cannot read something, that stays as it
// was and the pass fails. It removes files only after a complete listing.
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

	if err := c.checkSource(); err != nil { // it may have gone meanwhile: then nothing may be removed
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

// walk is one pass.
type walk struct {
	*copier
	// dest is the copy. Folders in it belong to the master's account, as at the
	// source: a link that it puts there must not lead root out of the copy.
	dest         *os.Root
	report       *mirrorReport
	copiedNow    map[string]copied
	emptyNow     map[string]emptied  // becomes emptyDirs
	indexChanged bool                // the index changed, even if no file did
	watch        *room.Watch         // bounds what is written; nil until the first write
	names        map[string][]string // of each directory of the source
	openDir      copyDir             // the counterpart of the directory being listed
	stagedDirs   []foundDir          // with a stage: directories to create
	staged       []stagedFile        // with a stage: files to put into place
	stagedNames  int                 // how many names of the stage are used
}

// tempPrefix marks files that are being written; they are swept away.
const tempPrefix = ".mirror-"

// tempFile is the file being written when there is no stage. It lies outside of the trees,
// so that it cannot clash with a name there, and no name is too long for the prefix.
const tempFile = tempPrefix + "new"

// verify reads every file that was copied and compares it with what was read at
// the source.
func (c *copier) verify() error {
	for _, rel := range slices.Sorted(maps.Keys(c.known)) {
		f, err := os.Open(filepath.Join(c.spec.Dest, rel))
		if err != nil {
			return fmt.Errorf("verify: %w", err)
		}

		sum := sha256.New()
		_, err = io.Copy(sum, f)
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("verify: %w", err)
		}
		if hex.EncodeToString(sum.Sum(nil)) != c.known[rel].Hash {
			return fmt.Errorf("verify: %s on the volume differs from what was copied", rel)
		}
	}

	return nil
}

// loadIndex reads the index once. Without a usable index everything is copied again.
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
