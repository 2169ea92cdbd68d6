package auth

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"saltern/internal/durable"
	"saltern/master/crypt"
)

// serialBlock is how many serials reserveSerials marks as used in advance.
const serialBlock = 1 << 20

const dropMode = 0o400

func (s *Secrets) publishFile() string { return filepath.Join(s.cfg.CacheDir, ".publish_key") }
func (s *Secrets) dropFile() string    { return filepath.Join(s.cfg.CacheDir, ".dfn") }

// openPublishKey reads the stored publish key. It creates a new key if the stored key is too old,
// or if a drop file requested a new key while the master was down.
func (s *Secrets) openPublishKey() error {
	p, err := s.readPublishKey()
	asked := s.takeDropFile()
	switch {
	case errors.Is(err, os.ErrNotExist):
		return s.Rotate()
	case err != nil:
		s.cfg.Logger.Warn("the kept publish key is unusable, making a new one", "error", err)
		return s.Rotate()
	case asked || s.isOld(p.made):
		return s.Rotate()
	}

	if p.digest, err = s.signDigest(p.key); err != nil {
		return err
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.pub = p
	return nil
}

func (s *Secrets) isOld(made time.Time) bool {
	age := s.cfg.Now().Sub(made)
	return age >= s.cfg.PublishSession || age < -time.Hour
}

// readPublishKey returns the stored publish key with the highest serial that is marked as used and
// the time of its creation.
func (s *Secrets) readPublishKey() (publishKey, error) {
	text, _, err := readSecret(s.publishFile())
	if err != nil {
		return publishKey{}, err
	}

	fields := strings.Fields(text)
	if len(fields) != 3 {
		return publishKey{}, errors.New("malformed publish key file")
	}

	key, err := crypt.ParseKey(fields[0])
	if err != nil {
		return publishKey{}, err
	}

	serial, err1 := strconv.ParseInt(fields[1], 10, 64)
	made, err2 := strconv.ParseInt(fields[2], 10, 64)
	if err := errors.Join(err1, err2); err != nil || serial < 0 {
		return publishKey{}, errors.New("malformed publish key file")
	}

	return publishKey{key: key, serial: serial, limit: serial, made: time.Unix(made, 0)}, nil
}

// reserveSerials marks a block of serials as used on disk. After a restart the serials continue
// after that block.
func (s *Secrets) reserveSerials(p *publishKey) error {
	limit := p.serial + serialBlock
	text := fmt.Sprintf("%s %d %d\n", p.key.String(), limit, p.made.Unix())
	if err := durable.Replace(s.publishFile(), []byte(text), 0o600); err != nil {
		return fmt.Errorf("keep the publish key: %w", err)
	}
	p.limit = limit
	return nil
}

// signDigest returns the X9.31 signature over a publish key (master.py _auth_impl).
func (s *Secrets) signDigest(key crypt.Key) ([]byte, error) {
	sum := sha256.Sum256([]byte(key.String()))
	sig, err := crypt.X931Sign(s.cfg.Identity.Key, []byte(hex.EncodeToString(sum[:])))
	if err != nil {
		return nil, fmt.Errorf("sign the publish key: %w", err)
	}
	return sig, nil
}

// Rotate replaces the publish key and restarts its serials at 1. A minion cannot decrypt the next
// publish with the old key, signs in again, and then decrypts that publish with the new key. The
// caller must fire the event "key" with {"rotate_aes_key": true}. In a cluster Rotate returns an
// error: there the masters agree on a key and call SetClusterKey.
func (s *Secrets) Rotate() error {
	if s.headOnly {
		return errors.New("rotate the publish key: the cluster owns it")
	}

	s.rotateMu.Lock()
	defer s.rotateMu.Unlock()
	key, err := crypt.NewKey(s.cfg.Random)
	if err != nil {
		return fmt.Errorf("rotate the publish key: %w", err)
	}

	p := publishKey{key: key, made: s.cfg.Now()}
	if p.digest, err = s.signDigest(key); err != nil {
		return err
	}

	s.mu.Lock() // held during the write, because NextPublish writes the same file
	defer s.mu.Unlock()
	if err := s.reserveSerials(&p); err != nil {
		return err
	}

	s.pub = p
	return nil
}

// SetClusterKey sets the publish key that the cluster uses from now on.
func (s *Secrets) SetClusterKey(key crypt.Key) error {
	if !s.headOnly {
		return errors.New("set the cluster's publish key: this master is alone")
	}
	s.rotateMu.Lock()
	defer s.rotateMu.Unlock()
	digest, err := s.signDigest(key)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pub = publishKey{key: key, digest: digest, made: s.cfg.Now()}
	return nil
}

// RotateIfDue replaces the publish key if the key is older than publish_session or if a drop file
// requests it, and reports whether it replaced the key. Call it every loop_interval. In a cluster
// it does nothing.
func (s *Secrets) RotateIfDue() (bool, error) {
	if s.headOnly {
		return false, nil
	}
	s.mu.Lock()
	made := s.pub.made
	s.mu.Unlock()
	if !s.takeDropFile() && !s.isOld(made) {
		return false, nil
	}
	return true, s.Rotate()
}

// takeDropFile removes a valid drop file, and reports whether there was one. A drop file is valid
// if it is a regular file of mode 0400 that contains this master's id, or is empty, as older tools
// write it (master.py handle_key_rotate). takeDropFile does not remove an invalid file.
func (s *Secrets) takeDropFile() bool {
	path := s.dropFile()
	st, err := os.Lstat(path)
	if err != nil {
		return false
	}
	if !st.Mode().IsRegular() || st.Mode() != dropMode {
		s.cfg.Logger.Error("found a drop file with incorrect permissions, ignoring it", "path", path)
		return false
	}

	text, _, err := readSecret(path)
	if err != nil {
		s.cfg.Logger.Error("reading the drop file", "path", path, "error", err)
		return false
	}
	if text != "" && strings.TrimSuffix(text, "_master") != strings.TrimSuffix(s.cfg.MasterID, "_master") {
		return false
	}

	if err := os.Remove(path); err != nil {
		s.cfg.Logger.Error("removing the drop file", "path", path, "error", err)
		return false
	}

	return true
}

// RequestRotation writes a drop file, which requests a new publish key from the master that uses
// cacheDir (crypt.py dropfile). Tools on the master's host call it. If the file exists,
// RequestRotation does nothing.
func RequestRotation(cacheDir, masterID string) error {
	path := filepath.Join(cacheDir, ".dfn")
	if _, err := os.Lstat(path); err == nil {
		return nil
	}
	if err := durable.Replace(path, []byte(masterID), dropMode); err != nil {
		return fmt.Errorf("ask for a key rotation: %w", err)
	}
	return nil
}
