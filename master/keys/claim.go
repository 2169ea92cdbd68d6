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

// claim stores the key of an id that has none by an incoming file; the stripe
// is held. When another master has claimed the id for another key or state, this
// claim is withdrawn, acknowledged to nobody: of two masters at least one sees
// the other, since each writes before it looks.
func (s *Store) claim(id string, st State, pem string) error {
	fail := func(err error) error { return fmt.Errorf("store the %s key of %q: %w", st, id, err) }
	if st == Pending {
		release, err := s.reserve(id)
		if err != nil {
			return err
		}
		defer release()
	}

	c := &claim{id: id, state: st, pem: crypt.NormalizePEM(pem)}
	if err := s.in.add(c); err != nil {
		return fail(err)
	}

	for s.in.unread(id) {
		time.Sleep(50 * time.Millisecond)
		if err := s.in.look(); err != nil {
			return fail(err)
		}
	}

	for _, o := range s.in.of(id) {
		if o == c || o.same(c) || !s.in.waits(o) {
			continue
		}

		if err := s.void(c); err != nil {
			return fail(err)
		}

		if err := s.in.look(); err != nil { // the other may have withdrawn as well
			return fail(err)
		}

		if s.in.waits(o) {
			s.apply(id, map[State]*keyFile{o.state: s.claimed(o)})
		}

		return fail(ErrChanged)
	}

	if !s.in.waits(c) {
		return fail(ErrChanged) // removed already
	}

	s.apply(id, map[State]*keyFile{st: s.claimed(c)})
	return nil
}

// claimed is the record of a claim, as if it were a file.
func (s *Store) claimed(c *claim) *keyFile {
	f := s.newFile(c.pem, fileSig{}, s.file(c.state, c.id))
	f.claim = c
	return f
}

// real is a file that an id has, nil for none; a claim is none.
func (s *Store) real(id string) *keyFile {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, st := range lookupOrder {
		if f := s.files[st][id]; f != nil && f.claim == nil {
			return f
		}
	}
	return nil
}

// takeIncoming brings the index up to date with the incoming files.
func (s *Store) takeIncoming() {
	for _, id := range s.in.takeChanged() {
		s.takeClaims(id)
	}
}

