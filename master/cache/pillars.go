package cache

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"saltern/master/value"
)

// compiled is the bank of the option pillar_cache. It has a folder for each minion, with a file for
// each pillar environment. The bank Pillar, which Salt's tools read, contains the minion's latest
// pillar. When a tool removes the entry in the bank Pillar, the store no longer returns the
// minion's compiled pillars.
const compiled Bank = "compiled_pillars"

// maxCompiled bounds the environments of one minion, since the minion chooses their names itself.
// The store does not store pillars of further environments.
const maxCompiled = 32

func compiledKey(id, env string) string {
	sum := sha256.Sum256([]byte(env)) // env may be any text; a file name must be short
	return filepath.Join(id, hex.EncodeToString(sum[:16]))
}

// Limits of the compiled pillars of all minions on the disk. Overflow policy: the folders that were
// written longest ago are removed until three quarters of the limit are left.
const (
	maxCompiledBytes = 1 << 30
	maxCompiledFiles = 200_000
)

// Pillars configures whether and where the store keeps compiled pillars.
type Pillars struct {
	Off bool // do not store compiled pillars
	// Memory bounds the compiled pillars in memory, in bytes; the memory of one pillar is estimated
	// as six times its packed size. If Memory is 0, the pillars are stored in files instead.
	Memory int64
	// Only means that pillars in memory are not stored in the bank Pillar.
	Only bool
}

// KeepPillars sets whether and where the store keeps compiled pillars. The master calls it once at
// start. KeepPillars removes the files that a former setting has left, since pillars contain
// secrets.
func (s *Store) KeepPillars(p Pillars) error {
	if p.Memory > 0 {
		s.compiled = newPillars(p.Memory)
		s.memoryOnly = p.Only
	} else if !p.Off {
		return nil
	}
	if err := os.RemoveAll(filepath.Join(s.dir, string(compiled))); err != nil {
		return fmt.Errorf("remove compiled pillars: %w", err)
	}
	return nil
}

// Compiled returns the pillar of a minion in a pillar environment ("" for none). It returns false
// if no pillar was stored within the last ttl.
func (s *Store) Compiled(id, env string, now time.Time, ttl time.Duration) (*value.Map, bool) {
	if s.valid(id) != nil {
		return nil, false
	}

	if _, err := os.Lstat(s.entryPath(Pillar, id)); err != nil && !s.memoryOnly {
		_ = s.FlushCompiled(id) // otherwise the old pillars would be used again when the entry exists again
		return nil, false
	}
	if s.compiled != nil {
		return s.compiled.get(id, env, now, ttl)
	}

	key := compiledKey(id, env)
	info, err := os.Lstat(s.entryPath(compiled, key))
	if err != nil || info.ModTime().After(now) || now.Sub(info.ModTime()) >= ttl {
		return nil, false
	}

	return s.readEntry(compiled, key)
}

// KeepCompiled stores a pillar for Compiled, and in the bank Pillar unless Pillars.Only is set. now
// is the time at which the pillar was compiled.
func (s *Store) KeepCompiled(id, env string, m *value.Map, now time.Time) error {
	if err := s.valid(id); err != nil {
		return err
	}

	if s.compiled != nil {
		packed, err := entry.Pack(m, true)
		if err != nil {
			return fmt.Errorf("store the pillar of %s: %w", id, err)
		}
		s.compiled.put(id, env, m, len(packed), now)
	} else if err := s.keepCompiled(id, compiledKey(id, env), m); err != nil {
		return err
	}

	if s.memoryOnly {
		return nil
	}

	_, err := s.Set(Pillar, id, m)
	return err
}

func (s *Store) keepCompiled(id, key string, m *value.Map) error {
	size, err := s.writeCompiled(id, key, m)
	if err != nil {
		return err
	}

	s.bound.Lock()
	defer s.bound.Unlock()
	s.bound.bytes += size
	if s.bound.files == 0 {
		s.bound.bytes = maxCompiledBytes + 1 // force the first check, which counts the existing files
	}

	s.bound.files++
	if s.bound.bytes <= maxCompiledBytes && s.bound.files <= maxCompiledFiles {
		return nil
	}

	s.bound.bytes, s.bound.files, err = boundFolders(filepath.Join(s.dir, string(compiled)),
		maxCompiledBytes, maxCompiledFiles)
	s.bound.files++ // count the file: 0 would mean that the files have never been counted
	return err
}

// written counts the bytes of compiled pillars that were written since the last check of the
// limits. written also holds the number of files at that check.
type written struct {
	sync.Mutex
	bytes int64
	files int
}

// boundFolders checks the folders below dir against maxBytes and maxFiles. If a limit is exceeded,
// it removes the folders that were written longest ago. It returns the number of remaining bytes
// and files.
func boundFolders(dir string, maxBytes int64, maxFiles int) (int64, int, error) {
	type folder struct {
		name  string
		at    time.Time
		bytes int64
		files int
	}

	var all []folder
	var haveBytes int64
	var haveFiles int
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, 0, fmt.Errorf("look through compiled pillars: %w", err)
	}

	for _, e := range entries {
		f := folder{name: e.Name()}
		inner, _ := os.ReadDir(filepath.Join(dir, e.Name()))
		for _, i := range inner {
			if info, err := i.Info(); err == nil {
				f.bytes, f.files = f.bytes+info.Size(), f.files+1
				if info.ModTime().After(f.at) {
					f.at = info.ModTime()
				}
			}
		}

		all = append(all, f)
		haveBytes, haveFiles = haveBytes+f.bytes, haveFiles+f.files
	}

	slices.SortFunc(all, func(a, b folder) int { return a.at.Compare(b.at) })
	for _, f := range all {
		if haveBytes <= maxBytes/4*3 && haveFiles <= maxFiles/4*3 {
			break
		}
		if err := os.RemoveAll(filepath.Join(dir, f.name)); err != nil {
			return haveBytes, haveFiles, fmt.Errorf("remove the compiled pillars of %s: %w", f.name, err)
		}
		haveBytes, haveFiles = haveBytes-f.bytes, haveFiles-f.files
	}

	return haveBytes, haveFiles, nil
}

// writeCompiled writes the file of a compiled pillar and returns its size in bytes.
func (s *Store) writeCompiled(id, key string, m *value.Map) (int64, error) {
	defer s.lockEntry(compiled, id)()
	dir := filepath.Dir(s.entryPath(compiled, key))
	if entries, err := os.ReadDir(dir); err == nil && len(entries) >= maxCompiled {
		if err := os.RemoveAll(dir); err != nil {
			return 0, fmt.Errorf("store the pillar of %s: %w", id, err)
		}
	}

	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, fmt.Errorf("store the pillar of %s: %w", id, err)
	}

	// Drop the entry from memory. Otherwise writeEntry would not write the file again, with a new
	// time.
	s.mem.dropEntry(compiled, key)
	if _, err := s.writeEntry(compiled, key, m, 0); err != nil {
		return 0, err
	}

	info, err := os.Lstat(s.entryPath(compiled, key))
	if err != nil {
		return 0, nil // the file was removed meanwhile
	}

	return info.Size(), nil
}

// FlushCompiled removes the compiled pillars of a minion.
func (s *Store) FlushCompiled(id string) error {
	if err := s.valid(id); err != nil {
		return err
	}
	if s.compiled != nil {
		s.compiled.dropMinion(id)
		return nil
	}
	defer s.lockEntry(compiled, id)()
	if err := os.RemoveAll(filepath.Join(s.dir, string(compiled), id)); err != nil {
		return fmt.Errorf("remove the compiled pillars of %s: %w", id, err)
	}
	return nil
}
