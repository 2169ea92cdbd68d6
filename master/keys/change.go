package keys

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"saltern/master/crypt"
)

func (s *Store) fileMode() os.FileMode {
	if s.cfg.Permissive {
		return 0o640
	}
	return 0o600
}

// Put stores a key in a state and takes the id out of the other states
// (Denied stays as it is). The key must be acceptable to crypt.ParsePublic
// within the configured bounds. Errors are ErrID, crypt.ErrPublicKey,
// ErrPendingFull or those of the disk.
func (s *Store) Put(id string, st State, pem string) error {
	if err := ValidID(id); err != nil {
		return err
	}
	if st != Accepted && st != Pending && st != Rejected {
		return fmt.Errorf("store a key as %s: no such state", st)
	}

	if _, err := s.cfg.Bounds.ParsePublic([]byte(pem)); err != nil {
		return fmt.Errorf("store the key of %q: %w", id, err)
	}
	defer s.lockID(id)()

	if err := s.markRemoved(id); err != nil { // what was claimed for it is replaced
		return err
	}

	return s.put(id, st, pem, others(st))
}

// put writes the file and removes those elsewhere; the stripe is held.
func (s *Store) put(id string, st State, pem string, elsewhere []State) error {
	if st == Pending {
		release, err := s.reserve(id)
		if err != nil {
			return err
		}
		defer release()
	}
	if err := s.write(id, st, pem); err != nil {
		return fmt.Errorf("store the %s key of %q: %w", st, id, err)
	}
	return s.drop(id, elsewhere...)
}

// Swap is Put under the condition that the key of id is still the one that
// the caller has looked up (the zero Entry: none). The folders themselves are
// asked, so that a decision of an administrator or another master that this
// store has not yet seen is not overwritten. Otherwise it returns ErrChanged
// and the caller should look again.
func (s *Store) Swap(id string, old Entry, st State, pem string) error {
	return s.SwapFrom(netip.Addr{}, id, old, st, pem)
}

// SwapFrom is Swap for a key that has come from an address, whose share of the
// pending keys it counts to (see Config.PendingPerSource). A new key that finds
// no room there is ErrPendingFull.
func (s *Store) SwapFrom(from netip.Addr, id string, old Entry, st State, pem string) error {
	if err := ValidID(id); err != nil {
		return err
	}
	if st != Accepted && st != Pending && st != Rejected {
		return fmt.Errorf("store a key as %s: no such state", st)
	}

	if _, err := s.cfg.Bounds.ParsePublic([]byte(pem)); err != nil {
		return fmt.Errorf("store the key of %q: %w", id, err)
	}

	if _, has := s.Lookup(id); !has && old.State == None {
		switch st {
		case Pending:
			done, err := s.admit(from, id, pem)
			if err != nil {
				return err
			}
			defer done()
		case Rejected:
			if n := s.Count(Rejected); n >= s.cfg.MaxPending {
				return fmt.Errorf("store a rejected key: %w (%d)", ErrPendingFull, n)
			}
			if err := s.pend.pay(from); err != nil {
				return err
			}
		}
	}

	defer s.lockID(id)()
	if s.in != nil && s.in.master != "" && old.State == None && st != Rejected {
		if _, ok := s.Lookup(id); ok {
			return fmt.Errorf("store the key of %q as %s: %w", id, st, ErrChanged)
		}
		if err := s.claim(id, st, pem); !errors.Is(err, errIncomingFull) {
			return err
		}
	}

	if s.in != nil && (old.file == nil || old.file.claim != nil) {
		if err := s.settleAll(id); err != nil {
			return err
		}
	}

	look := lookupOrder[:]
	if old.State == None {
		look = others(st) // making the file reports whether one was there
	}

	_ = s.examineLocked(id, look...) // what cannot be read is as it was
	if now, _ := s.Lookup(id); now.State != old.State || now.Gen != old.Gen {
		return fmt.Errorf("store the key of %q as %s: %w", id, st, ErrChanged)
	}
	if old.State == None {
		return s.putNew(id, st, pem)
	}

	// What was not there a moment ago is not asked for again: on a volume each
	// question goes to all its servers.
	elsewhere := slices.DeleteFunc(others(st), func(o State) bool { return !s.has(o, id) })
	return s.put(id, st, pem, elsewhere)
}

