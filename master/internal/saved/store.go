package saved

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"saltern/internal/durable"
	"saltern/internal/versioned"
	"saltern/master/value"
)

const (
	lookEvery = 2 * time.Second
	// diskWait is how long a caller waits for the shared folder.
	diskWait = 10 * time.Second
	// maxTries is how often a change begins again because another master was faster.
	maxTries = 20
)

// errSilent means that the shared folder has not answered in time.
var errSilent = errors.New("the folder of the saved objects does not answer: a change may have been made or not; look at it with saved.show")

// errFolderSilent is errSilent in the words of the status.
var errFolderSilent = errors.New("their folder does not answer: the objects that this master knows count, and changes are refused")

// Store holds the saved objects of a cluster. It is safe for concurrent use.
type Store struct {
	file   versioned.File
	groups *value.Map // option nodegroups
	now    func() time.Time
	log    *slog.Logger

	// disk is taken by the one goroutine that works with the file. If the file system hangs, it hangs
	// alone, and everybody else gets errSilent.
	disk    chan struct{}
	content []byte // of the file at the last read; only who has taken disk uses it
	fault   string // why the file could not be read, as last logged; only who has taken disk uses it
	objects atomic.Pointer[Objects]
}

// errGone means that the file was there before. The folder is probably not mounted, since masters never
// remove the file: its objects count until the master stops, and cannot be changed.
var errGone = errors.New("the file is gone: mount the shared folder again; if somebody has removed the file to begin anew, restart the masters")

// NewStore returns a Store without objects. It does not access the disk. groups is the option
// nodegroups; it may be nil.
func NewStore(path string, groups *value.Map, now func() time.Time, log *slog.Logger) *Store {
	if groups == nil {
		groups = value.NewMap()
	}
	s := &Store{
		file:   versioned.File{Path: path, Mode: 0o600, Limit: maxFile, Version: versionOf},
		groups: groups,
		now:    now,
		log:    log,
		disk:   make(chan struct{}, 1),
	}
	none := emptyObjects()
	none.index(groups)
	s.objects.Store(none)
	return s
}

// Objects returns the objects as this master knows them.
func (s *Store) Objects() *Objects { return s.objects.Load() }

// Groups returns the nodegroups of the configuration and the saved targets. The caller must not
// change the map.
func (s *Store) Groups() *value.Map { return s.Objects().Groups() }

// Follow reads the file until ctx ends, so that changes of other masters count here. After each look it
// calls report with what is wrong with the file, or with nil.
func (s *Store) Follow(ctx context.Context, report func(error)) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		err := s.Look(ctx)
		if errors.Is(err, errSilent) {
			err = errFolderSilent
		}
		if ctx.Err() == nil {
			report(err)
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

// Look reads the file now. If the file system hangs, it returns without an answer after some time. The
// error says why the file could not be read, or that a damaged one was set aside and is still there.
func (s *Store) Look(ctx context.Context) error {
	return s.onDisk(ctx, func() error {
		if _, err := s.load(); err != nil {
			return err
		}
		return s.damageKept()
	})
}

// damageKept returns an error if damaged files were set aside and are still there. The caller has taken
// disk.
func (s *Store) damageKept() error {
	dir, name := filepath.Split(s.file.Path)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for damaged files of saved objects: %w", err)
	}

	var aside []string
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), name+".broken-") {
			aside = append(aside, filepath.Join(dir, entry.Name()))
		}
	}
	if len(aside) == 0 {
		return nil
	}

	more := ""
	if len(aside) > maxNamed {
		more = fmt.Sprintf(" and %d more", len(aside)-maxNamed)
		aside = aside[len(aside)-maxNamed:] // their names end in the time: the newest
	}
	return fmt.Errorf("the file was damaged, and the newest whole version counts: look at salt-run saved.export, then remove %s%s",
		strings.Join(aside, ", "), more)
}

// maxNamed is how many damaged files an error names.
const maxNamed = 3

// newestWait is how long Newest waits for the shared folder.
const newestWait = time.Second

// Newest reads the file and returns its objects, so that what somebody has saved at another master a
// moment ago counts. If the file system does not answer soon, it returns the objects that are known.
func (s *Store) Newest(ctx context.Context) *Objects {
	ctx, cancel := context.WithTimeout(ctx, newestWait)
	defer cancel()
	_ = s.Look(ctx)
	return s.Objects()
}

