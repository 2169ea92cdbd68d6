// Package cache stores what minions have reported to the master: grains, pillar and mine. It
// answers targets and mine queries from memory, and stores everything in the files of Salt's own
// cache, which Python's tools on the same host can read: <cachedir>/<bank>/<id>.p, MessagePack
// without bin types (salt/cache/localfs.py, salt/utils/minions.py of 3008).
package cache

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"saltern/internal/durable"
	"saltern/master/internal/datafile"
	"saltern/master/value"
)

// Bank is a kind of data about minions.
type Bank string

// The banks.
const (
	Grains Bank = "grains"
	Pillar Bank = "pillar"
	Mine   Bank = "mine"
	// Resources is the bank of the resources that minions have registered; see package resources.
	Resources Bank = "minion_resources"
	// Tokens is the bank of log-ins. Package eauth reads and writes its files; this package only
	// exchanges them with other masters; see ShareTokens.
	Tokens Bank = "tokens"
)

var (
	banks      = []Bank{Grains, Pillar, Mine, Resources}
	withTokens = append(slices.Clone(banks), Tokens)
)

// maxEntry bounds one entry, in bytes. Set refuses a larger entry, and Get ignores it.
const maxEntry = 32 << 20

var entry = datafile.Bound{Bytes: maxEntry}

// Store is the cache of one master. It is safe for concurrent use. Several callers share the maps
// that it returns and must not change them.
type Store struct {
	dir   string
	valid func(id string) error
	mem   *memory
	// writing serialises changes per entry, so that memory and file agree.
	writing    [32]sync.Mutex
	compiled   *pillars  // compiled pillars in memory; nil when they are stored in files
	memoryOnly bool      // compiled pillars are not stored in the bank Pillar
	bound      written   // counts the bytes written to files of compiled pillars
	shared     *versions // versions of the entries for the other masters; nil without a cluster

	resources changed // changes of the bank Resources

	tokens     string    // folder of tokens; "" when tokens are not shared
	tokensSeen time.Time // modification time of the folder tokens at the last check
}

// Open creates the folders below dir and opens the store. valid checks ids (keys.ValidID). memory
// bounds the memory of entries in bytes; the memory of one entry is estimated as six times its
// packed size. Overflow policy: the least recently used entries are dropped from memory; Get reads
// them from their files.
func Open(dir string, memory int64, valid func(id string) error) (*Store, error) {
	for _, b := range banks {
		if err := os.MkdirAll(filepath.Join(dir, string(b)), 0o700); err != nil {
			return nil, fmt.Errorf("create the minion cache: %w", err)
		}
	}
	return &Store{dir: dir, valid: valid, mem: newMemory(memory)}, nil
}

// leftover is the age at which a temporary file no longer has a writer.
const leftover = time.Hour

// Sweep removes the files that interrupted writes have left, for example after a power cut.
func (s *Store) Sweep(now time.Time) error {
	var errs []error
	for _, b := range banks {
		entries, err := os.ReadDir(filepath.Join(s.dir, string(b)))
		errs = append(errs, err)
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), newPrefix) || !e.Type().IsRegular() {
				continue
			}
			if info, err := e.Info(); err == nil && now.Sub(info.ModTime()) > leftover {
				errs = append(errs, os.Remove(filepath.Join(s.dir, string(b), e.Name())))
			}
		}
	}

	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("sweep the minion cache: %w", err)
	}

	return nil
}

func (s *Store) entryPath(b Bank, id string) string { return filepath.Join(s.folder(b), id+".p") }

func (s *Store) folder(b Bank) string {
	if b == Tokens {
		return s.tokens
	}
	return filepath.Join(s.dir, string(b))
}

// ShareTokens adds the tokens in a folder to the entries that this master shares with other
// masters. Call it before Share.
func (s *Store) ShareTokens(dir string) { s.tokens = dir }

// sharedBanks returns the banks whose entries this store shares.
func (s *Store) sharedBanks() []Bank {
	if s.tokens != "" {
		return withTokens
	}
	return banks
}