func (s *Store) takeClaims(id string) {
	defer s.lockID(id)()
	for _, st := range lookupOrder {
		if f := s.file(st, id); f != nil && f.claim != nil && !s.in.waits(f.claim) {
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

	for _, c := range s.in.of(id) {
		if s.in.waits(c) {
			s.apply(id, map[State]*keyFile{c.state: s.claimed(c)})
			return
		}
	}
}

// settleAll files what is claimed for an id, before somebody changes it; the
// stripe is held.
func (s *Store) settleAll(id string) error {
	if s.in == nil {
		return nil
	}

	if err := s.in.look(); err != nil {
		return err
	}

	for _, c := range s.in.of(id) {
		if s.in.waits(c) {
			if err := s.fileClaim(c); err != nil {
				return err
			}
		}
	}

	return nil
}

// fileClaim makes the file of a claim, unless the id has one or the key was
// removed since. It may be done by several masters at once, and again after a
// crash. The caller has looked at the incoming files and holds the stripe.
func (s *Store) fileClaim(c *claim) (err error) {
	for range 3 { // another may be at it
		if err = s.settleOnce(c); !errors.Is(err, ErrChanged) {
			break
		}
	}
	return err
}

func (s *Store) settleOnce(c *claim) error {
	fail := func(err error) error { return fmt.Errorf("store the %s key of %q: %w", c.state, c.id, err) }
	if !s.in.open(c) {
		return nil
	}

	if err := s.examineLocked(c.id, others(c.state)...); err != nil {
		return fail(err)
	}

	if f := s.real(c.id); f != nil {
		return s.settled(c, f)
	}
	if !s.in.waits(c) { // it had one, which is gone
		s.in.finish(c, true)
		return nil
	}

	path := s.path(c.state, c.id)
	sig, err := createFile(path, []byte(c.pem), s.fileMode())
	if errors.Is(err, os.ErrExist) {
		s.awaitWriter(c.id, c.state)
		if f := s.real(c.id); f != nil {
			return s.settled(c, f)
		}
		if !abandoned(path) {
			return fail(ErrChanged)
		}

		sig, err = replaceFile(path, []byte(c.pem), s.fileMode())
	}

	if err == nil {
		err = s.sync(c.state)
	}

	if err != nil {
		return fail(err)
	}

	f := s.newFile(c.pem, sig, s.file(c.state, c.id))

	// Meanwhile another master may have filed it, and an administrator changed
	// or removed it: then this file must go again.
	taken, err := s.removed(c)
	for _, st := range yieldsTo(c.state) {
		if err == nil && !taken {
			_, err = lstat(s.path(st, c.id))
			taken = err == nil
			if errors.Is(err, os.ErrNotExist) {
				err = nil
			}
		}
	}

	if err != nil {
		return fail(err) // it is there, and looked at the next time
	}
	if taken {
		if err := s.drop(c.id, c.state); err != nil {
			return err
		}
		return s.examineLocked(c.id, lookupOrder[:]...)
	}

	s.in.filed.Add(1)
	s.in.finish(c, true)
	s.apply(c.id, map[State]*keyFile{c.state: f})
	return nil
}

// yieldsTo are the states beside which a claim makes no file. Two masters with
// one claim each never both give way.
func yieldsTo(st State) []State {
	if st == Pending {
		return []State{Rejected, Accepted}
	}
	return []State{Rejected}
}

// settled is called when an id has a file already; the stripe is held. Another
// key lost against it and is denied. A file that was made of the claim beside
// it goes: whoever made it has ended, or could not look.
func (s *Store) settled(c *claim, f *keyFile) error {
	if f.pem != c.pem && !s.has(Denied, c.id) {
		if err := s.write(c.id, Denied, c.pem); err != nil {
			return fmt.Errorf("store the denied key of %q: %w", c.id, err)
		}
	}

	if err := s.examineLocked(c.id, lookupOrder[:]...); err != nil {
		return err
	}

	made := s.file(c.state, c.id)
	for _, st := range yieldsTo(c.state) {
		o := s.file(st, c.id)
		if made == nil || made.claim != nil || made.pem != c.pem || o == nil || o.claim != nil {
			continue
		}

		if err := s.drop(c.id, c.state); err != nil {
			return err
		}

		break
	}

	s.in.finish(c, true)
	return nil
}

// finish notes that a claim needs no file any more; sure: nor has left one.
func (in *incoming) finish(c *claim, sure bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	c.done, c.sure = true, c.sure || sure
}

// removed asks the volume whether the key of a claim was removed.
func (s *Store) removed(c *claim) (bool, error) {
	_, err := lstat(filepath.Join(s.dir, c.mark()))
	if errors.Is(err, os.ErrNotExist) {
		s.in.mu.Lock()
		defer s.in.mu.Unlock()
		return c.void, nil
	}
	if err != nil {
		return false, err
	}
	s.in.mu.Lock()
	defer s.in.mu.Unlock()
	c.void = true
	return true, nil
}

// markRemoved has the claims for an id never become a file again, whoever has
// them in hand; the stripe is held.
func (s *Store) markRemoved(id string) error {
	if s.in == nil {
		return nil
	}
	if err := s.in.look(); err != nil {
		return err
	}
	claims := s.in.of(id)
	if len(claims) == 0 {
		return nil
	}
	return s.void(claims...)
}

// void marks claims as removed.
func (s *Store) void(claims ...*claim) error {
	for _, c := range claims {
		err := writeNew(filepath.Join(s.dir, c.mark()), nil, s.fileMode())
		if err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("remove the new key of %q: %w", c.id, err)
		}
		s.in.mu.Lock()
		c.void, s.in.marks[c.mark()] = true, time.Now()
		s.in.mu.Unlock()
	}
	return durable.SyncDir(s.dir)
}
