package cache

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"saltern/internal/durable"
)

// Masters of one cluster have the same entries. The version of an entry is the modification time of
// its file in nanoseconds: it survives a restart, and tools of Salt that write the file create a
// newer one. The version of a change on this master is greater than the version that it replaces,
// every version that this master has seen, and the time of the clock. So neither a restart nor a
// clock that is set back can revert an entry. A removed entry leaves an empty file below goneDir,
// whose version is that of the removal.
const goneDir = ".saltern_gone"

// Limits of the stored removals. Overflow policy: the oldest removals are dropped. A master that
// was unreachable for longer than keepGone may restore removed data.
const (
	keepGone = 30 * 24 * time.Hour
	maxGone  = 100_000
)

// Buckets is the number of parts into which masters divide the entries to compare them.
const Buckets = 256

// Entry is an entry in the form in which masters exchange it.
type Entry struct {
	Bank Bank
	ID   string
	// At is the version of the entry. Base is the version from which the entry was derived; if the
	// entry replaces all earlier versions, Base equals At.
	At, Base int64
	Gone     bool   // the entry was removed
	Packed   []byte // content of the entry's file; nil if not included
}

type version struct {
	at, base int64
	gone     bool
}

// versions records the version of each entry.
type versions struct {
	announce func(b Bank, id string) // tells the other masters that an entry has changed here
	// last digits of this master's versions, which distinguish them from other masters' versions;
	// see nextVersion
	number int64

	mu          sync.Mutex
	lastVersion int64
	known       map[memKey]version
	sums        [Buckets]uint64
}

func bucket(id string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	return int(h.Sum32() % Buckets)
}

// bucketSum returns the value that a version of an entry adds to the sum of its bucket.
func (v version) bucketSum(k memKey) uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s\x00%s\x00%d %t", k.bank, k.id, v.at, v.gone)
	return h.Sum64()
}

func (s *versions) get(k memKey) (version, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.known[k]
	return v, ok
}

func (s *versions) noteVersion(k memKey, v version) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := bucket(k.id)
	if old, ok := s.known[k]; ok {
		s.sums[at] ^= old.bucketSum(k)
	}
	s.sums[at] ^= v.bucketSum(k)
	s.known[k], s.lastVersion = v, max(s.lastVersion, v.at)
}

func (s *versions) forget(k memKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, ok := s.known[k]; ok {
		s.sums[bucket(k.id)] ^= old.bucketSum(k)
		delete(s.known, k)
	}
}

// nextVersion returns the version of a change made now: the time in microseconds, and in the last
// digits a number that other masters are unlikely to use. So two changes practically never have the
// same version.
func (s *versions) nextVersion() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := max(s.lastVersion, time.Now().UnixNano())&^(numbers-1) | s.number
	if at <= s.lastVersion {
		at += numbers
	}
	s.lastVersion = at
	return at
}

// numbers is the number of versions that differ within one microsecond.
const numbers = 1 << 10

// Share starts to record versions of the entries, and calls announce for each entry that this
// master changes. announce must not block, since the entry is locked during the call. Share must be
// called before several goroutines use the store.
func (s *Store) Share(announce func(b Bank, id string)) error {
	s.shared = &versions{announce: announce, number: rand.Int64N(numbers), known: map[memKey]version{}}
	for _, b := range s.sharedBanks() {
		gone := filepath.Join(s.dir, goneDir, string(b))
		if err := os.MkdirAll(gone, 0o700); err != nil {
			return fmt.Errorf("share the minion cache: %w", err)
		}

		err := eachFile(gone, "", func(id string, at int64) {
			s.shared.noteVersion(memKey{b, id}, version{at, at, true})
		})
		if err == nil {
			err = eachFile(s.folder(b), ".p", func(id string, at int64) {
				k := memKey{b, id}
				switch v, ok := s.shared.get(k); {
				case s.valid(id) != nil:
				case !ok || v.at < at:
					s.noteLive(k, version{at: at, base: at})
				default: // a crash has interrupted the removal
					_ = os.Remove(s.entryPath(b, id))
				}
			})
		}

		if err != nil {
			return fmt.Errorf("share the minion cache: %w", err)
		}
	}

	return nil
}

// eachFile calls f for the regular files of a folder whose names end in suffix, with their
// modification times. If suffix is not "", the files are entries, and eachFile skips empty files: a
// power cut has lost their data, and other masters will send it again.
func eachFile(dir, suffix string, f func(id string, at int64)) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}

	for _, e := range entries {
		name := e.Name()
		if !e.Type().IsRegular() || filepath.Ext(name) != suffix && suffix != "" {
			continue
		}
		if info, err := e.Info(); err == nil && (suffix == "" || info.Size() > 0) {
			f(name[:len(name)-len(suffix)], info.ModTime().UnixNano())
		}
	}

	return nil
}

// isShared reports whether the store records versions of a bank.
func (s *Store) isShared(b Bank) bool { return s.shared != nil && slices.Contains(s.sharedBanks(), b) }

