package auth

import (
	"context"
	"crypto/rsa"
	"errors"
	"log/slog"
	"net/netip"

	"saltern/master/keys"
)

// verdict is the outcome of a sign-in.
type verdict struct {
	act         string // Act of the event to fire, or "" for none
	ret         any    // field "ret" of the answer to a minion that is not accepted
	pub         *rsa.PublicKey
	pem         string  // the accepted key, from which session keys are derived
	wasAccepted bool    // the key was accepted before this sign-in
	newlyStored bool    // this sign-in stored the key as accepted
	busy        bool    // the minion must sign in again later
	busyReason  string  // why busy is set; may be ""
	keyChanged  bool    // another writer changed the key meanwhile: decide again
	prepared    *answer // answer made while the key was being stored; may be nil: not made yet
}

func refused(act string) verdict { return verdict{act: act, ret: false} }

// decide returns the verdict of the first rule that matches a sign-in (master.py _auth_impl). Of
// the steps, only a change of the key store takes time. If another writer changes the key at the
// same time, decide starts again.
func (s *Service) decide(ctx context.Context, r request, from netip.AddrPort) verdict {
	for range 3 {
		if v := s.decideOnce(ctx, r, from); !v.keyChanged {
			return v
		}
	}
	return verdict{busy: true}
}

func (s *Service) decideOnce(ctx context.Context, r request, from netip.AddrPort) verdict {
	if err := keys.ValidID(r.id); err != nil {
		s.log.Info("sign-in with an invalid id", "peer", from, "error", err)
		return refused("")
	}

	if s.cfg.MaxMinions > 0 {
		if n, has := s.cfg.Presence.CountWith(r.id); n > s.cfg.MaxMinions && !has {
			s.log.Info("too many minions connected", "minion", r.id, "peer", from, "connected", n)
			return verdict{act: ActFull, ret: "full"}
		}
	}

	e, found := s.cfg.Keys.Lookup(r.id)
	switch {
	case s.cfg.OpenMode:
		return s.acceptAnyKey(ctx, r, e, from)
	case found && e.State == keys.Rejected:
		s.log.Info("key is rejected", "minion", r.id, "peer", from)
		return refused(ActReject)
	case found && e.State == keys.Accepted:
		return s.accepted(ctx, r, e, from)
	case found:
		return s.pending(ctx, r, e, from)
	}

	return s.unknown(ctx, r, from)
}

// accepted handles a sign-in of an accepted id: it compares the offered key with the one on file.
func (s *Service) accepted(ctx context.Context, r request, e keys.Entry, from netip.AddrPort) verdict {
	if r.pub != e.PEM {
		return s.denied(ctx, r, e, from)
	}
	pub, err := e.Public()
	if err != nil {
		s.log.Error("the accepted key is unusable", "minion", r.id, "error", err)
		return refused("")
	}
	return verdict{act: ActAccept, pub: pub, pem: e.PEM, wasAccepted: true}
}

// denied stores the offered key, which differs from the minion's key onFile, as a denied key, and
// returns the refusal. First it reads the files again: if an administrator has deleted the key a
// moment ago, the minion that comes with a new key must not be refused because of the old one.
func (s *Service) denied(ctx context.Context, r request, onFile keys.Entry, from netip.AddrPort) verdict {
	_, unusable := s.parsePublic(r.pub)
	if unusable == nil {
		if err := s.recheckKey(ctx, r.id); err != nil {
			s.unstored.logLimited(s.log, slog.LevelWarn, "it is not known whether the key on file is still there",
				"minion", r.id, "peer", from, "error", err)
			return verdict{busy: true}
		}
	}
	if now, _ := s.cfg.Keys.Lookup(r.id); now.State != onFile.State || now.Gen != onFile.Gen {
		return verdict{keyChanged: true}
	}

	s.mismatches.logLimited(s.log, slog.LevelError, "sign-in with another key than the one on file; this may be an attack",
		"minion", r.id, "peer", from)
	if unusable != nil {
		return refused(ActDenied)
	}
	if _, have := s.cfg.Keys.Denied(r.id); have {
		return refused(ActDenied)
	}

	err := s.changeStore(ctx, func() error { return s.cfg.Keys.DenyFrom(from.Addr(), r.id, r.pub) })
	if err != nil && !errors.Is(err, keys.ErrPendingFull) {
		s.log.Error("storing a denied key", "minion", r.id, "error", err)
	}
	return refused(ActDenied)
}

// unknown handles the first sign-in of an id.
func (s *Service) unknown(ctx context.Context, r request, from netip.AddrPort) verdict {
	pub, err := s.parsePublic(r.pub)
	if err != nil {
		s.log.Info("new key is unusable", "minion", r.id, "peer", from, "error", err)
		return refused(ActError)
	}
	if s.cfg.Autosign.Reject(r.id) {
		return s.storeKey(ctx, r, keys.Entry{}, keys.Rejected, refused(ActReject),
			"new key rejected by autoreject_file", from)
	}

	accept, err := s.autosign(ctx, r)
	switch {
	case err != nil:
		return s.failed(r, keys.Accepted, err, from)
	case accept:
		v := verdict{act: ActAccept, pub: pub, pem: r.pub, newlyStored: true}
		return s.storeKey(ctx, r, keys.Entry{}, keys.Accepted, v, "new key accepted automatically", from)
	}

	return s.storeKey(ctx, r, keys.Entry{}, keys.Pending, verdict{act: ActPend, ret: true}, "new key is pending", from)
}

