package auth

import (
	"cmp"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"saltern/internal/versioned"
	"saltern/master/crypt"
)

const (
	seedLen = 32
	// sessionKeyLen is the length of a crypt.Key in bytes.
	sessionKeyLen = 56
)

// openSeed reads the seed of session keys, or creates it. If several masters start at once on a
// shared directory, only one of them creates the file, because link fails if the name exists; all
// of them then read that file.
func openSeed(path string, random io.Reader) ([]byte, error) {
	text, _, err := readSecret(path)
	if errors.Is(err, os.ErrNotExist) {
		if err := makeSeed(path, random); err != nil {
			return nil, fmt.Errorf("make the session seed: %w", err)
		}
		text, _, err = readSecret(path)
	}

	if err != nil {
		return nil, fmt.Errorf("read the session seed: %w", err)
	}

	prk, err := parseSeed(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}

	return prk, nil
}

// parseSeed returns the HKDF key of a seed in text form.
func parseSeed(text string) ([]byte, error) {
	seed, err := hex.DecodeString(text)
	if err != nil || len(seed) != seedLen {
		return nil, fmt.Errorf("read the session seed: not %d hexadecimal digits", 2*seedLen)
	}
	prk, err := hkdf.Extract(sha256.New, seed, []byte("saltern session keys"))
	if err != nil {
		return nil, fmt.Errorf("prepare the session seed: %w", err)
	}
	return prk, nil
}

func makeSeed(path string, random io.Reader) (err error) {
	random = cmp.Or(random, rand.Reader)
	seed := make([]byte, seedLen)
	if _, err := io.ReadFull(random, seed); err != nil {
		return err
	}
	_, err = versioned.Create(path, []byte(hex.EncodeToString(seed)), 0o600)
	return err
}

// epochAt returns the number of a minion's epoch at the time t. Each minion changes epochs at a
// different time of day, so that the minions do not all sign in again at once.
func (s *Secrets) epochAt(id string, t time.Time) int64 {
	sum := sha256.Sum256([]byte(id))
	period := int64(s.cfg.PublishSession / time.Second)
	offset := int64(binary.BigEndian.Uint32(sum[:4])) % max(period, 1)
	return (t.Unix() + offset) / max(period, 1)
}

// deriveSession derives the session key of a minion for an epoch. pem is the minion's accepted key,
// normalised. A minion with another accepted key gets another session key.
func (s *Secrets) deriveSession(id, pem string, epoch int64) (crypt.Key, error) {
	sum := sha256.Sum256([]byte(pem))
	info := make([]byte, 0, 1+len(id)+1+sha256.Size+8)
	info = append(info, 1) // version of the derivation
	info = append(info, id...)
	info = append(info, 0)
	info = append(info, sum[:]...)
	info = binary.BigEndian.AppendUint64(info, uint64(epoch))
	s.mu.Lock()
	seed := s.seed
	s.mu.Unlock()

	raw, err := hkdf.Expand(sha256.New, seed, string(info), sessionKeyLen)
	if err != nil {
		return crypt.Key{}, fmt.Errorf("derive a session key: %w", err)
	}

	return crypt.ParseKey(base64.StdEncoding.EncodeToString(raw))
}

// cachedSession is the session key that a minion last used. It takes less than one KiB of memory,
// and there is at most one cachedSession for each accepted key.
type cachedSession struct {
	gen   uint64 // value of Secrets.seedGen when the key was derived
	pem   string
	epoch int64
	key   crypt.Key
}

// cachedOrDerived returns the cached session key if it fits the arguments, and otherwise calls
// deriveSession.
func (s *Secrets) cachedOrDerived(id, pem string, epoch int64) (crypt.Key, error) {
	if v, ok := s.sessions.Load(id); ok {
		if c := v.(*cachedSession); c.epoch == epoch && c.pem == pem && c.gen == s.seedGen.Load() {
			return c.key, nil
		}
	}
	return s.deriveSession(id, pem, epoch)
}

// keepSession caches a key that decrypted a request of an accepted minion. gen is the value of
// seedGen that the caller read before it derived the key.
func (s *Secrets) keepSession(id, pem string, epoch int64, gen uint64, key crypt.Key) {
	if v, ok := s.sessions.Load(id); ok {
		if c := v.(*cachedSession); c.epoch == epoch && c.pem == pem && c.gen == gen {
			return
		}
	}
	s.sessions.Store(id, &cachedSession{gen, pem, epoch, key})
}

// openSession decrypts blob with the session keys of a minion that are valid now: the key of the
// current epoch, that of the previous epoch and, shortly before the epoch changes, that of the next
// one. openSession overwrites blob; the returned body is a part of it.
func (s *Secrets) openSession(id, pem string, blob []byte) ([]byte, crypt.Key, error) {
	if s.files != nil {
		key, err := s.files.sessionKey(id)
		if err == nil {
			if body, err := key.OpenInPlace(blob); !errors.Is(err, crypt.ErrOpen) {
				return body, key, err
			}
		}

		// Try a derived key as well: other Saltern masters may already use derived keys.
		body, derived, err2 := s.openDerived(id, pem, blob)
		if errors.Is(err2, crypt.ErrOpen) && err != nil {
			return nil, crypt.Key{}, err
		}

		return body, derived, err2
	}

	return s.openDerived(id, pem, blob)
}

func (s *Secrets) openDerived(id, pem string, blob []byte) ([]byte, crypt.Key, error) {
	gen := s.seedGen.Load()
	now := s.cfg.Now()
	current := s.epochAt(id, now)
	// Also accept a key of the next epoch shortly before that epoch begins, because the clocks of
	// two masters may differ.
	epochs := [3]int64{current, current - 1, s.epochAt(id, now.Add(5*time.Minute))}
	for i, e := range epochs {
		if i == 2 && e == current {
			break
		}

		key, err := s.cachedOrDerived(id, pem, e)
		if err != nil {
			return nil, crypt.Key{}, err
		}

		body, err := key.OpenInPlace(blob)
		if errors.Is(err, crypt.ErrOpen) {
			continue
		}

		if err == nil {
			s.keepSession(id, pem, e, gen, key)
		}

		return body, key, err
	}

	return nil, crypt.Key{}, crypt.ErrOpen
}