// putNew makes the file of an id that has none; the stripe is held. Of several
// masters one makes it, the others get ErrChanged. It takes half as long on a
// volume as writing aside and renaming. Until it is written it is empty, which
// counts as not there, for Salt's masters too, who write such files in place.
func (s *Store) putNew(id string, st State, pem string) error {
	fail := func(err error) error { return fmt.Errorf("store the %s key of %q: %w", st, id, err) }
	if st == Pending {
		release, err := s.reserve(id)
		if err != nil {
			return err
		}
		defer release()
	}

	pem = crypt.NormalizePEM(pem)
	sig, err := createFile(s.path(st, id), []byte(pem), s.fileMode())
	if errors.Is(err, os.ErrExist) {
		s.awaitWriter(id, st)
		if s.has(st, id) || !abandoned(s.path(st, id)) {
			return fail(ErrChanged)
		}
		sig, err = replaceFile(s.path(st, id), []byte(pem), s.fileMode())
	}

	if err == nil {
		err = s.sync(st)
	}

	if err != nil {
		return fail(err)
	}

	s.apply(id, map[State]*keyFile{st: s.newFile(pem, sig, s.file(st, id))})
	return nil
}

// awaitWriter waits a moment for the content of a file that another master has
// made; the stripe is held.
func (s *Store) awaitWriter(id string, st State) {
	for wait := 5 * time.Millisecond; ; wait *= 2 {
		_ = s.examineLocked(id, st)
		if f := s.file(st, id); f != nil && f.claim == nil || wait > time.Second || abandoned(s.path(st, id)) {
			return
		}
		if _, err := lstat(s.path(st, id)); errors.Is(err, os.ErrNotExist) {
			return
		}
		time.Sleep(wait)
	}
}

// reserve takes one of the places for pending keys until the file is in the
// index, so that concurrent sign-ins cannot exceed the bound together.
func (s *Store) reserve(id string) (release func(), err error) {
	if s.has(Pending, id) {
		return func() {}, nil
	}
	if int64(s.Count(Pending))+s.waiting.Add(1) > int64(s.cfg.MaxPending) {
		s.waiting.Add(-1)
		return nil, fmt.Errorf("store a pending key: %w (%d)", ErrPendingFull, s.cfg.MaxPending)
	}
	return func() { s.waiting.Add(-1) }, nil
}

func (s *Store) has(st State, id string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.files[st][id] != nil
}

func (s *Store) file(st State, id string) *keyFile {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.files[st][id]
}

func others(keep State) (out []State) {
	for _, st := range lookupOrder {
		if st != keep {
			out = append(out, st)
		}
	}
	return out
}

// write stores a file and indexes it; the stripe is held.
func (s *Store) write(id string, st State, pem string) error {
	pem = crypt.NormalizePEM(pem)
	sig, err := replaceFile(s.path(st, id), []byte(pem), s.fileMode())
	if err != nil {
		return err
	}
	if err := s.sync(st); err != nil {
		return err
	}
	s.apply(id, map[State]*keyFile{st: s.newFile(pem, sig, s.file(st, id))})
	return nil
}

// drop removes the files of some states; the stripe is held.
func (s *Store) drop(id string, states ...State) error {
	var errs []error
	found := map[State]*keyFile{}
	for _, st := range states {
		gone, err := remove(s.path(st, id))
		if err == nil && gone {
			err = s.sync(st)
		}

		if err != nil {
			errs = append(errs, fmt.Errorf("remove the %s key of %q: %w", st, id, err))
			continue
		}

		found[st] = nil
	}

	s.apply(id, found)
	return errors.Join(errs...)
}

