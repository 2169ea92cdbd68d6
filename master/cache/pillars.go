package cache

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
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

// Compiled returns the pillar of a minion in a pillar environment ("": none),
// if it was kept within the last ttl.
func (s *Store) Compiled(id, env string, now time.Time, ttl time.Duration) (*value.Map, bool) {
	if s.valid(id) != nil {
		return nil, false
	}
	if _, err := os.Lstat(s.path(Pillar, id)); err != nil {
		_ = s.FlushCompiled(id) // or they would count again with the next one
		return nil, false
	}
	key := compiledKey(id, env)
	info, err := os.Lstat(s.path(compiled, key))
	if err != nil || info.ModTime().After(now) || now.Sub(info.ModTime()) >= ttl {
		return nil, false
	}
	return s.get(compiled, key)
}

// KeepCompiled keeps a pillar for Compiled, and in the bank Pillar.
func (s *Store) KeepCompiled(id, env string, m *value.Map) error {
	if err := s.valid(id); err != nil {
		return err
	}
	if err := s.keepCompiled(id, compiledKey(id, env), m); err != nil {
		return err
	}
	_, err := s.Set(Pillar, id, m)
	return err
}

func (s *Store) keepCompiled(id, key string, m *value.Map) error {
	defer s.lock(compiled, id)()
	dir := filepath.Dir(s.path(compiled, key))
	if entries, err := os.ReadDir(dir); err == nil && len(entries) >= maxCompiled {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("store the pillar of %s: %w", id, err)
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("store the pillar of %s: %w", id, err)
	}
	s.mem.drop(compiled, key) // its file is written again, and is new then
	_, err := s.set(compiled, key, m, 0)
	return err
}

// FlushCompiled forgets what Compiled has of a minion.
func (s *Store) FlushCompiled(id string) error {
	if err := s.valid(id); err != nil {
		return err
	}
	defer s.lock(compiled, id)()
	if err := os.RemoveAll(filepath.Join(s.dir, string(compiled), id)); err != nil {
		return fmt.Errorf("remove the compiled pillars of %s: %w", id, err)
	}
	return nil
}