// Get returns an entry, or false when there is none or its file cannot be read.
func (s *Store) Get(b Bank, id string) (*value.Map, bool) {
	if s.valid(id) != nil {
		return nil, false
	}
	return s.readEntry(b, id)
}

func (s *Store) readEntry(b Bank, id string) (*value.Map, bool) {
	path := s.entryPath(b, id)
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxEntry {
		s.mem.dropEntry(b, id)
		return nil, false
	}

	sig := signature(info)
	if m, ok := s.mem.get(b, id, sig); ok {
		return m, true
	}

	packed, err := durable.Read(path, maxEntry)
	if err != nil {
		return nil, false
	}

	m, ok := entry.Unpack(packed)
	if !ok {
		return nil, false
	}

	s.mem.put(b, id, sig, m, packed)
	return m, true
}

// Changed returns when the data of a minion last changed on this disk. ok is false if there is none.
func (s *Store) Changed(b Bank, id string) (at time.Time, ok bool) {
	if s.valid(id) != nil {
		return time.Time{}, false
	}
	info, err := os.Stat(s.entryPath(b, id))
	if err != nil {
		return time.Time{}, false
	}
	return info.ModTime(), true
}

// Set replaces an entry and reports whether it has changed. It does not write the entry if the
// packed form in memory is the same.
func (s *Store) Set(b Bank, id string, m *value.Map) (changed bool, err error) {
	if err := s.valid(id); err != nil {
		return false, err
	}
	defer s.lockEntry(b, id)()
	return s.writeEntry(b, id, m, 0)
}

// writeEntry writes an entry that was derived from version base (0: from no version), and reports
// whether the entry has changed. The caller has locked the entry.
func (s *Store) writeEntry(b Bank, id string, m *value.Map, base int64) (bool, error) {
	packed, err := entry.Pack(m, true)
	if err != nil {
		return false, fmt.Errorf("store the %s of %s: %w", b, id, err)
	}

	path := s.entryPath(b, id)
	if info, err := os.Lstat(path); err == nil {
		if old, ok := s.mem.packed(b, id, signature(info)); ok && bytes.Equal(old, packed) {
			return false, nil
		}
	}

	var at int64
	if s.isShared(b) {
		at = s.shared.nextVersion()
	}

	if err := replace(path, packed, at); err != nil {
		return false, fmt.Errorf("store the %s of %s: %w", b, id, err)
	}

	s.noteChange(b, id)
	info, err := os.Lstat(path)
	if err != nil {
		return true, nil
	}

	if at != 0 {
		s.changedHere(memKey{b, id}, versionOfFile(info, at, base))
	}

	s.mem.put(b, id, signature(info), m.Clone(), packed)
	return true, nil
}

// changed collects the ids of the entries of a bank that have changed.
type changed struct {
	mu  sync.Mutex
	ids map[string]bool
}

// noteChange records that an entry has changed, if somebody keeps an index of its bank.
func (s *Store) noteChange(b Bank, id string) {
	if b != Resources {
		return
	}
	s.resources.mu.Lock()
	defer s.resources.mu.Unlock()
	if s.resources.ids == nil {
		s.resources.ids = map[string]bool{}
	}
	s.resources.ids[id] = true
}

// TakeResourceChanges returns and forgets the ids of the entries of the bank Resources that have
// changed since the last call, so only one caller can keep an index by it. Read the entries after
// the call: an entry that changes meanwhile is returned again.
func (s *Store) TakeResourceChanges() []string {
	s.resources.mu.Lock()
	defer s.resources.mu.Unlock()
	ids := slices.Collect(maps.Keys(s.resources.ids))
	clear(s.resources.ids)
	return ids
}

func (s *Store) lockEntry(b Bank, id string) func() {
	n := uint(len(b))
	for _, c := range []byte(id) {
		n = n*31 + uint(c)
	}
	m := &s.writing[n%uint(len(s.writing))]
	m.Lock()
	return m.Unlock
}

