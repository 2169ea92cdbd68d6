package auth

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"saltern/internal/durable"
	"saltern/master/crypt"
)

// SecretsConfig holds the paths and the options of a master's secrets.
type SecretsConfig struct {
	// Identity is the key pair by which minions recognise the master: the cluster's pair in a
	// cluster, otherwise the master's own.
	Identity Identity
	// MasterID is the option id, which drop files contain.
	MasterID string
	// CacheDir holds the seed, the publish key and the drop file.
	CacheDir string
	// SeedFile is the file of the session seed; "" means <CacheDir>/.session_seed. In a cluster
	// SeedFile is one file that all masters share.
	SeedFile string
	// Seed is the seed of session keys in hexadecimal, if the masters of a cluster have agreed on a
	// seed. If Seed is set, SeedFile is not used. SetClusterSeed replaces Seed.
	Seed string
	// SessionDir is the directory with one session key file for each minion. It is used in a
	// cluster that contains Python masters. If it is "", session keys are derived from the seed.
	SessionDir string
	// ClusterKey is the publish key that the masters of a cluster share. If it is set, publishes
	// carry no serial, because each master would count separately, and only SetClusterKey replaces
	// the key.
	ClusterKey crypt.Key
	// PublishSession is publish_session: the age at which the publish key is replaced, and the
	// length of an epoch of session keys. 0 means Salt's default, 24 hours.
	PublishSession time.Duration
	// Signer signs the public key for minions with verify_master_pubkey_sign (option
	// master_sign_pubkey). It may be nil: the public key is not signed.
	Signer *Identity
	// PubkeySignature is a signature from a file, which is sent unchanged
	// (master_use_pubkey_signature). It takes precedence over Signer.
	PubkeySignature string
	// SigningAlgorithm is publish_signing_algorithm; "" means PKCS1v15-SHA1.
	SigningAlgorithm string

	Random io.Reader        // nil means the system's secure source
	Now    func() time.Time // nil means time.Now
	Logger *slog.Logger     // nil means no log
}

// Secrets holds the secrets of a master. All methods may be called concurrently.
type Secrets struct {
	cfg      SecretsConfig
	pubSigs  map[string]string
	headOnly bool          // the master is in a cluster: publishes have no serials, and the publish key is not stored
	files    *sessionFiles // nil if session keys are derived

	sessions sync.Map // minion id → *cachedSession

	rotateMu sync.Mutex // held during a rotation; taken before mu

	mu   sync.Mutex
	pub  publishKey
	seed []byte // pseudo-random key of HKDF; SetClusterSeed replaces the slice and never changes its bytes

	seedGen atomic.Uint64 // number of times that the seed was replaced
}

// publishKey is the shared AES key with its signature and its serials.
type publishKey struct {
	key    crypt.Key
	digest []byte    // X9.31 over the hexadecimal SHA-256 of the key text
	made   time.Time // time of creation
	serial int64     // last serial assigned
	limit  int64     // serials up to this one are marked on disk as used
}

// OpenSecrets reads the secrets and creates missing ones. It computes the X9.31 signature over the
// publish key and, if there is a Signer, the signatures over the public key. These signatures do
// not depend on a request, so they are computed only once.
func OpenSecrets(cfg SecretsConfig) (*Secrets, error) {
	if cfg.Identity.Key == nil {
		return nil, errors.New("open secrets: no identity")
	}

	if cfg.PublishSession <= 0 {
		cfg.PublishSession = 24 * time.Hour
	}

	cfg.SeedFile = cmp.Or(cfg.SeedFile, filepath.Join(cfg.CacheDir, ".session_seed"))
	cfg.SigningAlgorithm = cmp.Or(cfg.SigningAlgorithm, crypt.PKCS1SHA1)
	if _, err := crypt.SignatureHash(cfg.SigningAlgorithm); err != nil {
		return nil, fmt.Errorf("publish_signing_algorithm: %w", err)
	}

	if cfg.Now == nil {
		cfg.Now = time.Now
	}

	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	s := &Secrets{cfg: cfg, headOnly: !cfg.ClusterKey.IsZero()}
	var err error
	if cfg.Seed != "" {
		s.seed, err = parseSeed(cfg.Seed)
	} else {
		s.seed, err = openSeed(cfg.SeedFile, cfg.Random)
	}

	if err != nil {
		return nil, err
	}

	if cfg.SessionDir != "" {
		if s.files, err = openSessionFiles(cfg); err != nil {
			return nil, err
		}
	}

	if s.pubSigs, err = signPublic(cfg); err != nil {
		return nil, err
	}
	if s.headOnly {
		return s, s.SetClusterKey(cfg.ClusterKey)
	}

	return s, s.openPublishKey()
}

// signPublic returns the field pub_sig for each algorithm that a minion may ask for, in the form in
// which Salt sends it: base64 with a newline at the end (binascii.b2a_base64), or the content of
// the signature file.
func signPublic(cfg SecretsConfig) (map[string]string, error) {
	sigs := map[string]string{}
	for _, algo := range []string{crypt.PKCS1SHA1, crypt.PKCS1SHA224} {
		switch {
		case cfg.PubkeySignature != "":
			sigs[algo] = crypt.NormalizePEM(cfg.PubkeySignature)
		case cfg.Signer != nil:
			sig, err := crypt.Sign(cfg.Signer.Key, algo, []byte(cfg.Identity.Public))
			if err != nil {
				return nil, fmt.Errorf("sign the public key: %w", err)
			}
			sigs[algo] = base64.StdEncoding.EncodeToString(sig) + "\n"
		}
	}

	return sigs, nil
}

// Public returns the public key in the form in which minions store it.
func (s *Secrets) Public() string { return s.cfg.Identity.Public }

// SigningAlgorithm returns the algorithm by which publishes are signed.
func (s *Secrets) SigningAlgorithm() string { return s.cfg.SigningAlgorithm }

// Sign signs data with the private key of Identity: pillars with the algorithm that the minion
// asked for, publishes with SigningAlgorithm. It costs one RSA private-key operation.
func (s *Secrets) Sign(algo string, data []byte) ([]byte, error) {
	return crypt.Sign(s.cfg.Identity.Key, algo, data)
}

// PublishKey returns the current key for encrypting publishes.
func (s *Secrets) PublishKey() crypt.Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pub.key
}

// NextPublish returns the key and the serial for one publish. A minion drops a publish whose serial
// is not greater than the last serial that it received under the same key (crypt.py
// Crypticle.loads), so serials must continue after a restart. In a cluster the serial is 0, and the
// caller must leave it out. NextPublish returns an error if it cannot mark serials as used on disk;
// it writes to the disk at most once in 2^20 publishes.
func (s *Secrets) NextPublish() (crypt.Key, int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.headOnly {
		return s.pub.key, 0, nil
	}
	if s.pub.serial >= s.pub.limit {
		if err := s.reserveSerials(&s.pub); err != nil {
			return crypt.Key{}, 0, err
		}
	}
	s.pub.serial++
	return s.pub.key, s.pub.serial, nil
}

// currentKey returns the publish key and the X9.31 signature over it.
func (s *Secrets) currentKey() (crypt.Key, []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pub.key, s.pub.digest
}

// readSecret reads a small file that only its owner may read.
func readSecret(path string) (string, os.FileInfo, error) {
	b, st, err := durable.ReadFile(path, 4096, durable.Follow)
	if err == nil && st.Mode().Perm()&0o077 != 0 {
		err = fmt.Errorf("%s must be a regular file that only its owner may read (mode 0600)", path)
	}
	if err != nil {
		return "", nil, err
	}
	return strings.TrimSpace(string(b)), st, nil
}
