package crypt

import (
	"bytes"
	"cmp"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
)

// Errors of Open and OpenReply.
var (
	// ErrOpen reports that a blob was not made with this key: its length is impossible, or its MAC
	// or padding is wrong. Deliberately, the error does not say which.
	ErrOpen = errors.New("crypt: blob does not open with this key")
	// errNotPickle reports that a blob was made with this key, but the content lacks the marker of
	// a Salt payload. Salt treats such a blob as an empty map (crypt.Crypticle.loads).
	errNotPickle = errors.New("crypt: plaintext is not a Salt payload")
	// ErrNonce reports that a reply was made with this key, but contains the nonce of another
	// request.
	ErrNonce = errors.New("crypt: reply carries another nonce")
)

// KeyLen is the length of a key's text form in bytes.
const KeyLen = 76

// NonceLen is the length of a request nonce: 32 hexadecimal digits.
const NonceLen = 32

// Overhead is the greatest number of bytes by which a sealed blob is longer
// than body and nonce together.
const Overhead = ivLen + len(marker) + aes.BlockSize + sha256.Size

const (
	marker    = "pickle::"
	ivLen     = aes.BlockSize
	aesKeyLen = 24
	rawKeyLen = aesKeyLen + sha256.Size
)

// Key is a symmetric key of the protocol: AES-192 for secrecy and HMAC-SHA256 for authenticity. A
// Key never changes. The zero Key can decrypt nothing, and sealing with it panics. Packages fmt and
// slog print a placeholder instead of the key.
type Key struct {
	text  string
	block cipher.Block
	mac   [sha256.Size]byte
}

// NewKey returns a key of 56 bytes read from random. If random is nil, it reads the system's secure
// random source.
func NewKey(random io.Reader) (Key, error) {
	random = cmp.Or(random, rand.Reader)
	var raw [rawKeyLen]byte
	if _, err := io.ReadFull(random, raw[:]); err != nil {
		return Key{}, fmt.Errorf("crypt: reading randomness for a key: %w", err)
	}
	return keyOf(raw[:], base64.StdEncoding.EncodeToString(raw[:]))
}

// ParseKey parses the text form of a key: the standard base64 of 56 bytes. White space around the
// text is ignored.
func ParseKey(s string) (Key, error) {
	t := string(bytes.TrimSpace([]byte(s)))
	if len(t) != KeyLen {
		return Key{}, fmt.Errorf("crypt: key text has %d characters instead of %d", len(t), KeyLen)
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(t)
	if err != nil || len(raw) != rawKeyLen {
		return Key{}, errors.New("crypt: key text is not the base64 of 56 bytes")
	}
	return keyOf(raw, t)
}

func keyOf(raw []byte, text string) (Key, error) {
	block, err := aes.NewCipher(raw[:aesKeyLen])
	if err != nil {
		return Key{}, fmt.Errorf("crypt: setting up AES: %w", err)
	}
	return Key{text: text, block: block, mac: [sha256.Size]byte(raw[aesKeyLen:])}, nil
}

// String returns the secret text of 76 characters. Masters send this text encrypted with RSA and
// store it in files. Package fmt does not call String; see Format.
func (k Key) String() string { return k.text }

// IsZero reports whether k is the zero Key.
func (k Key) IsZero() bool { return k.block == nil }

// Format prints a placeholder for every verb, so that a key in a message or in a struct is not
// revealed.
func (k Key) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "[key]") }

// LogValue returns the placeholder that slog prints.
func (k Key) LogValue() slog.Value { return slog.StringValue("[key]") }

// Seal encrypts a packed body. For a reply to a request, nonce is the request's nonce, of NonceLen
// characters. Seal puts it in front of the body. For all other blobs nonce is "". Seal neither
// changes body nor keeps a reference to it.
func (k Key) Seal(body []byte, nonce string) []byte { return k.AppendSeal(nil, body, nonce) }

// AppendSeal appends the result of Seal to dst; body must not overlap the free capacity of dst. It
// panics when k is the zero Key.
func (k Key) AppendSeal(dst, body []byte, nonce string) []byte {
	start, n := len(dst), Room(nonce)+len(body)
	if need := n + aes.BlockSize + sha256.Size; cap(dst)-start < need {
		dst = append(make([]byte, 0, start+need), dst...)
	}
	dst = dst[:start+n]
	copy(dst[start+Room(nonce):], body)
	return k.SealInPlace(dst, start, nonce)
}

// Room returns the number of bytes that precede the body in a blob with this nonce.
func Room(nonce string) int { return ivLen + len(marker) + len(nonce) }

// sealChunk is how many bytes are encrypted before they are hashed, so that they are still in the
// processor's cache when they are hashed. It is a multiple of the size of a block.
const sealChunk = 32 << 10

// SealInPlace encrypts the end of b in place, without copying the body: b[start:] must be
// Room(nonce) bytes of any content, followed by the body. It returns b with the blob at start; the
// blob is up to Overhead bytes longer than body and nonce together. SealInPlace panics when k is
// the zero Key.
func (k Key) SealInPlace(b []byte, start int, nonce string) []byte {
	n := copy(b[start+ivLen:], marker)
	copy(b[start+ivLen+n:], nonce)
	return k.sealFrom(b, start)
}

// sealFrom puts an IV into the first ivLen bytes of b[start:], encrypts the bytes after the IV, and
// appends padding and MAC.
func (k Key) sealFrom(b []byte, start int) []byte {
	if k.IsZero() {
		panic("crypt: sealing with the zero key")
	}

	_, _ = rand.Read(b[start : start+ivLen]) // never fails
	pad := aes.BlockSize - (len(b)-start-ivLen)%aes.BlockSize
	for range pad {
		b = append(b, byte(pad))
	}

	h := hmac.New(sha256.New, k.mac[:])
	h.Write(b[start : start+ivLen])
	cbc := cipher.NewCBCEncrypter(k.block, b[start:start+ivLen])
	for text := b[start+ivLen:]; len(text) > 0; {
		chunk := text[:min(len(text), sealChunk)]
		cbc.CryptBlocks(chunk, chunk)
		h.Write(chunk)
		text = text[len(chunk):]
	}

	return h.Sum(b)
}

// Open verifies and decrypts a blob and returns the packed body without the marker. The result does
// not share memory with blob. Open fails with ErrOpen or errNotPickle.
func (k Key) Open(blob []byte) ([]byte, error) { return cutMarker(k.open(blob, false)) }

// OpenInPlace works like Open, but without an allocation: the result is a part of blob. If blob was
// made with this key, OpenInPlace overwrites it; otherwise it does not change blob.
func (k Key) OpenInPlace(blob []byte) ([]byte, error) { return cutMarker(k.open(blob, true)) }

// cutMarker returns a decrypted text without the marker of a Salt payload. If err is not nil, it
// returns err.
func cutMarker(plain []byte, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	body, ok := bytes.CutPrefix(plain, []byte(marker))
	if !ok {
		return nil, errNotPickle
	}
	return body, nil
}

// OpenReply works like Open, for a reply. The nonce of the request must precede the body, otherwise
// OpenReply returns ErrNonce. Minions check replies in this way.
func (k Key) OpenReply(blob []byte, nonce string) ([]byte, error) {
	body, err := k.Open(blob)
	if err != nil {
		return nil, err
	}
	if len(body) < len(nonce) || !hmac.Equal(body[:len(nonce)], []byte(nonce)) {
		return nil, ErrNonce
	}
	return body[len(nonce):], nil
}
