package auth

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"

	"saltern/master/crypt"
	"saltern/master/keys"
)

// ErrNotAccepted means that an id has no accepted key, or is not valid.
var ErrNotAccepted = errors.New("minion is not accepted")

// verified is a token that was verified against a key.
type verified struct {
	gen uint64
	sum [sha256.Size]byte
}

func (s *Service) acceptedKey(id string) (keys.Entry, error) {
	if err := keys.ValidID(id); err != nil {
		return keys.Entry{}, err
	}
	e, ok := s.cfg.Keys.Lookup(id)
	if !ok || e.State != keys.Accepted {
		return keys.Entry{}, ErrNotAccepted
	}
	return e, nil
}

// VerifyToken reports whether tok was made with the accepted key of id: the X9.31 operation over
// "salt" (channel/server.py validate_token). A minion sends the same token with each request, so
// Service remembers the last good one, whose verification costs only a hash. Each call checks that
// the key is still accepted.
func (s *Service) VerifyToken(id string, tok []byte) bool {
	e, err := s.acceptedKey(id)
	if err != nil {
		return false
	}

	sum := sha256.Sum256(tok)
	if v, ok := s.tokens.Load(id); ok {
		v := v.(verified)
		if v.gen == e.Gen && subtle.ConstantTimeCompare(v.sum[:], sum[:]) == 1 {
			return true
		}
	}

	pub, err := e.Public()
	if err != nil {
		return false
	}

	s.stats.tokens.Add(1)
	data, err := crypt.X931Recover(pub, tok)
	if err != nil || subtle.ConstantTimeCompare(data, []byte("salt")) != 1 {
		return false
	}

	s.tokens.Store(id, verified{gen: e.Gen, sum: sum})
	return true
}

// forget drops the remembered token and session of a key that is no longer accepted. This only saves
// memory: other checks refuse the key.
func (s *Service) forget(c keys.Change) {
	if c.New != keys.Accepted {
		s.tokens.Delete(c.ID)
		s.pace.forget(c.ID)
		s.cfg.Secrets.sessions.Delete(c.ID)
		if f := s.cfg.Secrets.files; f != nil {
			if err := f.forget(c.ID); err != nil {
				s.log.Warn("a session key is left", "minion", c.ID, "error", err)
			}
		}
	}
}

// OpenRequest opens the encrypted load of a request from id. It returns the packed body, in the
// memory of blob, and the session key that fitted, with which the answer must be sealed. The present
// and the previous session key are valid. The errors are keys.ErrID, ErrNotAccepted, crypt.ErrOpen,
// and one for a text that is no pickle. The caller answers each with "bad load", after which a real
// minion signs in again. Nothing is stored about ids that are not accepted.
func (s *Service) OpenRequest(id string, blob []byte) ([]byte, crypt.Key, error) {
	e, err := s.acceptedKey(id)
	if errors.Is(err, ErrNotAccepted) {
		return s.openEarly(id, blob)
	}
	if err != nil {
		return nil, crypt.Key{}, err
	}
	body, key, err := s.cfg.Secrets.openSession(id, e.PEM, blob)
	if err != nil {
		return nil, crypt.Key{}, fmt.Errorf("open a request: %w", err)
	}
	return body, key, nil
}

// earlyLooks is how often the key folders are read to find a key that another master may have
// accepted. Each reading has its own time limit.
const earlyLooks = 3

// openEarly opens a request of an id whose key is pending here, if it is sealed with a session key
// for that key. Then another master of the cluster may just have accepted the key: openEarly reads
// the key folders to find out. A minion of 3008 whose first request is refused does not come up.
func (s *Service) openEarly(id string, blob []byte) ([]byte, crypt.Key, error) {
	e, ok := s.cfg.Keys.Lookup(id)
	// with session files, reading would create files for strangers
	if !ok || e.State != keys.Pending || s.cfg.Secrets.files != nil {
		return nil, crypt.Key{}, ErrNotAccepted
	}
	defer s.cfg.Secrets.sessions.Delete(id)

	body, key, err := s.cfg.Secrets.openSession(id, e.PEM, blob)
	if err != nil {
		return nil, crypt.Key{}, ErrNotAccepted
	}

	for range earlyLooks {
		if err := s.cfg.Keys.Look(); err != nil {
			s.log.Warn("it is not known whether a key was accepted", "minion", id, "error", err)
		}
		if now, err := s.acceptedKey(id); err == nil && now.PEM == e.PEM {
			return body, key, nil
		}
	}

	return nil, crypt.Key{}, ErrNotAccepted
}
