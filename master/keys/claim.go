package keys

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"saltern/internal/durable"
	"saltern/master/crypt"
)

// claimID stores a key in an incoming file. The id must have no key yet. The caller holds the
// stripe lock of the id. If another master has claimed the id for another key or state, claimID
// withdraws its claim and returns ErrChanged. Each master writes its claim before it looks for
// other claims, so at least one of two masters sees the other's claim.
func (s *Store) claimID(id string, st State, pem string) error {
	fail := func(err error) error { return fmt.Errorf("store the %s key of %q: %w", st, id, err) }
	if st == Pending {
		release, err := s.reserve(id)
		if err != nil {
			return err
		}
		defer release()
	}

	c := &claim{id: id, state: st, pem: crypt.NormalizePEM(pem)}
	if err := s.incoming.addClaim(c); err != nil {
		return fail(err)
	}

	for s.incoming.unread(id) {
		time.Sleep(50 * time.Millisecond)
		if err := s.incoming.listFresh(); err != nil {
			return fail(err)
		}
	}

	for _, o := range s.incoming.claimsOf(id) {
		if o == c || o.sameKey(c) || !s.incoming.isWaiting(o) {
			continue
		}

		if err := s.voidClaims(c); err != nil {
			return fail(err)
		}

		if err := s.incoming.listFresh(); err != nil { // the other master may have withdrawn its claim as well
			return fail(err)
		}

		if s.incoming.isWaiting(o) {
			s.applyFound(id, map[State]*keyFile{o.state: s.claimed(o)})
		}

		return fail(ErrChanged)
	}

	if !s.incoming.isWaiting(c) {
		return fail(ErrChanged) // another process has already removed the key
	}

	s.applyFound(id, map[State]*keyFile{st: s.claimed(c)})
	return nil
}

// claimed returns an index entry for a claim that has no file yet.
func (s *Store) claimed(c *claim) *keyFile {
	f := s.newFile(c.pem, fileSig{}, s.keyFileOf(c.state, c.id))
	f.claim = c
	return f
}

// realFile returns the index entry of a key file of an id, or nil. It ignores entries for claims
// that have no file yet.
func (s *Store) realFile(id string) *keyFile {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, st := range lookupOrder {
		if f := s.files[st][id]; f != nil && f.claim == nil {
			return f
		}
	}
	return nil
}

// takeIncoming updates the index for the ids whose claims have changed.
func (s *Store) takeIncoming() {
	for _, id := range s.incoming.takeChanged() {
		s.takeClaims(id)
	}
}

func (s *Store) takeClaims(id string) {
	defer s.lockID(id)()
	for _, st := range lookupOrder {
		if f := s.keyFileOf(st, id); f != nil && f.claim != nil && !s.incoming.isWaiting(f.claim) {
			_ = s.examineLocked(id, lookupOrder[:]...)
			break
		}
	}

	s.mu.RLock()
	_, f := s.effective(id)
	s.mu.RUnlock()

	if f != nil {
		return
	}

	for _, c := range s.incoming.claimsOf(id) {
		if s.incoming.isWaiting(c) {
			s.applyFound(id, map[State]*keyFile{c.state: s.claimed(c)})
			return
		}
	}
}

// settleAll creates the files of all claims for an id before the caller changes the id's key. The
// caller holds the stripe lock of the id.
func (s *Store) settleAll(id string) error {
	if s.incoming == nil {
		return nil
	}

	if err := s.incoming.listFresh(); err != nil {
		return err
	}

	for _, c := range s.incoming.claimsOf(id) {
		if s.incoming.isWaiting(c) {
			if err := s.fileClaim(c); err != nil {
				return err
			}
		}
	}

	return nil
}

// fileClaim creates the key file of a claim, unless the id has a file already or the key has been
// removed since. Several masters may call fileClaim for one claim at the same time, and a master
// may call it again after a crash. The caller has read the incoming files and holds the stripe lock
// of the id.
func (s *Store) fileClaim(c *claim) (err error) {
	for range 3 { // another master may be creating the same file
		if err = s.settleOnce(c); !errors.Is(err, ErrChanged) {
			break
		}
	}
	return err
}

