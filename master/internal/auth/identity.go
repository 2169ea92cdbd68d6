package auth

import (
	"crypto/rsa"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"saltern/master/crypt"
)

// Identity is an RSA key pair of a master: the master's own pair, the cluster's pair, or the pair
// that signs public keys.
type Identity struct {
	Key *rsa.PrivateKey
	// Public is the public key as PEM text, exactly as minions receive it: normalised, without a
	// newline at the end.
	Public string
}

// NewIdentity returns an Identity of the given key. It reads and writes no file.
func NewIdentity(key *rsa.PrivateKey) (Identity, error) {
	text, err := crypt.PublicPEM(&key.PublicKey)
	if err != nil {
		return Identity{}, err
	}
	return Identity{Key: key, Public: text}, nil
}

// LoadIdentity reads <dir>/<name>.pem. If <name>.pub holds the same key, Public is the text of
// <name>.pub, because some minions compare it byte by byte with the text that they have stored.
func LoadIdentity(dir, name, passphrase string) (Identity, error) {
	key, err := crypt.LoadPrivate(filepath.Join(dir, name+".pem"), passphrase)
	if err != nil {
		return Identity{}, err
	}

	id, err := NewIdentity(key)
	if err != nil {
		return Identity{}, err
	}

	text, err := os.ReadFile(filepath.Join(dir, name+".pub"))
	if err == nil {
		own := crypt.Bounds{Min: 1, Max: 1 << 16}
		if pub, err := own.ParsePublic(text); err == nil && pub.Equal(&key.PublicKey) {
			id.Public = crypt.NormalizePEM(string(text))
		}
	}

	return id, nil
}

// OpenMaster reads the master's own key pair. If there is none, OpenMaster creates one of the given
// size in bits. masterID is the option id. The files are named after masterID without the suffix
// "_master"; master.pem and master.pub are links to these files, as in 3008 (crypt.py MasterKeys).
// If master.pem is a regular file, as older releases write it, OpenMaster uses that file.
func OpenMaster(dir, masterID, passphrase string, bits int) (Identity, error) {
	name := strings.TrimSuffix(masterID, "_master")
	if name == "" || strings.ContainsAny(name, "/\\\x00") || name[0] == '.' {
		return Identity{}, fmt.Errorf("open the master's key: unusable master id %.64q", masterID)
	}

	for _, n := range []string{name, "master"} {
		id, err := LoadIdentity(dir, n, passphrase)
		if err == nil || !errors.Is(err, os.ErrNotExist) {
			return id, err
		}
	}

	id, err := create(dir, name, passphrase, bits)
	if err != nil {
		return Identity{}, err
	}

	for _, ext := range []string{".pem", ".pub"} {
		if err := os.Symlink(filepath.Join(dir, name+
			ext), filepath.Join(dir, "master"+ext)); err != nil && name != "master" {
			return Identity{}, fmt.Errorf("link the master's key: %w", err)
		}
	}

	return id, nil
}

// OpenSigner reads the key pair that signs the master's public key (option master_sign_pubkey), or
// creates it. name is the option master_sign_key_name.
func OpenSigner(dir, name, passphrase string, bits int) (Identity, error) {
	id, err := LoadIdentity(dir, name, passphrase)
	if errors.Is(err, os.ErrNotExist) {
		return create(dir, name, passphrase, bits)
	}
	return id, err
}

func create(dir, name, passphrase string, bits int) (Identity, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Identity{}, fmt.Errorf("make the folder for master keys: %w", err)
	}

	key, err := crypt.GeneratePrivate(bits)
	if err != nil {
		return Identity{}, err
	}

	base := filepath.Join(dir, name)
	if err := crypt.SavePublic(base+".pub", &key.PublicKey); err != nil {
		return Identity{}, err
	}

	if err := crypt.SavePrivate(base+".pem", key, passphrase); err != nil {
		return Identity{}, err
	}

	return NewIdentity(key)
}
