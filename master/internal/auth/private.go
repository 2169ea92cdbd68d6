package auth

import (
	"crypto/rand"
	"fmt"

	"saltern/master/crypt"
	"saltern/master/msgpack"
	"saltern/master/value"
)

// Algorithms are the algorithms that the sender of a request asks the master to use in the answer.
// "" means Salt's oldest algorithm.
type Algorithms struct{ Encryption, Signing string }

func (a Algorithms) encryption() string {
	if a.Encryption == "" {
		return crypt.OAEPSHA1
	}
	return a.Encryption
}

func (a Algorithms) signing() string {
	if a.Signing == "" {
		return crypt.PKCS1SHA1
	}
	return a.Signing
}

// Private returns the pillar of an accepted minion, signed with the master's key and encrypted with
// a new key (salt/channel/server.py _encrypt_private). For an unknown algorithm it returns
// crypt.ErrAlgorithm.
func (s *Service) Private(id string, a Algorithms, nonce string, pillar *value.Map) (*value.Map, error) {
	key, err := crypt.NewKey(rand.Reader)
	if err != nil {
		return nil, err
	}

	e, err := s.acceptedKey(id)
	if err != nil {
		return nil, err
	}

	pub, err := e.Public()
	if err != nil {
		return nil, fmt.Errorf("encrypt for %q: %w", id, err)
	}

	wrapped, err := crypt.Encrypt(pub, a.encryption(), []byte(key.String()))
	if err != nil {
		return nil, fmt.Errorf("wrap the key of a pillar: %w", err)
	}

	inner, err := msgpack.Marshal(value.NewMap("key", wrapped, "pillar", pillar, "nonce", nonce), msgpack.Raw)
	if err != nil {
		return nil, fmt.Errorf("pack a pillar: %w", err)
	}

	signature, err := s.cfg.Secrets.Sign(a.signing(), inner)
	if err != nil {
		return nil, fmt.Errorf("sign a pillar: %w", err)
	}

	signed, err := msgpack.Marshal(value.NewMap("data", inner, "sig", signature), msgpack.Raw)
	if err != nil {
		return nil, fmt.Errorf("pack a pillar: %w", err)
	}

	return value.NewMap("key", wrapped, "pillar", key.Seal(signed, "")), nil
}

// VerifyLoad verifies the signature over the load of a return from a minion with
// minion_sign_messages. The caller has removed nonce, tok and sig from load. VerifyLoad packs load
// with bin types, in the order in which the minion sent the fields.
func (s *Service) VerifyLoad(id string, a Algorithms, load *value.Map, sig []byte) error {
	packed, err := msgpack.Marshal(load, msgpack.Modern)
	if err != nil {
		return err
	}
	e, ok := s.cfg.Keys.Lookup(id)
	if !ok {
		return fmt.Errorf("no key of %s", id)
	}
	pub, err := e.Public()
	if err != nil {
		return err
	}
	return crypt.Verify(pub, a.signing(), packed, sig)
}
