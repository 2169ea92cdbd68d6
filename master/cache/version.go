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

// Masters of one cluster have the same entries. Each entry has a version, the time
// of change of its file in nanoseconds: it outlives a restart, and tools of Salt that
// write the file make a newer one. A change here is always newer than what it
// replaces, than all that was ever seen here, and than the clock, so neither a restart
// nor a clock that is set back turns an entry back. An entry that was removed leaves
// an empty file below goneDir with the version of its removal.
const goneDir = ".saltern_gone"

// bounds of what is remembered of removed entries. Overflow policy: the oldest are
// forgotten; a master that was away for longer may bring their data back.
const (
	keepGone = 30 * 24 * time.Hour
	maxGone  = 100_000
)

// Buckets is how many parts the entries are compared in.
const Buckets = 256

// Entry is an entry as masters tell each other of it.
type Entry struct {
	Bank Bank
	ID   string
	// At is its version. Base is the one that it was made from; an entry that
	// replaces all before has its own.
	At, Base int64
	Gone     bool   // it was removed
	Packed   []byte // its file; nil: not told
}

type version struct {
	at, base int64
	gone     bool
}

// versions knows the version of each entry.
type versions struct {
	tell   func(b Bank, id string)
	number int64 // see next

	mu    sync.Mutex
	last  int64
	known map[memKey]version
	sums  [Buckets]uint64
}

func bucket(id string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	return int(h.Sum32() % Buckets)
}

// bucketSum returns what a version adds to the sum of its bucket.
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
	s.known[k], s.last = v, max(s.last, v.at)
}

func (s *versions) forget(k memKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, ok := s.known[k]; ok {
		s.sums[bucket(k.id)] ^= old.bucketSum(k)
		delete(s.known, k)
	}
}

// nextVersion returns the version of a change that is made now: the microsecond, and a number
// that other masters hardly have, so that no two changes have the same.
func (s *versions) nextVersion() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := max(s.last, time.Now().UnixNano())&^(numbers-1) | s.number
	if at <= s.last {
		at += numbers
	}
	s.last = at
	return at
}

// numbers are what versions of one microsecond are told apart by.
const numbers = 1 << 10

// Share has the store keep versions of its entries, and tell of each that is
// changed here. tell must not block; it is called with the entry locked. Call Share
// before the store is used by several goroutines.
func (s *Store) Share(tell func(b Bank, id string)) error {
	s.shared = &versions{tell: tell, number: rand.Int64N(numbers), known: map[memKey]version{}}
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
				default: // the removal was cut short
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

// eachFile gives the regular files of a folder and when they were changed. Of those with
// a suffix, which are entries, it passes over the empty ones, whose data a machine that
// lost power has not kept: other masters give it again.
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

// isShared reports whether a bank has versions.
func (s *Store) isShared(b Bank) bool { return s.shared != nil && slices.Contains(s.sharedBanks(), b) }

// noteLive notes the version of a file; what was remembered of a removal before goes.
func (s *Store) noteLive(k memKey, v version) {
	if old, ok := s.shared.get(k); ok && old.gone {
		_ = os.Remove(s.gonePath(k)) // a restart would compare the versions
	}
	s.shared.noteVersion(k, v)
}

// changedHere notes a change that was made here, under the version that its file
// has got; the entry is locked.
func (s *Store) changedHere(k memKey, v version) {
	s.noteLive(k, v)
	s.shared.tell(k.bank, k.id)
}

// removeEntry removes an entry and remembers that; it is locked.
func (s *Store) removeEntry(k memKey, at int64) error {
	path := s.gonePath(k)
	err := os.WriteFile(path, nil, 0o600)
	if err == nil {
		err = os.Chtimes(path, time.Unix(0, at), time.Unix(0, at))
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

// Sums returns what the entries of each bucket amount to: masters with the same sums
// have the same entries.
func (s *Store) Sums() [Buckets]uint64 {
	s.shared.mu.Lock()
	defer s.shared.mu.Unlock()
	return s.shared.sums
}

// Entries lists what is in some buckets, without the data.
func (s *Store) Entries(in map[int]bool) []Entry {
	s.shared.mu.Lock()
	defer s.shared.mu.Unlock()
	var out []Entry
	for k, v := range s.shared.known {
		if in[bucket(k.id)] {
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

// Entry returns an entry with its data, or false when nothing is known of it.
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

// Outcome is what became of an entry of another master.
type Outcome uint8

// The outcomes.
const (
	Old    Outcome = iota // this master has it, or a newer one
	Taken                 // it is the entry here as well
	Wanted                // it would be, with its data
)

// Take takes an entry of another master, if it is newer than the one here. Two mines
// that were changed at two masters at once become one, with the functions of both.
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

// writeForeign puts what another master has into the file of an entry; it is locked.
func (s *Store) writeForeign(k memKey, e Entry) error {
	s.mem.dropEntry(k.bank, k.id)
	if err := replace(s.entryPath(k.bank, k.id), e.Packed, e.At); err != nil {
		return fmt.Errorf("store the %s of %s: %w", k.bank, k.id, err)
	}
	s.noteLive(k, version{at: e.At, base: e.Base})
	return nil
}

// uniteMines makes one mine of two, in which the newer one's functions count. It ends when
// the newest holds all functions: that one is what all masters take.
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
		s.mem.dropEntry(k.bank, k.id) // a new version, even of the same
		_, err := s.writeEntry(k.bank, k.id, m, min(old.base, e.Base))
		return Taken, err
	case e.At < old.at:
		return Old, nil
	}

	return Taken, s.writeForeign(k, e)
}

// Rescan takes in what other programs have changed in the files, and forgets what is
// too old to remember. Minion data that was removed by another program comes back from
// the other masters; a token that was is removed from all of them.
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

// RescanTokens is Rescan for tokens alone, if their folder has changed since the last
// look. It is for one goroutine.
func (s *Store) RescanTokens() error {
	if s.tokens == "" {
		return nil
	}
	info, err := os.Stat(s.tokens)
	if err != nil {
		return fmt.Errorf("look at the tokens: %w", err)
	}
	if at := info.ModTime(); at != s.tokensSeen || time.Since(at) < 2*time.Second { // it may change again within a tick
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

// adoptFile brings the version of an entry in line with its file.
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
		return nil // changed by this master meanwhile
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

// sameTime allows for file systems that keep no parts of seconds.
func sameTime(a, b int64) bool {
	second := int64(time.Second)
	return a == b || b%second == 0 && a/second == b/second
}

// versionOfFile returns the version of an entry that has just been written here from base, 0 for
// none.
func versionOfFile(info fs.FileInfo, at, base int64) version {
	if t := info.ModTime().UnixNano(); !sameTime(at, t) {
		at = t
	}
	base = cmp.Or(base, at)
	return version{at: at, base: base}
}

// baseVersion returns the version that a change of an entry begins with; it is locked.
func (s *Store) baseVersion(b Bank, id string) int64 {
	if !s.isShared(b) {
		return 0
	}
	v, _ := s.shared.get(memKey{b, id})
	return v.at
}
