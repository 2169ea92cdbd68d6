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

// Put stores a key in a state and removes the id from the other states, except from the state
// Denied. The key must be acceptable to crypt.ParsePublic within the configured bounds. Put fails
// with ErrID, crypt.ErrPublicKey, ErrPendingFull or an error of the disk.
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

	if err := s.markRemoved(id); err != nil { // from here on claims are invalid, because the new key replaces them
		return err
	}

	return s.storeKey(id, st, pem, others(st))
}

// storeKey writes the file of a key and removes the id's files in otherStates. The caller holds the
// stripe lock of the id.
func (s *Store) storeKey(id string, st State, pem string, otherStates []State) error {
	if st == Pending {
		release, err := s.reserve(id)
		if err != nil {
			return err
		}
		defer release()
	}
	if err := s.writeKey(id, st, pem); err != nil {
		return fmt.Errorf("store the %s key of %q: %w", st, id, err)
	}
	return s.removeKeys(id, otherStates...)
}

// Swap works like Put, but only if the key of id has not changed since the caller looked it up.
// expected is the Entry that the caller found, or the zero Entry for no key. Swap checks the
// folders themselves, so that it does not overwrite a decision of an administrator or another
// master that this store has not seen yet. If the key has changed, Swap returns ErrChanged and the
// caller should look the key up again.
func (s *Store) Swap(id string, expected Entry, st State, pem string) error {
	return s.SwapFrom(netip.Addr{}, id, expected, st, pem)
}

// SwapFrom works like Swap, for a key that came from the address source. The key counts against the
// limits of that address (see Config.PendingPerSource). If a limit is reached, SwapFrom returns
// ErrPendingFull.
func (s *Store) SwapFrom(source netip.Addr, id string, old Entry, st State, pem string) error {
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
			release, err := s.admitPending(source, id, pem)
			if err != nil {
				return err
			}
			defer release()
		case Rejected:
			if n := s.Count(Rejected); n >= s.cfg.MaxPending {
				return fmt.Errorf("store a rejected key: %w (%d)", ErrPendingFull, n)
			}
			if err := s.pending.chargeRefused(source); err != nil {
				return err
			}
		}
	}

	defer s.lockID(id)()
	if s.incoming != nil && s.incoming.master != "" && old.State == None && st != Rejected {
		if _, ok := s.Lookup(id); ok {
			return fmt.Errorf("store the key of %q as %s: %w", id, st, ErrChanged)
		}
		if err := s.claimID(id, st, pem); !errors.Is(err, errIncomingFull) {
			return err
		}
	}

	if s.incoming != nil && (old.file == nil || old.file.claim != nil) {
		if err := s.settleAll(id); err != nil {
			return err
		}
	}

	look := lookupOrder[:]
	if old.State == None {
		look = others(st) // putNew fails if a file for the state st exists, so look at the other states only
	}

	_ = s.examineLocked(id, look...) // if a state's file cannot be read, the index keeps the key that it has for the state
	if now, _ := s.Lookup(id); now.State != old.State || now.Gen != old.Gen {
		return fmt.Errorf("store the key of %q as %s: %w", id, st, ErrChanged)
	}
	if old.State == None {
		return s.putNew(id, st, pem)
	}

	// Do not check the files that did not exist a moment ago: on a volume each check is a request
	// to all servers of the volume.
	elsewhere := slices.DeleteFunc(others(st), func(o State) bool { return !s.hasKey(o, id) })
	return s.storeKey(id, st, pem, elsewhere)
}

// putNew creates the file of an id that has none. The caller holds the stripe lock of the id. If
// several masters call putNew for the id, one succeeds; for the others putNew returns ErrChanged.
// On a volume putNew takes half as long as writing a temporary file and renaming it. Between
// creation and writing the file is empty. Readers treat an empty file as missing, and so do Salt's
// masters, which write key files in the same way.
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
	sig, err := createFile(s.keyPath(st, id), []byte(pem), s.fileMode())
	if errors.Is(err, os.ErrExist) {
		s.awaitWriter(id, st)
		if s.hasKey(st, id) || !abandoned(s.keyPath(st, id)) {
			return fail(ErrChanged)
		}
		sig, err = replaceFile(s.keyPath(st, id), []byte(pem), s.fileMode())
	}

	if err == nil {
		err = s.syncState(st)
	}

	if err != nil {
		return fail(err)
	}

	s.applyFound(id, map[State]*keyFile{st: s.newFile(pem, sig, s.keyFileOf(st, id))})
	return nil
}

