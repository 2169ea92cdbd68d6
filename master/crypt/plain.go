package crypt

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
)

// SealPlain encrypts bytes that are no Salt payload, without the marker in
// front (crypt.py Crypticle.encrypt). Masters of a cluster send each other a
// PEM text so. It panics when k is the zero Key.
func (k Key) SealPlain(data []byte) []byte {
	if k.IsZero() {
		panic("crypt: sealing with the zero key")
	}
	pad := aes.BlockSize - len(data)%aes.BlockSize
	b := make([]byte, ivLen, ivLen+len(data)+pad+sha256.Size)
	_, _ = rand.Read(b) // never fails
	b = append(b, data...)
	for range pad {
		b = append(b, byte(pad))
	}
	cipher.NewCBCEncrypter(k.block, b[:ivLen]).CryptBlocks(b[ivLen:], b[ivLen:])
	h := hmac.New(sha256.New, k.mac[:])
	h.Write(b)
	return h.Sum(b)
}

// OpenPlain checks and decrypts what SealPlain made. The error is ErrOpen.
func (k Key) OpenPlain(blob []byte) ([]byte, error) {
	n := len(blob) - sha256.Size
	if k.IsZero() || n < ivLen+aes.BlockSize || n%aes.BlockSize != 0 {
		return nil, ErrOpen
	}
	h := hmac.New(sha256.New, k.mac[:])
	h.Write(blob[:n])
	if !hmac.Equal(h.Sum(nil), blob[n:]) {
		return nil, ErrOpen
	}
	plain := make([]byte, n-ivLen)
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