// noteLive records the version of an entry that has a file, and deletes the record of an earlier
// removal of that entry.
func (s *Store) noteLive(k memKey, v version) {
	if old, ok := s.shared.get(k); ok && old.gone {
		_ = os.Remove(s.gonePath(k)) // if this fails, the next start compares the two versions
	}
	s.shared.noteVersion(k, v)
}

// changedHere records a change that this master has made, under the version of the written file,
// and announces it to the other masters. The caller has locked the entry.
func (s *Store) changedHere(k memKey, v version) {
	s.noteLive(k, v)
	s.shared.announce(k.bank, k.id)
}

// removeEntry removes an entry and stores its removal with that version. The caller has locked the
// entry.
func (s *Store) removeEntry(k memKey, version int64) error {
	path := s.gonePath(k)
	err := os.WriteFile(path, nil, 0o600)
	if err == nil {
		err = os.Chtimes(path, time.Unix(0, version), time.Unix(0, version))
	}
	if err == nil {
		err = s.remove(k.bank, k.id)
	}
	if err != nil {
		return fmt.Errorf("remove the %s of %s: %w", k.bank, k.id, err)
	}
	return nil
}

func (s *Store) gonePath(k memKey) string {
	return filepath.Join(s.dir, goneDir, string(k.bank), k.id)
}

// Sums returns a checksum of each bucket. Masters with equal sums have the same entries.
func (s *Store) Sums() [Buckets]uint64 {
	s.shared.mu.Lock()
	defer s.shared.mu.Unlock()
	return s.shared.sums
}

// Entries returns the entries in some buckets, without their content.
func (s *Store) Entries(buckets map[int]bool) []Entry {
	s.shared.mu.Lock()
	defer s.shared.mu.Unlock()
	var out []Entry
	for k, v := range s.shared.known {
		if buckets[bucket(k.id)] {
			out = append(out, Entry{
				Bank: k.bank,
				ID:   k.id,
				At:   v.at,
				Base: v.base,
				Gone: v.gone,
			})
		}
	}

	return out
}

// Entry returns an entry with its content, or false when this master knows no version of it.
func (s *Store) Entry(b Bank, id string) (Entry, bool) {
	if !s.isShared(b) || s.valid(id) != nil {
		return Entry{}, false
	}
	defer s.lockEntry(b, id)()

	v, ok := s.shared.get(memKey{b, id})
	e := Entry{
		Bank: b,
		ID:   id,
		At:   v.at,
		Base: v.base,
		Gone: v.gone,
	}

	if !ok || v.gone {
		return e, ok
	}

	packed, err := durable.Read(s.entryPath(b, id), maxEntry)
	e.Packed = packed
	return e, err == nil && len(packed) > 0
}

// Outcome is the result of Take.
type Outcome uint8

// The outcomes.
const (
	Old    Outcome = iota // this master has this version or a newer one
	Taken                 // this master has stored the entry
	Wanted                // this master needs the entry's content to store it
)

// Take stores an entry of another master if it is newer than this master's entry. If two masters
// have changed a mine at the same time, Take merges the functions of both mines.
func (s *Store) Take(e Entry) (Outcome, error) {
	if !s.isShared(e.Bank) || s.valid(e.ID) != nil || e.At <= 0 || len(e.Packed) > maxEntry {
		return Old, fmt.Errorf("take the %.20q of %.100q: not an entry", e.Bank, e.ID)
	}
	defer s.lockEntry(e.Bank, e.ID)()

	k := memKey{e.Bank, e.ID}
	old, known := s.shared.get(k)
	both := known && e.Bank == Mine && !old.gone && !e.Gone &&
		(e.At > old.at && e.Base < old.at || e.At < old.at && old.base < e.At)
	switch {
	case known && e.At <= old.at && !both:
		return Old, nil
	case e.Gone:
		if err := s.removeEntry(k, e.At); err != nil {
			return Old, err
		}
		s.shared.noteVersion(k, version{e.At, e.At, true})
		return Taken, nil
	case e.Packed == nil:
		return Wanted, nil
	case both:
		return s.uniteMines(k, old, e)
	}

	return Taken, s.writeForeign(k, e)
}

// writeForeign stores an entry of another master. The caller has locked the entry.
func (s *Store) writeForeign(k memKey, e Entry) error {
	s.mem.dropEntry(k.bank, k.id)
	if err := replace(s.entryPath(k.bank, k.id), e.Packed, e.At); err != nil {
		return fmt.Errorf("store the %s of %s: %w", k.bank, k.id, err)
	}
	s.noteLive(k, version{at: e.At, base: e.Base})
	s.noteChange(k.bank, k.id)
	return nil
}

