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
	spec   mirrorSpec
	source mountRoot
	known  map[string]copied      // by path relative to both roots; nil: not loaded
	empty  map[string]emptied     // directories of the source without an entry, in the pass before
	skip   func(path string) bool // what is left out; nil: nothing
	whole  bool                   // the next pass looks at everything anew
	each   bool                   // it asks the volume for each file, whatever lists say
	apart  time.Duration          // how far clocks of nodes are known to differ
}

// copied is what is known about one file.
type copied struct {
	Size  int64  `json:"s"`
	MTime int64  `json:"m"` // of the source, ns
	CTime int64  `json:"c"` // of the source, ns
	Hash  string `json:"h"`
	Local int64  `json:"l"` // modification time of the copy, ns
	// Read is when it was read, by this node's clock, ns; zero: not known. See early.
	Read int64 `json:"r,omitempty"`
}

// stageDir is the Stage of a mirror.
const stageDir = ".staging"

const indexFile = ".index.json"

func (s mirrorSpec) index() string {
	if s.Index != "" {
		return s.Index
	}
	return filepath.Join(s.Dest, indexFile)
}

func newCopier(spec mirrorSpec) *copier {
	return &copier{spec: spec, source: mountRoot{path: spec.Source}}
}

// mounted refuses a source that is no volume, unless any is allowed.
func (c *copier) mounted() error {
	if c.spec.Any {
		return nil
	}
	return c.source.check()
}

// pass makes the trees equal once. What it could not read stays as it was, and
// the pass fails; nothing is removed unless the whole listing was complete.
func (c *copier) pass() (r mirrorReport, err error) {
	if err := errors.Join(c.spec.check(), c.mounted()); err != nil {
		return r, err
	}

	if err := c.load(); err != nil {
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
		copier: c,
		dest:   dest,
		r:      &r,
		next:   map[string]copied{},
		vacant: map[string]emptied{},
	}
	defer w.unstage()

	w.lookAbove()
	for _, t := range c.spec.Trees {
		if err := w.dir(t, 0); err != nil && !(younger(t) && errors.Is(err, fs.ErrNotExist)) {
			return r, err
		}
	}

	if err := c.mounted(); err != nil { // it may have gone meanwhile: then nothing may be removed
		return r, err
	}

	if err := w.place(); err != nil {
		return r, err
	}

	for _, t := range c.spec.Trees {
		if err := w.sweep(t); err != nil && !(younger(t) && errors.Is(err, fs.ErrNotExist)) {
			return r, err
		}
	}

	c.known, c.empty = w.next, w.vacant
	if r.Copied+r.Removed > 0 || w.touched {
		return r, c.save()
	}

	return r, nil
}

// walk is one pass.
type walk struct {
	*copier
	// dest is the copy. Folders in it belong to the master's account, as at the
	// source: a link that it puts there must not lead root out of the copy.
	dest    *os.Root
	r       *mirrorReport
	next    map[string]copied
	vacant  map[string]emptied  // what empty is for the next pass
	touched bool                // the index changed although no file did
	watch   *room.Watch         // of what is written; nil until something is
	names   map[string][]string // of each directory of the source
	here    copyDir             // that of the directory that is listed
	dirs    []foundDir          // with a stage: to be made
	staged  []stagedFile        // with a stage: to be put into place
	// stagedNames counts the files in the stage.
	stagedNames int
}

// tempPrefix marks files that are being written; they are swept away.
const tempPrefix = ".mirror-"

// tempFile is the one that is being written without a stage. It lies outside of the trees:
// no name there can be too long for a prefix, or be the same.
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
		if cerr := f.Close(); err == nil {
			err = cerr
		}

		if err != nil {
			return fmt.Errorf("verify: %w", err)
		}
		if hex.EncodeToString(sum.Sum(nil)) != c.known[rel].Hash {
			return fmt.Errorf("verify: %s on the volume differs from what was copied", rel)
		}
	}

	return nil
}

// load reads the index once. Without a usable one everything is copied again.
func (c *copier) load() error {
	if c.known != nil {
		return nil
	}

	c.known = map[string]copied{}
	f, err := os.Open(c.spec.index())
	if errors.Is(err, fs.ErrNotExist) {
		return os.MkdirAll(filepath.Dir(c.spec.index()), 0o755)
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

func (c *copier) save() error {
	b, err := json.Marshal(c.known)
	if err != nil {
		return err
	}
	return durable.Swap(c.spec.index(), b, 0o600)
}