// Move gives the key of a minion another state, as salt-key -a and -r do. A
// denied key is not moved; see Denied and Put. Without a key it returns
// ErrUnknown.
func (s *Store) Move(id string, to State) error {
	if err := ValidID(id); err != nil {
		return err
	}
	if to != Accepted && to != Pending && to != Rejected {
		return fmt.Errorf("move a key to %s: no such state", to)
	}
	defer s.lockID(id)()

	s.mu.RLock()
	from, f := s.effective(id)
	s.mu.RUnlock()

	if s.in != nil && (f == nil || f.claim != nil) {
		if err := s.settleAll(id); err != nil {
			return fmt.Errorf("move the key of %q to %s: %w", id, to, err)
		}
		s.mu.RLock()
		from, f = s.effective(id)
		s.mu.RUnlock()
	}

	if f == nil {
		return fmt.Errorf("move the key of %q to %s: %w", id, to, ErrUnknown)
	}

	if from != to {
		if err := s.rename(id, from, to, f); err != nil {
			return fmt.Errorf("move the key of %q from %s to %s: %w", id, from, to, err)
		}
	}

	return s.drop(id, others(to)...)
}

func (s *Store) rename(id string, from, to State, f *keyFile) error {
	if err := os.Rename(s.path(from, id), s.path(to, id)); err != nil {
		return err
	}

	for _, st := range []State{to, from} {
		if err := s.sync(st); err != nil {
			return err
		}
	}

	// Somebody may have replaced the file since it was read: take what is
	// there now, not what was there.
	now, err := s.load(id, to, f)
	if err != nil {
		return err
	}

	s.apply(id, map[State]*keyFile{from: nil, to: now})
	return nil
}

// Delete removes the key of a minion from the given states, or from all four
// when none is given. A key that is not there is no error.
func (s *Store) Delete(id string, states ...State) error {
	if err := ValidID(id); err != nil {
		return err
	}

	if len(states) == 0 {
		states = []State{Accepted, Pending, Rejected, Denied}
	}

	for _, st := range states {
		if st == None || st >= numStates {
			return fmt.Errorf("delete a key from %s: no such state", st)
		}
	}

	defer s.lockID(id)()
	if slices.ContainsFunc(states, func(st State) bool { return st != Denied }) {
		if err := s.markRemoved(id); err != nil {
			return err
		}
	}

	return s.drop(id, states...)
}

// Deny remembers a key that was offered for id and did not match the one on
// file. Only the first such key is kept until it is deleted, as with Salt's
// folders; further ones cost no disk access. A key that would not be
// acceptable in any state is not stored.
func (s *Store) Deny(id, pem string) error { return s.DenyFrom(netip.Addr{}, id, pem) }

// DenyFrom is Deny for a key that has come from an address, which may send as
// many of them in a time as of new keys.
func (s *Store) DenyFrom(from netip.Addr, id, pem string) error {
	if err := ValidID(id); err != nil {
		return err
	}
	if s.has(Denied, id) {
		return nil
	}

	if n := s.Count(Denied); n >= s.cfg.MaxPending {
		return fmt.Errorf("store the denied key of %q: %w (%d)", id, ErrPendingFull, n)
	}

	if _, err := s.cfg.Bounds.ParsePublic([]byte(pem)); err != nil {
		return fmt.Errorf("store the denied key of %q: %w", id, err)
	}

	if err := s.pend.pay(from); err != nil {
		return err
	}
	defer s.lockID(id)()

	if s.has(Denied, id) {
		return nil
	}

	if err := s.write(id, Denied, pem); err != nil {
		return fmt.Errorf("store the denied key of %q: %w", id, err)
	}

	return nil
}

// AutosignDir is the folder <pki_dir>/minions_autosign.
func (s *Store) AutosignDir() string { return filepath.Join(s.dir, autosignDir) }
