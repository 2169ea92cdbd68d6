package keys

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// dirSeen is a folder as it was at the last listing.
type dirSeen struct {
	sig  fileSig
	when time.Time
}

// racy is the age below which the time of change of a folder proves nothing:
// another change within the same tick of the file system's clock, or of a
// node whose clock is off a little, leaves it the same.
const racy = 2 * time.Second

// readers bounds the files read at once; on a network volume one at a time
// would take minutes at start.
const readers = 16

// changed tells whether a folder may have other entries than at the last
// listing.
func (s *Store) changed(st State) bool {
	info, err := os.Stat(s.stateDir(st))
	if err != nil {
		return true // the scan reports it
	}
	seen := s.seen[st]
	return sigOf(info) != seen.sig || seen.when.Sub(info.ModTime()) < racy
}

// scan compares folders with the index and takes in the differences; without
// full only the folders that have changed. A folder that cannot be listed
// keeps what is known of it: a volume that has gone away must not lock all
// minions out. The error joins all faults.
func (s *Store) scan(full bool) error {
	s.scanMu.Lock()
	defer s.scanMu.Unlock()
	var errs []error
	for _, st := range []State{Rejected, Pending, Accepted, Denied} {
		if !full && !s.changed(st) {
			continue
		}
		now := time.Now()
		info, err := os.Stat(s.stateDir(st))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if err := s.scanDir(st); err != nil {
			errs = append(errs, err)
			continue
		}
		s.seen[st] = dirSeen{sig: sigOf(info), when: now}
	}
	return errors.Join(errs...)
}

func (s *Store) scanDir(st State) error {
	s.scans.Add(1)
	dir := s.stateDir(st)
	var names []string
	err := retryStale(func() error {
		list, err := os.ReadDir(dir)
		names = names[:0]
		for _, e := range list {
			if e.Type().IsRegular() {
				names = append(names, e.Name())
			}
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("listing %s keys: %w", st, err)
	}
	listed := make(map[string]struct{}, len(names))
	work := make(chan string)
	var wg sync.WaitGroup
	for range readers {
		wg.Go(func() {
			for id := range work {
				s.examine(id, st)
			}
		})
	}
	for _, name := range names {
		if strings.HasPrefix(name, ".") {
			continue // .key_cache, our own and others' temporary files
		}
		if err := ValidID(name); err != nil {
			s.log.Warn("ignoring a key file", "path", filepath.Join(dir, name), "error", err)
			continue
		}
		listed[name] = struct{}{}
		work <- name
	}
	var gone []string
	s.mu.RLock()
	for id := range s.files[st] {
		if _, ok := listed[id]; !ok {
			gone = append(gone, id)
		}
	}
	s.mu.RUnlock()
	for _, id := range gone {
		work <- id
	}
	close(work)
	wg.Wait()
	return nil
}

// Refresh looks at the files of some minions now, for instance because
// another master has told of a change. Ids that are not valid are ignored.
func (s *Store) Refresh(ids ...string) {
	for _, id := range ids {
		if ValidID(id) == nil {
			s.examine(id, Rejected, Pending, Accepted, Denied)
		}
	}
}

// Rescan compares all files with the index now.
func (s *Store) Rescan() error { return s.scan(true) }

// Look takes in what has changed in the folders since the last look, now
// instead of at the next event or tick of Run. It costs four calls of stat
// when nothing has.
func (s *Store) Look() error { return s.scan(false) }

// examine brings the index up to date for an id and some states.
func (s *Store) examine(id string, states ...State) {
	defer s.lockID(id)()
	s.examineLocked(id, states...)
}

// examineLocked is examine for a caller that holds the stripe.
func (s *Store) examineLocked(id string, states ...State) {
	found := map[State]*keyFile{}
	for _, st := range states {
		before := s.file(st, id)
		f, err := s.load(id, st, before)
		switch {
		case errors.Is(err, os.ErrNotExist):
			if before != nil {
				found[st] = nil
			}
		case err != nil:
			s.log.Warn("reading a minion key", "minion", id, "path", s.path(st, id), "error", err)
		case f != before:
			found[st] = f
		}
	}
	if len(found) > 0 {
		s.apply(id, found)
	}
}

// load reads a key file, unless it is the one that before was made of. An
// empty file is one that is being written: it does not exist yet.
func (s *Store) load(id string, st State, before *keyFile) (*keyFile, error) {
	path := s.path(st, id)
	sig, err := lstat(path)
	if err != nil {
		return nil, err
	}
	if before != nil && before.sig == sig {
		return before, nil
	}
	data, info, err := readRegular(path, maxKeyFile, false)
	if err != nil {
		return nil, err
	}
	if len(strings.TrimSpace(string(data))) == 0 {
		return nil, &os.PathError{Op: "read", Path: path, Err: os.ErrNotExist}
	}
	return s.newFile(string(data), sigOf(info), before), nil
}
