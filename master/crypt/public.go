package crypt

import (
	"bytes"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

// ErrPublicKey means that a text is not an RSA public key of an acceptable form and size.
var ErrPublicKey = errors.New("crypt: unacceptable public key")

// maxPublicPEM bounds the text in bytes before it is parsed. The text of a key of 4096 bits has
// about 800 bytes.
const maxPublicPEM = 4096

// maxExponent is the largest public exponent that crypto/rsa accepts. A large exponent makes every
// operation with the key slow.
const maxExponent = 1<<31 - 1

// Bounds holds the smallest and the largest accepted size of the modulus in bits.
type Bounds struct{ Min, Max int }

// DefaultBounds are sizes that Salt minions use and that cost little. The cost grows with the cube
// of the size: an operation with a public key of 16384 bits takes over 20 ms, an operation with a
// key of 4096 bits 0.4 ms.
var DefaultBounds = Bounds{Min: 2048, Max: 4096}

// ParsePublic reads an RSA public key in PEM ("PUBLIC KEY" or "RSA PUBLIC
// KEY") within DefaultBounds.
func ParsePublic(text []byte) (*rsa.PublicKey, error) { return DefaultBounds.ParsePublic(text) }

// ParsePublic parses an RSA public key in PEM. Before it does any arithmetic with the key, it
// refuses everything but exactly one PEM block of an RSA key with an odd modulus within the bounds
// and an odd exponent of 3 to 2^31-1. It fails with ErrPublicKey and the reason.
func (b Bounds) ParsePublic(text []byte) (*rsa.PublicKey, error) {
	if len(text) > maxPublicPEM {
		return nil, fmt.Errorf("%w: %d bytes of text", ErrPublicKey, len(text))
	}

	text = bytes.TrimSpace(text)
	if !bytes.HasPrefix(text, []byte("-----BEGIN ")) {
		return nil, fmt.Errorf("%w: not PEM", ErrPublicKey)
	}

	block, rest := pem.Decode(text)
	if block == nil || len(block.Headers) > 0 || len(bytes.TrimSpace(rest)) > 0 {
		return nil, fmt.Errorf("%w: not a single PEM block", ErrPublicKey)
	}

	pub, err := parsePublicDER(block)
	if err != nil {
		return nil, err
	}

	switch bits := pub.N.BitLen(); {
	case bits < b.Min || bits > b.Max:
		return nil, fmt.Errorf("%w: %d bits, want %d to %d", ErrPublicKey, bits, b.Min, b.Max)
	case pub.N.Sign() <= 0 || pub.N.Bit(0) == 0:
		return nil, fmt.Errorf("%w: even modulus", ErrPublicKey)
	case pub.E < 3 || pub.E > maxExponent || pub.E&1 == 0:
		return nil, fmt.Errorf("%w: exponent %d", ErrPublicKey, pub.E)
	}

	return pub, nil
}

func parsePublicDER(block *pem.Block) (*rsa.PublicKey, error) {
	switch block.Type {
	case "PUBLIC KEY":
		k, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrPublicKey, err)
		}

		pub, ok := k.(*rsa.PublicKey)
		if !ok {
			return nil, fmt.Errorf("%w: %T", ErrPublicKey, k)
		}

		return pub, nil
	case "RSA PUBLIC KEY":
		pub, err := x509.ParsePKCS1PublicKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrPublicKey, err)
		}
		return pub, nil
	}

	return nil, fmt.Errorf("%w: PEM block of type %.40q", ErrPublicKey, block.Type)
}

// NormalizePEM converts a PEM text to the form in which masters compare and send keys: with single
// newlines as line ends and no white space around the text (crypt.clean_key). It does not check the
// content of the lines.
func NormalizePEM(s string) string {
	s = strings.TrimSpace(s)
	if strings.IndexByte(s, '\r') < 0 {
		return s
	}
	s = strings.ReplaceAll(s, "\r\n", "\n")
	return strings.ReplaceAll(s, "\r", "\n")
}

// PublicPEM returns the PEM of a public key ("PUBLIC KEY") in the form that replies carry, without
// a newline at the end.
func PublicPEM(pub *rsa.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(pub)
	if err != nil {
		return "", fmt.Errorf("crypt: packing a public key: %w", err)
	}
	return NormalizePEM(string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))), nil
}
