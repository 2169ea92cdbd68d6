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

// SecretsConfig says where a master's secrets are stored.
type SecretsConfig struct {
	// Identity is the key pair by which minions know the master: in a cluster that of the cluster,
	// otherwise the master's own.
	Identity Identity
	// MasterID is the option id, which drop files contain.
	MasterID string
	// CacheDir holds the seed, the publish key and the drop file.
	CacheDir string
	// SeedFile is the file of the session seed; "" means
	// <CacheDir>/.session_seed. In a cluster it is one shared file.
	SeedFile string
	// Seed is the seed of session keys in hexadecimal, once the masters of a cluster have agreed on
	// one. With Seed there is no file. SetClusterSeed replaces it.
	Seed string
	// SessionDir is the folder with one session key file for each minion, for a cluster with Salt's
	// masters. If it is "", session keys are derived from the seed.
	SessionDir string
	// ClusterKey is the publish key that the masters of a cluster share. If it is set, publishes
	// carry no serial (each master would count by itself), and only SetClusterKey replaces the key.
	ClusterKey crypt.Key
	// PublishSession is publish_session: the age at which the publish key is
	// replaced and the length of an epoch of session keys. 0 means Salt's
	// 24 hours.
	PublishSession time.Duration
	// Signer signs the public key for minions with verify_master_pubkey_sign (option
	// master_sign_pubkey). It may be nil: no signature.
	Signer *Identity
	// PubkeySignature is a ready-made signature that is sent unchanged (master_use_pubkey_signature).
	// It takes precedence over Signer.
	PubkeySignature string
	// SigningAlgorithm is publish_signing_algorithm; "" means PKCS1v15-SHA1.
	SigningAlgorithm string

	Random io.Reader        // nil means the system's secure source
	Now    func() time.Time // nil means time.Now
	Logger *slog.Logger     // nil discards
}

// Secrets holds what only masters know. All methods may be called concurrently.
type Secrets struct {
	cfg      SecretsConfig
	pubSigs  map[string]string
	headOnly bool          // the master is in a cluster: publishes have no serials, and the publish key is not stored
	files    *sessionFiles // nil when session keys are derived

	sessions sync.Map // id → *cachedSession

	rotateMu sync.Mutex // held during a rotation; taken before mu

	mu   sync.Mutex
	pub  publishKey
	seed []byte // pseudo-random key of HKDF; replaced, never changed in place

	seedGen atomic.Uint64 // number of replacements of the seed
}

// publishKey is the shared AES key with its signature and its serials.
type publishKey struct {
	key    crypt.Key
	digest []byte    // X9.31 over the hexadecimal SHA-256 of the key text
	made   time.Time // time of creation
	serial int64     // last serial handed out
	limit  int64     // serials up to this one are marked on disk as used
}

// OpenSecrets reads the secrets and creates missing ones. It computes the X9.31 signature over the
// publish key and, with a Signer, the signatures over the public key only once, because they do not
// depend on the request.
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

// signPublic returns the field pub_sig for each algorithm that a minion may ask for: base64 with a
// newline at the end (binascii.b2a_base64), or the content of the signature file, as Salt sends it.
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

// Public returns the public key as minions store it.
func (s *Secrets) Public() string { return s.cfg.Identity.Public }

// SigningAlgorithm returns the algorithm by which publishes are signed.
func (s *Secrets) SigningAlgorithm() string { return s.cfg.SigningAlgorithm }

// Sign signs data with the identity: pillars by the algorithm that the minion asked for, publishes by
// SigningAlgorithm. It costs an RSA private-key operation.
func (s *Secrets) Sign(algo string, data []byte) ([]byte, error) {
	return crypt.Sign(s.cfg.Identity.Key, algo, data)
}

// PublishKey returns the key that encrypts publishes at present.
func (s *Secrets) PublishKey() crypt.Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pub.key
}

// NextPublish returns the key for one publish together with its serial. Minions drop a publish whose
// serial is not above the last one they saw under the same key (crypt.py Crypticle.loads), so serials
// must continue after a restart. In a cluster the serial is 0 and must be left out. An error means
// that the disk cannot mark serials as used; NextPublish writes to the disk at most once in 2^20
// publishes.
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

// currentKey returns the publish key and the signature over it.
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
