package backup

import (
	"archive/tar"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"hash"
	"slices"

	"filippo.io/age"

	"saltern/supervisor/nodeapi"
	"saltern/supervisor/settings"
)

// The signature is the last entry of an archive: RSA-PSS with SHA-256 over all entries before it,
// made with the key by which minions know the master. The signature authenticates an archive for
// recipients; the encryption does not.
const (
	signatureName = "signature.json"
	maxSignature  = 16 << 10
	// signatureUse is the beginning of the signed data. It prevents a signature that the key made
	// for another purpose from being accepted here.
	signatureUse = "saltern backup, format 2\n"
)

// ErrUnsigned means that an archive for recipients has no signature, so that anybody may have made
// it.
var ErrUnsigned = errors.New("the backup is not signed: whoever knows a recipient's public key could have made it")

// SignerError means that the key that signed an archive is not trusted.
type SignerError struct{ Signer string }

// Error returns a text that names the key.
func (e *SignerError) Error() string {
	return "the backup is signed by a key not known here: " + e.Signer
}

// Trust says which archives are trusted. An archive that a passphrase opens is always trusted,
// because nobody without the passphrase can have made it.
type Trust struct {
	Signers  []string // hashes of trusted public keys, as [nodeapi.KeyHash] returns them
	Unsigned bool     // trust archives without a signature too
}

// checkSigner returns nil if an archive with that signer ("": none) may be restored with these
// identities.
func (t Trust) checkSigner(signer string, identities []age.Identity) error {
	passphrase := !slices.ContainsFunc(identities,
		func(i age.Identity) bool { _, ok := i.(*age.ScryptIdentity); return !ok })
	switch {
	case passphrase:
		return nil
	case signer == "" && !t.Unsigned:
		return ErrUnsigned
	case signer != "" && !slices.Contains(t.Signers, signer):
		return &SignerError{signer}
	}
	return nil
}

// signature is the content of the last entry.
type signature struct {
	Public string `json:"public"` // public key, in PEM
	Sign   []byte `json:"signature"`
}

// Signer returns the hash of the key that signs the backups of a node: the cluster's key, or the
// master's key on a node without a cluster.
func Signer(s *settings.Settings) (string, error) {
	k, err := signer(s)
	if err != nil {
		return "", err
	}
	return k.hash, nil
}

type signKey struct {
	key          *rsa.PrivateKey
	public, hash string
}

// signer reads the signing key. It does not follow links out of the folder, because the folder
// belongs to the master's account.
func signer(s *settings.Settings) (*signKey, error) {
	name := "master.pem"
	if s.Peering.Enabled {
		name = "cluster.pem"
	}

	dir, err := beneath(s.StorageDir(), "pki")
	if err != nil {
		return nil, fmt.Errorf("the key to sign with: %w", err)
	}
	defer dir.Close()

	text, err := dir.readKey(name)
	if err != nil {
		return nil, fmt.Errorf("the key to sign with: %w", err)
	}

	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("the key to sign with: %s is not a PEM file", name)
	}

	key, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil {
		parsed, err8 := x509.ParsePKCS8PrivateKey(block.Bytes)
		k, ok := parsed.(*rsa.PrivateKey)
		if err8 != nil || !ok {
			return nil, fmt.Errorf("the key to sign with: %s: %w", name, err)
		}
		key = k
	}

	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return nil, fmt.Errorf("the key to sign with: %w", err)
	}

	public := string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	return &signKey{key: key, public: public, hash: nodeapi.KeyHash(public)}, nil
}

// digest is the hash that is signed: of each entry it covers name, kind, mode, size and content.
type digest struct{ hash.Hash }

func newDigest() digest {
	d := digest{sha256.New()}
	fmt.Fprint(d, signatureUse)
	return d
}

// addHeader adds an entry's header to the digest. The caller then adds the entry's content.
func (d digest) addHeader(h *tar.Header) {
	fmt.Fprintf(d, "%q %d %o %d\n", h.Name, h.Typeflag, h.Mode, h.Size)
}

func (k *signKey) signDigest(d digest) ([]byte, error) {
	sum := d.Sum(nil)
	b, err := rsa.SignPSS(rand.Reader, k.key, crypto.SHA256, sum, nil)
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	return json.Marshal(signature{Public: k.public, Sign: b})
}

// verify verifies a signature over sum, and returns the hash of the key that made it.
func verify(text, sum []byte) (string, error) {
	var s signature
	if err := json.Unmarshal(text, &s); err != nil {
		return "", fmt.Errorf("the signature of the backup cannot be read: %w", err)
	}

	block, _ := pem.Decode([]byte(s.Public))
	if block == nil {
		return "", errors.New("the signature of the backup names no key")
	}

	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return "", fmt.Errorf("the signature of the backup: %w", err)
	}

	key, ok := parsed.(*rsa.PublicKey)
	if !ok || key.N.BitLen() < 2048 || key.N.BitLen() > 16384 {
		return "", errors.New("the signature of the backup is not of a key that a master has")
	}

	if err := rsa.VerifyPSS(key, crypto.SHA256, sum, s.Sign, nil); err != nil {
		return "", errors.New("the signature of the backup does not fit to it: it was changed")
	}

	return nodeapi.KeyHash(string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: block.Bytes}))), nil
}