// Update merges data into an entry, as the request _mine does. If clear is set, it replaces the
// entry instead.
func (s *Store) Update(b Bank, id string, data *value.Map, clear bool) error {
	if err := s.valid(id); err != nil {
		return err
	}
	defer s.lockEntry(b, id)()

	m := value.NewMap()
	if old, ok := s.Get(b, id); ok && !clear {
		m = old.Clone()
	}

	m.Update(data)
	base := s.baseVersion(b, id)
	if clear {
		base = 0
	}

	_, err := s.writeEntry(b, id, m, base)
	return err
}

// Remove removes one key from an entry, as the request _mine_delete does.
func (s *Store) Remove(b Bank, id, key string) error {
	if err := s.valid(id); err != nil {
		return err
	}
	defer s.lockEntry(b, id)()

	old, ok := s.Get(b, id)
	if !ok {
		return nil
	}

	if _, ok := old.Get(key); !ok {
		return nil
	}

	m := old.Clone()
	m.Delete(key)
	_, err := s.writeEntry(b, id, m, s.baseVersion(b, id))
	return err
}

// Flush removes an entry from memory and disk, and shares the removal.
func (s *Store) Flush(b Bank, id string) error {
	if err := s.valid(id); err != nil {
		return err
	}
	defer s.lockEntry(b, id)()

	k := memKey{b, id}
	if s.isShared(b) {
		if v, ok := s.shared.get(k); ok && !v.gone {
			at := s.shared.nextVersion()
			if err := s.removeEntry(k, at); err != nil {
				return err
			}
			s.changedHere(k, version{at, at, true})
			return nil
		}
	}

	if err := s.remove(b, id); err != nil {
		return fmt.Errorf("remove the %s of %s: %w", b, id, err)
	}

	return nil
}

// remove removes the file of an entry. The caller has locked the entry.
func (s *Store) remove(b Bank, id string) error {
	s.mem.dropEntry(b, id)
	defer s.noteChange(b, id)
	if err := os.Remove(s.entryPath(b, id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Forget removes all entries of a minion, including its pillars of other environments
// (<id>:<pillarenv>).
func (s *Store) Forget(id string) error {
	if err := s.valid(id); err != nil {
		return err
	}
	var errs []error
	for _, b := range banks {
		errs = append(errs, s.Flush(b, id))
	}
	more, err := filepath.Glob(filepath.Join(s.dir, string(Pillar), escape(id)+":*.p"))
	errs = append(errs, err)
	for _, p := range more {
		errs = append(errs, os.Remove(p))
	}
	return errors.Join(append(errs, s.FlushCompiled(id))...)
}

func escape(id string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(id)
}

// IDs returns the minions that have an entry in a bank, sorted.
func (s *Store) IDs(b Bank) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(s.dir, string(b)))
	if err != nil {
		return nil, fmt.Errorf("list the %s of minions: %w", b, err)
	}
	var out []string
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), ".p")
		if ok && e.Type().IsRegular() && s.valid(id) == nil {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out, nil
}

// newPrefix is the beginning of a temporary file's name. No minion id may begin with it.
const newPrefix = ".new-"

// replace writes a temporary file and renames it, so that a reader sees either the old or the new
// content. It does not sync the file: a crash may leave an empty file, but minions or other masters
// send the data again. modTime is the modification time in nanoseconds since 1970; 0 means now.
func replace(path string, data []byte, modTime int64) error {
	f, err := os.CreateTemp(filepath.Dir(path), newPrefix+"*")
	if err != nil {
		return err
	}

	_, err = f.Write(data)
	err = errors.Join(err, f.Close())
	if err == nil && modTime != 0 {
		err = os.Chtimes(f.Name(), time.Unix(0, modTime), time.Unix(0, modTime))
	}

	if err == nil {
		err = change(f.Name(), path)
	}

	if err != nil {
		_ = os.Remove(f.Name())
	}

	return err
}

// change moves the file newer to path. If possible it exchanges the two files and removes the old
// one: an ordinary rename makes ext4 write the new data at once, which doubles the time of replace.
func change(newer, path string) error {
	if unix.Renameat2(unix.AT_FDCWD, newer, unix.AT_FDCWD, path, unix.RENAME_EXCHANGE) == nil {
		return os.Remove(newer) // after the exchange this is the old file
	}
	return os.Rename(newer, path) // path does not exist, or the file system cannot exchange files
}