// onDisk calls do, which works with the file, and waits for it for a bounded time.
func (s *Store) onDisk(ctx context.Context, do func() error) error {
	return durable.InTurn(ctx, s.disk, diskWait, errSilent, do)
}

// load reads the file. If that fails, the objects of before stay. The caller has taken disk.
func (s *Store) load() (*Objects, error) {
	known := s.objects.Load()
	content, version, err := s.file.Read()
	switch missing := errors.Is(err, fs.ErrNotExist); {
	case missing && known.Version > 0:
		err = errGone
	case missing:
		content, version, err = nil, 0, nil
	}
	if errors.Is(err, versioned.ErrContent) {
		err = s.setAside(err)
	}
	if err != nil {
		s.logFault(err)
		return nil, fmt.Errorf("read the saved objects: %w", err)
	}
	if version == known.Version && bytes.Equal(content, s.content) {
		s.fault = ""
		return known, nil
	}

	read := emptyObjects()
	if version > 0 {
		read, err = decode(content, version)
	}
	if err != nil {
		s.logFault(err)
		return nil, err
	}
	if version < known.Version {
		s.log.Warn("saved objects are older than those that this master knew; they count", "path", s.file.Path,
			"version", version, "known", known.Version)
	}
	s.fault = ""
	s.adopt(read, content)
	return read, nil
}

// setAside renames a damaged file, so that the next look reads the newest whole version.
func (s *Store) setAside(cause error) error {
	aside, err := s.file.SetAside()
	if err != nil {
		return errors.Join(cause, err)
	}
	s.log.Error("file of the saved objects is damaged and set aside; the newest whole version counts",
		"path", s.file.Path, "aside", strings.Join(aside, ", "), "error", cause)
	if _, _, err := s.file.Read(); errors.Is(err, fs.ErrNotExist) && len(s.content) > 0 {
		return errors.Join(cause, s.file.Write(0, s.content)) // there was no whole version but in memory
	}
	return cause
}

// logFault logs why the file cannot be read, each cause once.
func (s *Store) logFault(err error) {
	text := err.Error()
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		text = e.Err.Error()
	}
	if text != s.fault {
		s.log.Error("saved objects cannot be read; those of before count", "path", s.file.Path, "error", err)
	}
	s.fault = text
}

// adopt makes the objects count on this master.
func (s *Store) adopt(read *Objects, content []byte) {
	read.index(s.groups)
	for _, kind := range kinds() {
		for _, o := range read.All(kind) {
			was := s.objects.Load().Get(kind, o.Name)
			if o.Fault != nil && (was == nil || was.Revision != o.Revision) {
				s.log.Warn("saved object cannot be used by this master", "name", o.Name, "error", o.Fault)
			}
		}
	}
	s.content = content
	s.objects.Store(read)
}

// errBusy means that other masters change the objects without a pause.
var errBusy = errors.New("other masters change saved objects all the time: nothing was changed; try again")

// askedVersions say what was saved when somebody asked for a change.
type askedVersions struct {
	known  uint64 // version that this master knew
	newest uint64 // version of the file, a moment later: this master's own changes may have come between
}

func (s *Store) askedNow(ctx context.Context) askedVersions {
	known := s.Objects().Version
	return askedVersions{known, s.Newest(ctx).Version}
}

// change applies alter to the newest objects and writes the result. alter may be called several
// times, also after change has returned errSilent. It returns the objects with the change.
func (s *Store) change(ctx context.Context, by string, alter func(d *draft) error) (*Objects, error) {
	asked := s.askedNow(ctx)
	var changed *Objects // read only when onDisk has waited for it
	err := s.onDisk(ctx, func() error {
		for range maxTries {
			after, err := s.changeOnce(asked, by, alter)
			if !errors.Is(err, versioned.ErrConflict) {
				changed = after
				return err
			}
			time.Sleep(rand.N(20 * time.Millisecond)) // test/house: another master was faster
		}
		return errBusy
	})
	if err != nil {
		return nil, err
	}
	return changed, nil
}

