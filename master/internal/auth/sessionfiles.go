package auth

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"saltern/internal/durable"
	"saltern/master/crypt"
	"saltern/master/keys"
)

// sessionFiles stores session keys as Salt's masters share them: one file for each minion. A master
// that finds the file missing or older than publish_session replaces it (salt/channel/server.py
// session_key). The methods may be called concurrently.
type sessionFiles struct {
	dir    string
	period time.Duration
	now    func() time.Time
	random io.Reader
	seen   sync.Map // minion id → seenFile
}

// seenFile is a key, and the metadata of its file when the key was read.
type seenFile struct {
	info os.FileInfo
	key  crypt.Key
}

func openSessionFiles(cfg SecretsConfig) (*sessionFiles, error) {
	st, err := os.Stat(cfg.SessionDir)
	if err != nil {
		return nil, fmt.Errorf("look for the folder of session keys: %w", err)
	}
	if !st.IsDir() {
		return nil, fmt.Errorf("look for the folder of session keys: %s is none", cfg.SessionDir)
	}
	return &sessionFiles{dir: cfg.SessionDir, period: cfg.PublishSession, now: cfg.Now, random: cfg.Random}, nil
}

// sessionKey returns the session key that all masters use for a minion now.
func (f *sessionFiles) sessionKey(id string) (crypt.Key, error) {
	if err := keys.ValidID(id); err != nil {
		return crypt.Key{}, err
	}

	path := filepath.Join(f.dir, id)

	// Another master may replace the file between the check and the read.
	for range 3 {
		info, err := os.Lstat(path)
		switch {
		case errors.Is(err, os.ErrNotExist):
			err = f.writeKey(path, false)
		case err == nil && f.now().Sub(info.ModTime()) > f.period:
			err = f.writeKey(path, true)
		case err == nil:
			if v, ok := f.seen.Load(id); ok && sameFile(v.(seenFile).info, info) {
				return v.(seenFile).key, nil
			}
			return f.readKey(id, path)
		}

		if err != nil && !errors.Is(err, syscall.ESTALE) {
			return crypt.Key{}, fmt.Errorf("keep the session key of %q: %w", id, err)
		}
	}

	return f.readKey(id, path)
}

func sameFile(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}

func (f *sessionFiles) readKey(id, path string) (crypt.Key, error) {
	text, info, err := readSecret(path)
	if err != nil {
		return crypt.Key{}, fmt.Errorf("read the session key of %q: %w", id, err)
	}
	key, err := crypt.ParseKey(text)
	if err != nil {
		return crypt.Key{}, fmt.Errorf("read the session key of %q: %w", id, err)
	}
	f.seen.Store(id, seenFile{info, key})
	return key, nil
}

// writeKey writes a new key. If several masters find the file missing at once, all of them use the
// key of the first writer.
func (f *sessionFiles) writeKey(path string, replace bool) error {
	key, err := crypt.NewKey(f.random)
	if err != nil {
		return err
	}
	if replace {
		return durable.Replace(path, []byte(key.String()), 0o600)
	}

	tmp, err := os.CreateTemp(f.dir, ".tmp-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())

	_, err = tmp.WriteString(key.String())
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}

	if err := os.Link(tmp.Name(), path); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}

	return nil
}

// forget removes the session key file of a minion that is no longer accepted, so that a later
// minion with the same id gets another key.
func (f *sessionFiles) forget(id string) error {
	f.seen.Delete(id)
	if keys.ValidID(id) != nil {
		return nil
	}
	if err := os.Remove(filepath.Join(f.dir, id)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the session key of %q: %w", id, err)
	}
	return nil
}

// removeAll removes all session keys, because somebody unauthorised knows them. A minion that has
// just got a new key merely signs in once more.
func (f *sessionFiles) removeAll() error {
	names, err := os.ReadDir(f.dir)
	if err != nil {
		return fmt.Errorf("remove the session keys: %w", err)
	}
	for _, n := range names {
		if n.Type().IsRegular() {
			err = errors.Join(err, f.forget(n.Name()))
		}
	}
	return err
}

// newSession returns the session key that a minion gets when it signs in.
func (s *Secrets) newSession(id, pem string) (crypt.Key, error) {
	if s.files != nil {
		return s.files.sessionKey(id)
	}
	return s.deriveSession(id, pem, s.epochAt(id, s.cfg.Now()))
}
