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

// compiled holds the pillars that pillar_cache keeps, in a folder for each
// minion and a file for each pillar environment. The bank Pillar, which Salt's
// tools read, has the latest of them; when it is gone, because they or ours have
// cleared it, these count no more.
const compiled Bank = "compiled_pillars"

// maxCompiled bounds the environments of one minion, which names them itself.
// Overflow policy: the others are forgotten.
const maxCompiled = 32

func compiledKey(id, env string) string {
	sum := sha256.Sum256([]byte(env)) // any text, as short as a file name must be
	return filepath.Join(id, hex.EncodeToString(sum[:16]))
}

// Bounds of the compiled pillars of all minions on the disk. Overflow policy: the
// folders that were written longest ago go, until three quarters are left.
const (
	maxCompiledBytes = 1 << 30
	maxCompiledFiles = 200_000
)

// Pillars says where compiled pillars are kept.
type Pillars struct {
	Off bool // nowhere
	// Memory bounds them in bytes of memory, where one counts as six times its
	// packed size; 0: they are in files.
	Memory int64
	// Only keeps those in memory out of the bank Pillar.
	Only bool
}

// KeepPillars says where compiled pillars are kept. The master does it once when it
// starts. Files of before that are not of use now are removed: pillars hold secrets.
func (s *Store) KeepPillars(p Pillars) error {
	if p.Memory > 0 {
		s.compiled = newPillars(p.Memory)
		s.only = p.Only
	} else if !p.Off {
		return nil
	}
	if err := os.RemoveAll(filepath.Join(s.dir, string(compiled))); err != nil {
		return fmt.Errorf("remove compiled pillars: %w", err)
	}
	return nil
}

// Compiled returns the pillar of a minion in a pillar environment ("": none),
// if it was kept within the last ttl.
func (s *Store) Compiled(id, env string, now time.Time, ttl time.Duration) (*value.Map, bool) {
	if s.valid(id) != nil {
		return nil, false
	}

	if _, err := os.Lstat(s.entryPath(Pillar, id)); err != nil && !s.only {
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

// KeepCompiled keeps a pillar for Compiled, and in the bank Pillar unless Only. now is when it
// was made.
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

	if s.only {
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
		s.bound.bytes = maxCompiledBytes + 1 // what was there before is not known yet
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

// written counts what was written to the compiled pillars since they were looked
// through, and what they had then.
type written struct {
	sync.Mutex
	bytes int64
	files int
}

// boundFolders removes the folders below dir that were written longest ago when all
// have more than so many bytes or files, and gives what is left.
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

// writeCompiled writes the file of a pillar and gives its size.
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

// FlushCompiled forgets what Compiled has of a minion.
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