// awaitWriter waits briefly until the master that has created a file has also written its content.
// The caller holds the stripe lock of the id.
func (s *Store) awaitWriter(id string, st State) {
	for wait := 5 * time.Millisecond; ; wait *= 2 {
		_ = s.examineLocked(id, st)
		if f := s.keyFileOf(st, id); f != nil && f.claim == nil || wait > time.Second || abandoned(s.keyPath(st, id)) {
			return
		}
		if _, err := lstatRegular(s.keyPath(st, id)); errors.Is(err, os.ErrNotExist) {
			return
		}
		time.Sleep(wait)
	}
}

// reserve counts a key as pending before its file is in the index, so that concurrent sign-ins
// together cannot exceed MaxPending. Call release once the file is in the index.
func (s *Store) reserve(id string) (release func(), err error) {
	if s.hasKey(Pending, id) {
		return func() {}, nil
	}
	if int64(s.Count(Pending))+s.waiting.Add(1) > int64(s.cfg.MaxPending) {
		s.waiting.Add(-1)
		return nil, fmt.Errorf("store a pending key: %w (%d)", ErrPendingFull, s.cfg.MaxPending)
	}
	return func() { s.waiting.Add(-1) }, nil
}

func (s *Store) hasKey(st State, id string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.files[st][id] != nil
}

func (s *Store) keyFileOf(st State, id string) *keyFile {
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

// writeKey writes the file of a key and updates the index. The caller holds the stripe lock of the
// id.
func (s *Store) writeKey(id string, st State, pem string) error {
	pem = crypt.NormalizePEM(pem)
	sig, err := replaceFile(s.keyPath(st, id), []byte(pem), s.fileMode())
	if err != nil {
		return err
	}
	if err := s.syncState(st); err != nil {
		return err
	}
	s.applyFound(id, map[State]*keyFile{st: s.newFile(pem, sig, s.keyFileOf(st, id))})
	return nil
}

// removeKeys removes the id's files in some states. The caller holds the stripe lock of the id.
func (s *Store) removeKeys(id string, states ...State) error {
	var errs []error
	found := map[State]*keyFile{}
	for _, st := range states {
		gone, err := remove(s.keyPath(st, id))
		if err == nil && gone {
			err = s.syncState(st)
		}

		if err != nil {
			errs = append(errs, fmt.Errorf("remove the %s key of %q: %w", st, id, err))
			continue
		}

		found[st] = nil
	}

	s.applyFound(id, found)
	return errors.Join(errs...)
}

// Move changes the state of a minion's key, as salt-key -a and -r do. It does not move a denied
// key; see Denied and Put. If the id has no key, Move returns ErrUnknown.
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

	if s.incoming != nil && (f == nil || f.claim != nil) {
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

	return s.removeKeys(id, others(to)...)
}

func (s *Store) rename(id string, from, to State, f *keyFile) error {
	if err := os.Rename(s.keyPath(from, id), s.keyPath(to, id)); err != nil {
		return err
	}

	for _, st := range []State{to, from} {
		if err := s.syncState(st); err != nil {
			return err
		}
	}

	// Another program may have replaced the file since the last read: read the file again.
	now, err := s.loadFile(id, to, f)
	if err != nil {
		return err
	}

	s.applyFound(id, map[State]*keyFile{from: nil, to: now})
	return nil
}

// Delete removes the keys of a minion in the given states, or in all four states when none is
// given. A key that does not exist is no error.
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

	return s.removeKeys(id, states...)
}

// Deny stores a key that was offered for id and did not match the accepted one. As Salt does, the
// store keeps only the first such key until an administrator deletes it; further keys cause no disk
// access. Deny does not store a key that the bounds forbid.
func (s *Store) Deny(id, pem string) error { return s.DenyFrom(netip.Addr{}, id, pem) }

// DenyFrom works like Deny, for a key that came from the address source. The rate limit of new keys
// applies to denied keys, too.
func (s *Store) DenyFrom(source netip.Addr, id, pem string) error {
	if err := ValidID(id); err != nil {
		return err
	}
	if s.hasKey(Denied, id) {
		return nil
	}

	if n := s.Count(Denied); n >= s.cfg.MaxPending {
		return fmt.Errorf("store the denied key of %q: %w (%d)", id, ErrPendingFull, n)
	}

	if _, err := s.cfg.Bounds.ParsePublic([]byte(pem)); err != nil {
		return fmt.Errorf("store the denied key of %q: %w", id, err)
	}

	if err := s.pending.chargeRefused(source); err != nil {
		return err
	}
	defer s.lockID(id)()

	if s.hasKey(Denied, id) {
		return nil
	}

	if err := s.writeKey(id, Denied, pem); err != nil {
		return fmt.Errorf("store the denied key of %q: %w", id, err)
	}

	return nil
}

// AutosignDir returns the folder <pki_dir>/minions_autosign.
func (s *Store) AutosignDir() string { return filepath.Join(s.dir, autosignDir) }
