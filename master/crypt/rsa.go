package crypt

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	_ "crypto/sha1" // linked in because OAEP-SHA1 and PKCS1v15-SHA1 are every minion's default
	_ "crypto/sha256"
	"errors"
	"fmt"
)

// Names of the RSA schemes as they appear in requests (crypt.py, VALID_ENCRYPTION_ALGORITHMS and
// VALID_SIGNING_ALGORITHMS). The first of each kind is Salt's default.
const (
	OAEPSHA1    = "OAEP-SHA1"
	OAEPSHA224  = "OAEP-SHA224"
	PKCS1SHA1   = "PKCS1v15-SHA1"
	PKCS1SHA224 = "PKCS1v15-SHA224"
)

// Errors of the RSA functions.
var (
	// ErrAlgorithm means that no scheme has this name, or that it is of the wrong kind.
	ErrAlgorithm = errors.New("crypt: unsupported algorithm")
	// ErrDecrypt means that a ciphertext was not encrypted for this key.
	ErrDecrypt = errors.New("crypt: RSA ciphertext does not open with this key")
	// ErrSignature means that a signature does not match.
	ErrSignature = errors.New("crypt: signature does not match")
)

// EncryptionHash returns the hash of an OAEP scheme. MGF1 uses the same hash, and the label is
// empty. For an unknown name it returns ErrAlgorithm.
func EncryptionHash(algo string) (crypto.Hash, error) {
	switch algo {
	case OAEPSHA1:
		return crypto.SHA1, nil
	case OAEPSHA224:
		return crypto.SHA224, nil
	}
	return 0, fmt.Errorf("%w for encryption: %.40q", ErrAlgorithm, algo)
}

// SignatureHash returns the hash of a PKCS#1 v1.5 scheme. For an unknown name it returns
// ErrAlgorithm.
func SignatureHash(algo string) (crypto.Hash, error) {
	switch algo {
	case PKCS1SHA1:
		return crypto.SHA1, nil
	case PKCS1SHA224:
		return crypto.SHA224, nil
	}
	return 0, fmt.Errorf("%w for signing: %.40q", ErrAlgorithm, algo)
}

// Encrypt encrypts a short text, such as the text form of a Key, with an OAEP scheme.
func Encrypt(pub *rsa.PublicKey, algo string, plain []byte) ([]byte, error) {
	h, err := EncryptionHash(algo)
	if err != nil {
		return nil, err
	}
	ct, err := rsa.EncryptOAEP(h.New(), rand.Reader, pub, plain, nil)
	if err != nil {
		return nil, fmt.Errorf("crypt: encrypting with %s: %w", algo, err)
	}
	return ct, nil
}

// Decrypt decrypts the result of Encrypt. It returns ErrAlgorithm for an unknown scheme, and
// ErrDecrypt for every other failure.
func Decrypt(priv *rsa.PrivateKey, algo string, ct []byte) ([]byte, error) {
	h, err := EncryptionHash(algo)
	if err != nil {
		return nil, err
	}
	plain, err := rsa.DecryptOAEP(h.New(), nil, priv, ct, nil)
	if err != nil {
		return nil, ErrDecrypt
	}
	return plain, nil
}

// Sign signs msg with a PKCS#1 v1.5 scheme. The same arguments always yield the same bytes.
func Sign(priv *rsa.PrivateKey, algo string, msg []byte) ([]byte, error) {
	h, err := SignatureHash(algo)
	if err != nil {
		return nil, err
	}
	d := h.New()
	d.Write(msg)
	sig, err := rsa.SignPKCS1v15(nil, priv, h, d.Sum(nil))
	if err != nil {
		return nil, fmt.Errorf("crypt: signing with %s: %w", algo, err)
	}
	return sig, nil
}

// Verify checks a signature of msg. It returns nil, ErrAlgorithm (wrapped) or
// ErrSignature.
func Verify(pub *rsa.PublicKey, algo string, msg, sig []byte) error {
	h, err := SignatureHash(algo)
	if err != nil {
		return err
	}
	d := h.New()
	d.Write(msg)
	if rsa.VerifyPKCS1v15(pub, h, d.Sum(nil), sig) != nil {
		return ErrSignature
	}
	return nil
}