// uniteMines merges two mines. If both have a function, it keeps the data of the newer mine. The
// merging between masters ends when the newest mine has all functions, because all masters take
// that mine.
func (s *Store) uniteMines(k memKey, old version, e Entry) (Outcome, error) {
	theirs, ok := entry.Unpack(e.Packed)
	ours, have := s.readEntry(k.bank, k.id)
	if !ok || !have {
		return Old, fmt.Errorf("take the mine of %s: it cannot be read", k.id)
	}

	older, newer := ours, theirs
	if e.At < old.at {
		older, newer = theirs, ours
	}

	m := older.Clone()
	m.Update(newer)
	switch {
	case m.Len() > newer.Len():
		s.mem.dropEntry(k.bank, k.id) // the version is new even if the content is not
		_, err := s.writeEntry(k.bank, k.id, m, min(old.base, e.Base))
		return Taken, err
	case e.At < old.at:
		return Old, nil
	}

	return Taken, s.writeForeign(k, e)
}

// Rescan records the changes that other programs made to the files, and deletes the records of
// removals that are too old. If another program has removed data of minions, the other masters
// restore the data. If it has removed a token, all masters remove the token.
func (s *Store) Rescan(now time.Time) error {
	var errs []error
	for _, b := range s.sharedBanks() {
		errs = append(errs, s.rescan(b))
	}

	type grave struct {
		key memKey
		at  int64
	}

	var graves []grave
	s.shared.mu.Lock()
	for k, v := range s.shared.known {
		if v.gone {
			graves = append(graves, grave{k, v.at})
		}
	}
	s.shared.mu.Unlock()

	slices.SortFunc(graves, func(a, b grave) int { return cmp.Compare(b.at, a.at) })
	for i, g := range graves {
		if i >= maxGone || now.Sub(time.Unix(0, g.at)) > keepGone {
			s.shared.forget(g.key)
			_ = os.Remove(s.gonePath(g.key))
		}
	}

	return errors.Join(errs...)
}

// RescanTokens works like Rescan, but only for tokens, and only if their folder has changed since
// the last call. Only one goroutine may call it.
func (s *Store) RescanTokens() error {
	if s.tokens == "" {
		return nil
	}
	info, err := os.Stat(s.tokens)
	if err != nil {
		return fmt.Errorf("look at the tokens: %w", err)
	}
	if at := info.ModTime(); at != s.tokensSeen ||
		time.Since(at) < 2*time.Second { // the folder may change again within the resolution of its time
		s.tokensSeen = at
		return s.rescan(Tokens)
	}
	return nil
}

func (s *Store) rescan(b Bank) error {
	found := map[memKey]bool{}
	var errs []error
	err := eachFile(s.folder(b), ".p", func(id string, at int64) {
		k := memKey{b, id}
		found[k] = true
		if v, ok := s.shared.get(k); s.valid(id) == nil && (!ok || v.gone || !sameTime(v.at, at)) {
			errs = append(errs, s.adoptFile(k))
		}
	})
	if err != nil {
		return fmt.Errorf("look at the minion cache: %w", err)
	}

	var lost []memKey
	s.shared.mu.Lock()
	for k, v := range s.shared.known {
		if k.bank == b && !v.gone && !found[k] {
			lost = append(lost, k)
		}
	}
	s.shared.mu.Unlock()

	for _, k := range lost {
		errs = append(errs, s.adoptFile(k))
	}

	return errors.Join(errs...)
}

// adoptFile records the version of an entry whose file another program may have changed.
func (s *Store) adoptFile(k memKey) error {
	defer s.lockEntry(k.bank, k.id)()
	v, known := s.shared.get(k)
	info, err := os.Lstat(s.entryPath(k.bank, k.id))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if !known || v.gone {
			return nil
		}
		if k.bank != Tokens {
			s.shared.forget(k)
			return nil
		}

		at := s.shared.nextVersion()
		if err := s.removeEntry(k, at); err != nil {
			return err
		}

		s.changedHere(k, version{at, at, true})
		return nil
	case err != nil:
		return err
	case known && !v.gone && sameTime(v.at, info.ModTime().UnixNano()):
		return nil // this master has changed the entry meanwhile
	}

	at := info.ModTime().UnixNano()
	if at <= v.at {
		at = s.shared.nextVersion()
		if err := os.Chtimes(s.entryPath(k.bank, k.id), time.Unix(0, at), time.Unix(0, at)); err != nil {
			return err
		}
	}

	s.changedHere(k, version{at: at, base: at})
	return nil
}

// sameTime reports whether two times are equal. A time in whole seconds equals any time within the
// same second, since some file systems store only whole seconds.
func sameTime(a, b int64) bool {
	second := int64(time.Second)
	return a == b || b%second == 0 && a/second == b/second
}

// versionOfFile returns the version of an entry that this master has just written. The version is
// at, unless the time of the file shows that the file system has changed it. base is the version
// from which the entry was derived (0: from no version).
func versionOfFile(info fs.FileInfo, at, base int64) version {
	if t := info.ModTime().UnixNano(); !sameTime(at, t) {
		at = t
	}
	base = cmp.Or(base, at)
	return version{at: at, base: base}
}

// baseVersion returns the version from which a change of an entry is derived. The caller has locked
// the entry.
func (s *Store) baseVersion(b Bank, id string) int64 {
	if !s.isShared(b) {
		return 0
	}
	v, _ := s.shared.get(memKey{b, id})
	return v.at
}
