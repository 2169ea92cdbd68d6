// Package spake2 is SPAKE2 of RFC 9382 in the suite P256-SHA256-HKDF-HMAC: two parties that know
// the same secret prove that to each other. An attacker without the secret, even as one of the
// parties, can test one guess in each exchange. The exchange gives the attacker no data with which
// to test further guesses.
//
// Party A begins. Each party sends its share, and then its confirmation:
//
//	A                            B
//	── share ─────────────────▶
//	◀───────────────── share ──
//	── confirmation ──────────▶  compares
//	compares  ◀─ confirmation ──
//
// The group is filippo.io/nistec: it cannot represent points off the curve, and all of its
// operations with secrets take constant time.
package spake2

import (
	"bytes"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"

	"filippo.io/nistec"
)

// shareLen is the length of a share, an uncompressed point, in bytes.
const shareLen = 65

// Points M and N of RFC 9382 §4, compressed. The negative of a point differs from it only in the
// first byte.
const (
	pointM = "886e2f97ace46e55ba9dd7242579f2993b64e16ef3dcab95afd497333d8fa12f"
	pointN = "d8bbd6c639c62937b04d997f38c3770719c629d7014d49a24b4f98baa1292b49"

	signM, minusM = 2, 3
	signN, minusN = 3, 2
)

// order is the order of P-256 (FIPS 186-4 D.1.2.3).
const order = "ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551"

// Secret is w of RFC 9382 §3.3: a scalar that was derived from a secret.
type Secret [32]byte

// NewSecret reduces the output of a key derivation to a scalar. The output must have at least 48
// bytes, so that all scalars are about equally likely.
func NewSecret(stretched []byte) (w Secret, err error) {
	if len(stretched) < 48 {
		return w, errors.New("spake2: a stretched secret must have 48 bytes")
	}
	n, _ := new(big.Int).SetString(order, 16)
	new(big.Int).Mod(new(big.Int).SetBytes(stretched), n).FillBytes(w[:])
	return w, nil
}

// Names holds everything on which both parties must agree: their identities and the values that
// bind the exchange to its connection.
type Names struct {
	A, B []byte
	// Bound is the additional data of RFC 9382 §3.3. The confirmation keys depend on it.
	Bound []byte
}

// Party is one side of an exchange. It must be used for one exchange, by one goroutine.
type Party struct {
	first bool // whether this is party A
	w     Secret
	x     []byte
	share []byte
}

// New begins an exchange. first is true for party A.
func New(w Secret, first bool) (*Party, error) {
	k, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("spake2: making a random scalar: %w", err)
	}
	return newParty(w, first, k.Bytes())
}

func newParty(w Secret, first bool, x []byte) (*Party, error) {
	blind, err := blinded(pointN, signN, w)
	if first {
		blind, err = blinded(pointM, signM, w)
	}
	if err != nil {
		return nil, err
	}
	p, err := nistec.NewP256Point().ScalarBaseMult(x)
	if err != nil {
		return nil, fmt.Errorf("spake2: making a share: %w", err)
	}
	return &Party{first: first, w: w, x: x, share: p.Add(p, blind).Bytes()}, nil
}

// blinded returns w times one of the two points.
func blinded(point string, sign byte, w Secret) (*nistec.P256Point, error) {
	b, err := hex.DecodeString(point)
	if err != nil {
		return nil, err
	}
	p, err := nistec.NewP256Point().SetBytes(append([]byte{sign}, b...))
	if err != nil {
		return nil, err
	}
	return p.ScalarMult(p, w[:])
}

// Share returns the message for the other party.
func (p *Party) Share() []byte { return p.share }

// errShare means that the message of the other party is not a valid share.
var errShare = errors.New("spake2: bad share")

// Finish returns two confirmations: that of this party (the result own), which the caller sends, and
// the one that the other party must send (the result others). Compare the received confirmation with
// the latter by [Equal].
func (p *Party) Finish(share []byte, n Names) (own, others []byte, err error) {
	if len(share) != shareLen {
		return nil, nil, errShare
	}

	k, err := nistec.NewP256Point().SetBytes(share)
	if err != nil {
		return nil, nil, errShare
	}

	blind, err := blinded(pointM, minusM, p.w)
	a, b := share, p.share
	if p.first {
		blind, err = blinded(pointN, minusN, p.w)
		a, b = p.share, share
	}

	if err == nil {
		k, err = k.ScalarMult(k.Add(k, blind), p.x)
	}

	if err != nil {
		return nil, nil, fmt.Errorf("spake2: %w", err)
	}

	point := k.Bytes()
	if len(point) != shareLen { // the point at infinity
		return nil, nil, errShare
	}

	var t bytes.Buffer // TT of RFC 9382 §3.3
	for _, part := range [][]byte{n.A, n.B, a, b, point, p.w[:]} {
		_ = binary.Write(&t, binary.LittleEndian, uint64(len(part)))
		t.Write(part)
	}

	sum := sha256.Sum256(t.Bytes())
	keys, err := hkdf.Key(sha256.New, sum[16:], nil, "ConfirmationKeys"+string(n.Bound), 32)
	if err != nil {
		return nil, nil, fmt.Errorf("spake2: %w", err)
	}

	own, others = mac(keys[16:], t.Bytes()), mac(keys[:16], t.Bytes())
	if p.first {
		own, others = others, own
	}

	return own, others, nil
}

func mac(key, text []byte) []byte {
	m := hmac.New(sha256.New, key)
	m.Write(text)
	return m.Sum(nil)
}

// Equal reports whether two confirmations are equal, in constant time.
func Equal(a, b []byte) bool { return hmac.Equal(a, b) }