func (s *Store) settleOnce(c *claim) error {
	fail := func(err error) error { return fmt.Errorf("store the %s key of %q: %w", c.state, c.id, err) }
	if !s.incoming.isUnsettled(c) {
		return nil
	}

	if err := s.examineLocked(c.id, others(c.state)...); err != nil {
		return fail(err)
	}

	if f := s.realFile(c.id); f != nil {
		return s.settled(c, f)
	}
	if !s.incoming.isWaiting(c) { // the id had a file, which has been removed since
		s.incoming.finish(c, true)
		return nil
	}

	path := s.keyPath(c.state, c.id)
	sig, err := createFile(path, []byte(c.pem), s.fileMode())
	if errors.Is(err, os.ErrExist) {
		s.awaitWriter(c.id, c.state)
		if f := s.realFile(c.id); f != nil {
			return s.settled(c, f)
		}
		if !abandoned(path) {
			return fail(ErrChanged)
		}

		sig, err = replaceFile(path, []byte(c.pem), s.fileMode())
	}

	if err == nil {
		err = s.syncState(c.state)
	}

	if err != nil {
		return fail(err)
	}

	f := s.newFile(c.pem, sig, s.keyFileOf(c.state, c.id))

	// While the file was being created, another master may have created a file for the id, or an
	// administrator may have moved or removed the key. In both cases remove the file that was just
	// created.
	taken, err := s.removed(c)
	for _, st := range yieldsTo(c.state) {
		if err == nil && !taken {
			_, err = lstatRegular(s.keyPath(st, c.id))
			taken = err == nil
			if errors.Is(err, os.ErrNotExist) {
				err = nil
			}
		}
	}

	if err != nil {
		return fail(err) // the file exists; the next attempt checks it
	}
	if taken {
		if err := s.removeKeys(c.id, c.state); err != nil {
			return err
		}
		return s.examineLocked(c.id, lookupOrder[:]...)
	}

	s.incoming.filed.Add(1)
	s.incoming.finish(c, true)
	s.applyFound(c.id, map[State]*keyFile{c.state: f})
	return nil
}

// yieldsTo returns the states to which a claim for state st yields: if the id has a file in such a
// state, the claim does not become a file. Of the claims of two masters at most one yields.
func yieldsTo(st State) []State {
	if st == Pending {
		return []State{Rejected, Accepted}
	}
	return []State{Rejected}
}

// settled handles a claim whose id has a file f already. The caller holds the stripe lock of the
// id. If f contains another key, the claim has lost, and settled stores the claim's key as denied.
// If the claim has already become a second file of the id, settled removes that file. In that case
// the process that wrote the file died, or could not check for f.
func (s *Store) settled(c *claim, f *keyFile) error {
	if f.pem != c.pem && !s.hasKey(Denied, c.id) {
		if err := s.writeKey(c.id, Denied, c.pem); err != nil {
			return fmt.Errorf("store the denied key of %q: %w", c.id, err)
		}
	}

	if err := s.examineLocked(c.id, lookupOrder[:]...); err != nil {
		return err
	}

	made := s.keyFileOf(c.state, c.id)
	for _, st := range yieldsTo(c.state) {
		o := s.keyFileOf(st, c.id)
		if made == nil || made.claim != nil || made.pem != c.pem || o == nil || o.claim != nil {
			continue
		}

		if err := s.removeKeys(c.id, c.state); err != nil {
			return err
		}

		break
	}

	s.incoming.finish(c, true)
	return nil
}

// finish records that a claim no longer needs a file. single means that the claim has left no
// second file in another state.
func (in *incoming) finish(c *claim, single bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	c.hasFile, c.noSecondFile = true, c.noSecondFile || single
}

// removed looks on the volume whether the key of a claim has been marked as removed.
func (s *Store) removed(c *claim) (bool, error) {
	_, err := lstatRegular(filepath.Join(s.dir, c.markName()))
	if errors.Is(err, os.ErrNotExist) {
		s.incoming.mu.Lock()
		defer s.incoming.mu.Unlock()
		return c.removed, nil
	}
	if err != nil {
		return false, err
	}
	s.incoming.mu.Lock()
	defer s.incoming.mu.Unlock()
	c.removed = true
	return true, nil
}

// markRemoved marks all present claims for an id as removed, so that no master creates files for
// them. The caller holds the stripe lock of the id.
func (s *Store) markRemoved(id string) error {
	if s.incoming == nil {
		return nil
	}
	if err := s.incoming.listFresh(); err != nil {
		return err
	}
	claims := s.incoming.claimsOf(id)
	if len(claims) == 0 {
		return nil
	}
	return s.voidClaims(claims...)
}

// voidClaims marks claims as removed, durably.
func (s *Store) voidClaims(claims ...*claim) error {
	for _, c := range claims {
		err := writeNew(filepath.Join(s.dir, c.markName()), nil, s.fileMode())
		if err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("remove the new key of %q: %w", c.id, err)
		}
		s.incoming.mu.Lock()
		c.removed, s.incoming.marks[c.markName()] = true, time.Now()
		s.incoming.mu.Unlock()
	}
	return durable.SyncDir(s.dir)
}
