package crypt

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	"saltern/internal/durable"
)

// Errors of reading private keys.
var (
	// ErrPassphrase means that a private key is encrypted and the passphrase is missing or wrong.
	ErrPassphrase = errors.New("crypt: passphrase missing or wrong")
	// ErrPrivateKey means that a private key is damaged, is not an RSA key, or has an unusable size.
	ErrPrivateKey = errors.New("crypt: unusable private key")
)

const (
	maxPrivatePEM  = 64 << 10
	minPrivateBits = 1024 // crypto/rsa refuses smaller keys
	maxPrivateBits = 16384
)

// GeneratePrivate returns a new RSA key of the given size in bits (Salt's option keysize, 2048 by
// default). It refuses less than 2048 bits.
func GeneratePrivate(bits int) (*rsa.PrivateKey, error) {
	if bits < 2048 || bits > maxPrivateBits {
		return nil, fmt.Errorf("crypt: refusing to make an RSA key of %d bits, want 2048 to %d", bits, maxPrivateBits)
	}
	k, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		return nil, fmt.Errorf("crypt: making an RSA key: %w", err)
	}
	return k, nil
}

// LoadPrivate reads the private key in a file; see ParsePrivate. Its errors name the file.
func LoadPrivate(path, passphrase string) (*rsa.PrivateKey, error) {
	text, _, err := durable.ReadFile(path, maxPrivatePEM, durable.Follow)
	if err != nil {
		return nil, fmt.Errorf("read private key: %w", err)
	}
	k, err := ParsePrivate(text, passphrase)
	if err != nil {
		return nil, fmt.Errorf("read private key %s: %w", path, err)
	}
	return k, nil
}

// ParsePrivate parses an RSA private key in PEM: PKCS#1 ("RSA PRIVATE KEY", which Salt writes),
// PKCS#1 with OpenSSL's PEM encryption (which Salt writes with key_pass), PKCS#8, or encrypted
// PKCS#8 (which Salt writes with key_pass in FIPS mode). An empty passphrase means none. If the key
// is not encrypted, the passphrase is ignored. If the passphrase is wrong or missing, ParsePrivate
// returns ErrPassphrase; any other error wraps ErrPrivateKey.
func ParsePrivate(text []byte, passphrase string) (*rsa.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%w: no PEM block found", ErrPrivateKey)
	}

	der, err := decryptBlock(block, passphrase)
	if err != nil {
		return nil, err
	}

	k, err := parsePrivateDER(block.Type, der)
	if err != nil {
		return nil, err
	}

	if bits := k.N.BitLen(); bits < minPrivateBits || bits > maxPrivateBits {
		return nil, fmt.Errorf("%w: %d bits", ErrPrivateKey, bits)
	}

	if err := k.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPrivateKey, err)
	}

	return k, nil
}

func decryptBlock(block *pem.Block, passphrase string) ([]byte, error) {
	switch {
	case block.Type == "ENCRYPTED PRIVATE KEY":
		if passphrase == "" {
			return nil, ErrPassphrase
		}
		return decryptPKCS8(block.Bytes, []byte(passphrase))
	//lint:ignore SA1019 this is the form that Salt writes with key_pass
	case x509.IsEncryptedPEMBlock(block):
		if passphrase == "" {
			return nil, ErrPassphrase
		}

		//lint:ignore SA1019 as above; the file is ours, nobody can use it as an oracle
		der, err := x509.DecryptPEMBlock(block, []byte(passphrase))
		if errors.Is(err, x509.IncorrectPasswordError) {
			return nil, ErrPassphrase
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrPrivateKey, err)
		}

		// This form has no checksum: with one wrong passphrase in 256, the decryption seems to
		// succeed.
		if len(der) == 0 || der[0] != 0x30 {
			return nil, ErrPassphrase
		}

		return der, nil
	}

	return block.Bytes, nil
}

func parsePrivateDER(typ string, der []byte) (*rsa.PrivateKey, error) {
	switch typ {
	case "RSA PRIVATE KEY":
		k, err := x509.ParsePKCS1PrivateKey(der)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrPrivateKey, err)
		}
		return k, nil
	case "PRIVATE KEY", "ENCRYPTED PRIVATE KEY":
		parsed, err := x509.ParsePKCS8PrivateKey(der)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrPrivateKey, err)
		}

		k, ok := parsed.(*rsa.PrivateKey)
		if !ok {
			return nil, fmt.Errorf("%w: %T instead of an RSA key", ErrPrivateKey, parsed)
		}

		return k, nil
	}

	return nil, fmt.Errorf("%w: PEM block of type %.40q", ErrPrivateKey, typ)
}

// PrivatePEM returns the PKCS#1 PEM of a private key, the form that Salt's own tools read. With a
// passphrase it uses OpenSSL's PEM encryption with AES-256.
func PrivatePEM(k *rsa.PrivateKey, passphrase string) ([]byte, error) {
	der := x509.MarshalPKCS1PrivateKey(k)
	if passphrase == "" {
		return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: der}), nil
	}
	//lint:ignore SA1019 the form that Salt reads
	block, err := x509.EncryptPEMBlock(rand.Reader, "RSA PRIVATE KEY", der, []byte(passphrase), x509.PEMCipherAES256)
	if err != nil {
		return nil, fmt.Errorf("crypt: encrypting a private key: %w", err)
	}
	return pem.EncodeToMemory(block), nil
}

// SavePrivate writes a private key with mode 0400, durably and atomically: a reader sees the old or
// the new file.
func SavePrivate(path string, k *rsa.PrivateKey, passphrase string) error {
	text, err := PrivatePEM(k, passphrase)
	if err != nil {
		return err
	}
	if err := durable.Replace(path, text, 0o400); err != nil {
		return fmt.Errorf("save private key: %w", err)
	}
	return nil
}

// SavePublic writes a public key with mode 0644, durably and atomically.
func SavePublic(path string, pub *rsa.PublicKey) error {
	text, err := PublicPEM(pub)
	if err != nil {
		return err
	}
	if err := durable.Replace(path, []byte(text+"\n"), 0o644); err != nil {
		return fmt.Errorf("save public key: %w", err)
	}
	return nil
}
