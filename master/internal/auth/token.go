package auth

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"

	"saltern/master/crypt"
	"saltern/master/keys"
)

// ErrNotAccepted means that an id has no accepted key, or that the id is malformed.
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

// VerifyToken reports whether tok was made with the accepted key of id. A token is the result of
// the X9.31 operation on "salt" (channel/server.py validate_token). A minion sends the same token
// with each request, so Service stores the last valid token of each minion, and verifies an equal
// token by a hash only. Each call also checks that the key is still accepted.
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

// forget drops the token and the session key that are cached for a key that is no longer accepted.
// Dropping them only saves memory, because other checks refuse the key. With session files, forget
// also removes the minion's session key file.
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

// OpenRequest decrypts the load of a request from id. It returns the packed body, which uses the
// memory of blob, and the session key that decrypted it; the answer must be encrypted with that
// same key. The current and the previous session key are valid. The errors are keys.ErrID,
// ErrNotAccepted, crypt.ErrOpen, and an error for a decrypted text that is no pickle. The caller
// must answer each of them with "bad load", after which a minion signs in again. OpenRequest stores
// nothing about ids that are not accepted.
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

// earlyLooks is how often openEarly reads the key directories to find a key that another master may
// have accepted. Each reading has its own time limit.
const earlyLooks = 3

// openEarly decrypts a request of an id whose key is pending on this master, if the request is
// encrypted with a session key for that key. Such a request means that another master of the
// cluster may just have accepted the key, so openEarly reads the key directories to find out.
// openEarly exists because a minion of 3008 does not start up if its first request is refused.
func (s *Service) openEarly(id string, blob []byte) ([]byte, crypt.Key, error) {
	e, ok := s.cfg.Keys.Lookup(id)
	// With session files, openSession would create files for minions without an accepted key.
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
