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

// compiled is the bank of the pillars that pillar_cache stores, with a folder for each minion and a
// file for each pillar environment. The bank Pillar, which Salt's tools read, has the latest of
// them. When a tool removes that one, the compiled pillars do not count any more.
const compiled Bank = "compiled_pillars"

// maxCompiled bounds the environments of one minion, which chooses their names itself. Pillars of
// further environments are not stored.
const maxCompiled = 32

func compiledKey(id, env string) string {
	sum := sha256.Sum256([]byte(env)) // any text, as short as a file name must be
	return filepath.Join(id, hex.EncodeToString(sum[:16]))
}

// Bounds of the compiled pillars of all minions on the disk. When a bound is exceeded, the folders
// that were written longest ago are removed until three quarters are left.
const (
	maxCompiledBytes = 1 << 30
	maxCompiledFiles = 200_000
)

// Pillars configures where compiled pillars are stored.
type Pillars struct {
	Off bool // store none
	// Memory bounds compiled pillars in memory, in bytes; a pillar counts as six times its packed
	// size. 0 means that they are in files.
	Memory int64
	// Only keeps pillars in memory out of the bank Pillar.
	Only bool
}

// KeepPillars configures where compiled pillars are stored. The master calls it once at start. It
// removes existing files that are not used any more, since pillars contain secrets.
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

// Compiled returns the pillar of a minion in a pillar environment ("" for none) if it was stored
// within the last ttl.
func (s *Store) Compiled(id, env string, now time.Time, ttl time.Duration) (*value.Map, bool) {
	if s.valid(id) != nil {
		return nil, false
	}

	if _, err := os.Lstat(s.entryPath(Pillar, id)); err != nil && !s.memoryOnly {
		_ = s.FlushCompiled(id) // or they would count again with the next one
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

// KeepCompiled stores a pillar for Compiled, and in the bank Pillar unless Only is set. now is the
// time at which it was compiled.
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
		s.bound.bytes = maxCompiledBytes + 1 // existing files are not counted yet
	}

	s.bound.files++
	if s.bound.bytes <= maxCompiledBytes && s.bound.files <= maxCompiledFiles {
		return nil
	}

	s.bound.bytes, s.bound.files, err = boundFolders(filepath.Join(s.dir, string(compiled)),
		maxCompiledBytes, maxCompiledFiles)
	s.bound.files++ // never 0 again
	return err
}

// written counts the compiled pillars written since the last check of the bounds, and the totals at
// that check.
type written struct {
	sync.Mutex
	bytes int64
	files int
}

// boundFolders removes the folders below dir that were written longest ago if all together exceed
// the bounds in bytes or files. It returns what is left.
func boundFolders(dir string, bytes int64, files int) (int64, int, error) {
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
		if haveBytes <= bytes/4*3 && haveFiles <= files/4*3 {
			break
		}
		if err := os.RemoveAll(filepath.Join(dir, f.name)); err != nil {
			return haveBytes, haveFiles, fmt.Errorf("remove the compiled pillars of %s: %w", f.name, err)
		}
		haveBytes, haveFiles = haveBytes-f.bytes, haveFiles-f.files
	}

	return haveBytes, haveFiles, nil
}

// writeCompiled writes the file of a pillar and returns its size.
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

	s.mem.dropEntry(compiled, key) // its file is written again, and is new then
	if _, err := s.writeEntry(compiled, key, m, 0); err != nil {
		return 0, err
	}

	info, err := os.Lstat(s.entryPath(compiled, key))
	if err != nil {
		return 0, nil // removed meanwhile
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
