package crypt

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
)

// SealPlain encrypts bytes that are not a Salt payload, without the marker (crypt.py
// Crypticle.encrypt). Masters of a cluster send the PEM of a key in this form. It panics when k is
// the zero Key.
func (k Key) SealPlain(data []byte) []byte {
	b := make([]byte, ivLen, ivLen+len(data)+aes.BlockSize+sha256.Size)
	return k.sealFrom(append(b, data...), 0)
}

// OpenPlain verifies and decrypts the result of SealPlain. The result does not share memory with
// blob. OpenPlain fails with ErrOpen.
func (k Key) OpenPlain(blob []byte) ([]byte, error) { return k.open(blob, false) }

// open verifies and decrypts a blob, into new memory or in place. It changes no byte before it has
// verified the MAC.
func (k Key) open(blob []byte, inPlace bool) ([]byte, error) {
	n := len(blob) - sha256.Size
	if k.IsZero() || n < ivLen+aes.BlockSize || n%aes.BlockSize != 0 {
		return nil, ErrOpen
	}

	var sum [sha256.Size]byte
	h := hmac.New(sha256.New, k.mac[:])
	h.Write(blob[:n])
	if !hmac.Equal(h.Sum(sum[:0]), blob[n:]) {
		return nil, ErrOpen
	}

	plain := blob[ivLen:n]
	if !inPlace {
		plain = make([]byte, n-ivLen)
	}

	cipher.NewCBCDecrypter(k.block, blob[:ivLen]).CryptBlocks(plain, blob[ivLen:n])
	pad := int(plain[len(plain)-1])
	if pad < 1 || pad > aes.BlockSize {
		return nil, ErrOpen
	}

	for _, c := range plain[len(plain)-pad:] {
		if int(c) != pad {
			return nil, ErrOpen
		}
	}

	return plain[:len(plain)-pad], nil
}
