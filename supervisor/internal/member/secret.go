package member

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"saltern/internal/control"
	"saltern/supervisor/api"
	"saltern/supervisor/layout"
	"saltern/supervisor/setup"
)

// takeSecret reads the masters' record and the table of nodes from the shared storage, and stores
// the record's secrets. It reads the table after the record, and stores no secrets if the table
// says that this node was removed: a removed node must not get the secrets made after its removal.
// It must run in the worker of the shared storage.
func (s *shared) takeSecret(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	at := s.env.Now()
	r, err := control.ReadRecord(s.env.Settings.ClusterRecord())
	_ = s.keeper.Look(ctx)

	if t := s.keeper.Table(); err == nil && !t.WasRemoved(s.id.Hash) {
		if err = s.keepSecrets(r.Secrets); err != nil {
			s.env.Log.Error("the cluster's new secret", "error", err)
		}
	}

	if err == nil || errors.Is(err, fs.ErrNotExist) && !s.hasRecord() {
		s.mu.Lock()
		s.looked = at
		s.mu.Unlock()
	}
}

// errUnread means that the cluster may have a secret that this node has not read.
var errUnread = errors.New("the shared storage does not answer, and the cluster may have another secret by now: try again, or on another node")

// LookForSecret reads the cluster's present secret from the shared storage. If the storage does not
// answer within a few seconds, it returns an error.
func (m Verbs) LookForSecret() error {
	const limit = 2 * time.Second
	s := m.shared
	s.look.Wait(limit) // a read that is already under way may have seen the record before the secret changed
	began := m.env.Now()
	s.look.Start(func() { s.takeSecret(context.Background()) })
	s.look.Wait(limit)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.looked.Before(began) {
		return errUnread
	}
	return nil
}

// JoinString returns the line with which another node joins. Another node may just have changed the
// cluster's secret. So JoinString first reads the present secret, and then calls line, which reads
// this node's files.
func (m Verbs) JoinString(line func() (string, error)) (string, error) {
	if err := m.LookForSecret(); err != nil {
		return "", fmt.Errorf("%w: %w", api.ErrState, err)
	}
	return line()
}

// keepSecrets writes the secrets of the record to this node's files: first the present secret, then
// the next one.
func (s *shared) keepSecrets(r control.Secrets) error {
	dir := s.env.Settings.NodeDir()
	own, err := setup.ReadSecret(dir)
	if err != nil {
		return err
	}

	if r.Secret != "" && r.Secret != own {
		if err := setup.WriteSecret(dir, r.Secret); err != nil {
			return err
		}

		if err := s.writeSecret(); err != nil {
			return err
		}

		own = r.Secret
		s.env.Log.Info("the cluster has a new secret; earlier join strings are void")
	}

	staged, err := setup.ReadNextSecret(dir)
	if err != nil {
		return err
	}

	if staged != r.NextSecret {
		if err := setup.WriteNextSecret(dir, r.NextSecret); err != nil {
			return err
		}
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.secrets = secretNames{
		own:  r.SecretFinger(own),
		next: r.SecretFinger(r.NextSecret),
		weak: own != "" && setup.WeakSecret(own) != "",
	}

	return nil
}

// secretNames holds the fingerprints of the secrets on this node's disk. An empty fingerprint means
// that there is no such secret.
type secretNames struct {
	own, next string
	weak      bool // the present secret is easy to guess
}

// writeSecret writes the part of the master's configuration that holds the cluster's secret. Only
// the master's account may read the file.
func (s *shared) writeSecret() error {
	secret, err := setup.ReadSecret(s.env.Settings.NodeDir())
	if err != nil {
		return err
	}

	text, err := layout.ClusterConfig(secret)
	if err != nil {
		return err
	}

	if _, err := layout.WriteFile(s.env.Settings.ClusterConf(), text, 0o600); err != nil {
		return err
	}
	if s.env.Account.Credential != nil {
		return os.Chown(s.env.Settings.ClusterConf(), s.env.Account.UID, s.env.Account.GID)
	}

	return nil
}

// fingerprints returns the fingerprints of this node's secrets.
func (s *shared) fingerprints() secretNames {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.secrets
}