func (s *Store) changeOnce(asked askedVersions, by string, alter func(d *draft) error) (*Objects, error) {
	base, err := s.load()
	if err != nil {
		return nil, err
	}
	d := newDraft(base, asked, Mark{Revision: base.Version + 1, Changed: s.now(), By: by})
	if err := alter(d); err != nil {
		return nil, err
	}
	if len(d.changed) == 0 {
		return base, nil
	}
	next, err := d.finish(s.groups)
	if err != nil {
		return nil, err
	}
	content, err := next.encode()
	if err != nil {
		return nil, err
	}
	if len(content) > maxFile {
		return nil, badf("all saved objects together would have %d bytes, at most %d", len(content), maxFile)
	}
	if _, err := decode(content, next.Version); err != nil {
		return nil, fmt.Errorf("save objects: no master could read the file afterwards: %w", err)
	}
	if err := s.file.Write(base.Version, content); err != nil {
		return nil, fmt.Errorf("save objects for all masters: %w", err)
	}
	s.adopt(next, content)
	return next, nil
}

// draft is a change that is being made.
type draft struct {
	*Objects
	base    *Objects
	asked   askedVersions
	mark    Mark
	changed []*Object
}

func newDraft(base *Objects, asked askedVersions, mark Mark) *draft {
	next := emptyObjects()
	next.Version = mark.Revision
	next.unknown = base.unknown
	next.odd = base.odd
	for _, kind := range kinds() {
		next.byKind[kind] = maps.Clone(base.byKind[kind])
	}
	return &draft{Objects: next, base: base, asked: asked, mark: mark}
}

// set saves an object. expect is the revision that its author has seen; nil: he has not said.
func (d *draft) set(kind Kind, name string, settings *value.Map, expect *uint64) error {
	if err := d.checkSeen(kind, name, expect); err != nil {
		return err
	}
	o, err := newObject(kind, name, settings)
	if err != nil {
		return err
	}
	if was := d.Get(kind, name); was != nil && was.Fault == nil && was.sameSettings(settings) {
		return nil // a repeat changes nothing
	}
	o.Mark = d.mark
	o.setHere = true
	d.byKind[kind][name] = o
	d.changed = append(d.changed, o)
	return nil
}

// remove deletes an object.
func (d *draft) remove(kind Kind, name string, expect *uint64) error {
	o := d.Get(kind, name)
	if o == nil {
		return badf("there is no saved %s %.80q", kind, name)
	}
	if err := d.checkSeen(kind, name, expect); err != nil {
		return err
	}
	if users := d.users(map[link]bool{{kind, name}: true}); len(users) > 0 {
		return badf("%s %s is in use by %s %s: change or delete that first", kind, name, users[0].Kind, users[0].Name)
	}
	delete(d.byKind[kind], name)
	d.changed = append(d.changed, o)
	return nil
}

// checkSeen refuses to change an object that somebody else has changed meanwhile.
func (d *draft) checkSeen(kind Kind, name string, expect *uint64) error {
	o := d.base.Get(kind, name)
	var last Mark
	if o != nil {
		last = o.Mark
	}
	changedSince := o != nil && (last.Revision > d.asked.newest || o.setHere && last.Revision > d.asked.known)
	meanwhile := expect == nil && changedSince
	if meanwhile || expect != nil && *expect != last.Revision {
		if o == nil {
			return badf("%s %s does not exist any more: somebody else has deleted it", kind, name)
		}
		return badf("%s %s was changed by %s at %s: look at it with saved.show, and give revision=%d to change that",
			kind, name, last.By, last.Changed.UTC().Format(time.RFC3339), last.Revision)
	}
	return nil
}

// finish checks the draft as a whole, and returns it.
func (d *draft) finish(groups *value.Map) (*Objects, error) {
	d.makeGroups(groups)
	for _, kind := range kinds() {
		if len(d.byKind[kind]) > maxObjects {
			return nil, badf("there are %d %s already, at most %d: delete some", maxObjects, kind.section(), maxObjects)
		}
	}
	named := map[link]bool{}
	for _, o := range d.changed {
		named[link{o.Kind, o.Name}] = true
	}

	// Whatever uses a changed object has to fit it. A deleted object has no users.
	for _, o := range append(d.users(named), d.changed...) {
		if d.Get(o.Kind, o.Name) != o {
			continue // deleted
		}
		if err := d.checkLinks(o); err != nil {
			return nil, err
		}
	}
	return d.Objects, nil
}

// try works like change, but writes nothing.
func (s *Store) try(ctx context.Context, by string, alter func(d *draft) error) error {
	asked := s.askedNow(ctx)
	return s.onDisk(ctx, func() error {
		base, err := s.load()
		if err != nil {
			return err
		}
		d := newDraft(base, asked, Mark{Revision: base.Version + 1, Changed: s.now(), By: by})
		if err := alter(d); err != nil {
			return err
		}
		_, err = d.finish(s.groups)
		return err
	})
}