// pending handles a repeated sign-in of an id whose key the administrator has not decided on yet.
func (s *Service) pending(ctx context.Context, r request, e keys.Entry, from netip.AddrPort) verdict {
	if s.cfg.Autosign.Reject(r.id) {
		old := r
		old.pub = e.PEM // the key on file is rejected, whichever key the minion offers
		return s.storeKey(ctx, old, e, keys.Rejected, refused(ActReject), "pending key rejected by autoreject_file", from)
	}

	if r.pub != e.PEM {
		return s.denied(ctx, r, e, from)
	}

	if pub, err := e.Public(); err == nil {
		accept, err := s.autosign(ctx, r)
		if err != nil {
			return s.failed(r, keys.Accepted, err, from)
		}
		if accept {
			v := verdict{act: ActAccept, pub: pub, pem: e.PEM, newlyStored: true}
			return s.storeKey(ctx, r, e, keys.Accepted, v, "pending key accepted automatically", from)
		}
	}

	s.log.Debug("key is pending", "minion", r.id, "peer", from)
	return verdict{act: ActPend, ret: true}
}

// acceptAnyKey accepts the offered key, even if another key is on file. It implements open_mode.
func (s *Service) acceptAnyKey(ctx context.Context, r request, e keys.Entry, from netip.AddrPort) verdict {
	pub, err := s.parsePublic(r.pub)
	if err != nil {
		s.log.Info("key is unusable", "minion", r.id, "peer", from, "error", err)
		return refused("")
	}
	v := verdict{act: ActAccept, pub: pub, pem: r.pub, wasAccepted: e.State == keys.Accepted && e.PEM == r.pub}
	if v.wasAccepted {
		return v
	}
	v.newlyStored = true
	return s.storeKey(ctx, r, e, keys.Accepted, v, "key accepted in open mode", from)
}

// storeKey stores the offered key instead of the key onFile and returns v, or another verdict if
// the key cannot be stored. If making the answer has no side effect, storeKey makes it while the
// key is being stored. Otherwise minions whose keys are stored by the same write would afterwards
// wait for each other's RSA work.
func (s *Service) storeKey(
	ctx context.Context,
	r request,
	onFile keys.Entry,
	st keys.State,
	v verdict,
	msg string,
	from netip.AddrPort,
) verdict {
	var ready chan *answer
	making, stop := context.WithCancel(ctx)
	defer stop()

	if s.cfg.Secrets.files == nil {
		ready = make(chan *answer, 1)
		go func() { ready <- s.answer(making, r, v, from) }() // storeKey receives the answer below
	}

	err := s.changeStore(ctx, func() error { return s.cfg.Keys.SwapFrom(from.Addr(), r.id, onFile, st, r.pub) })
	if ready != nil {
		if err != nil {
			stop()
		}
		v.prepared = <-ready
	}

	if errors.Is(err, keys.ErrChanged) {
		return verdict{keyChanged: true}
	}
	if st == keys.Rejected && errors.Is(err, keys.ErrPendingFull) {
		return v // the minion is refused in any case, so its key need not be stored
	}
	if err != nil {
		return s.failed(r, st, err, from)
	}

	s.log.Info(msg, "minion", r.id, "peer", from)
	if st != keys.Pending && s.cfg.Decided != nil {
		s.cfg.Decided(r.id, msg, st, from.Addr())
	}

	return v
}

// failed returns the verdict for a key that could not be stored. If there are too many pending
// keys, the verdict's answer is "full". Any other failure is temporary: the verdict asks the minion
// to sign in again later.
func (s *Service) failed(r request, st keys.State, err error, from netip.AddrPort) verdict {
	if errors.Is(err, keys.ErrPendingFull) {
		s.full.logLimited(s.log, slog.LevelWarn, "sign-in refused", "minion", r.id, "peer", from, "error", err)
		return verdict{act: ActFull, ret: "full"}
	}
	v := verdict{busy: true}
	if s.cfg.Trouble != nil {
		v.busyReason = s.cfg.Trouble()
	}
	s.unstored.logLimited(s.log, slog.LevelError, "storing a minion key", "minion", r.id, "peer", from, "state",
		st.String(), "error", err, "because", v.busyReason)
	return v
}

func (s *Service) parsePublic(pem string) (*rsa.PublicKey, error) {
	return s.cfg.Keys.Bounds().ParsePublic([]byte(pem))
}

// autosign reports whether a rule accepts a new key. The files with the rules may be on a volume
// that hangs; autosign then returns the error of changeStore.
func (s *Service) autosign(ctx context.Context, r request) (accept bool, err error) {
	if s.cfg.Autosign.Open() {
		return !s.cfg.Autosign.Doubtful(r.id), nil
	}
	answer := make(chan bool, 1)
	if err := s.changeStore(ctx, func() error {
		answer <- !s.cfg.Autosign.Doubtful(r.id) && s.cfg.Autosign.Accept(r.id, grainTexts(r.grains))
		return nil
	}); err != nil {
		return false, err
	}
	return <-answer, nil
}

// changeStore calls change, which changes the key store. changeStore returns when ctx ends or
// MaxWait has passed, even if the disk hangs. A change that hangs keeps its slot until the disk
// responds, so at most diskSlots changes hang.
func (s *Service) changeStore(ctx context.Context, change func() error) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.MaxWait)
	defer cancel()
	leave, err := s.disk.waitSlot(ctx)
	if err != nil {
		return err
	}

	done := make(chan error, 1)
	go func() {
		defer leave()
		done <- change()
	}()

	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
