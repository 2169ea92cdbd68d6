package crypt

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"fmt"
	"math/big"
)

// ErrX931 reports that a block was not made by X931Sign with the private key that belongs to this
// public key. It does not say why.
var ErrX931 = errors.New("crypt: not an X9.31 block of this key")

// X931Sign performs the ANSI X9.31 private operation on data (OpenSSL's RSA_private_encrypt with
// padding 5, salt/utils/rsax931.py). Minions send the result for the text "salt" as their token;
// the master sends the result for the hexadecimal SHA-256 of the publish key. The block contains
// neither a hash nor randomness, so the same data always gives the same result, which callers may
// store.
//
// Since math/big does not work in constant time, X931Sign blinds the operation. It verifies the
// result before it returns it, so that a computing fault cannot reveal the factors. A call costs a
// few milliseconds.
func X931Sign(priv *rsa.PrivateKey, data []byte) ([]byte, error) {
	k := priv.Size()
	block, err := x931Pad(k, data)
	if err != nil {
		return nil, err
	}

	n, e := priv.N, big.NewInt(int64(priv.E))
	m := new(big.Int).SetBytes(block)

	r, rInv, err := blindingPair(n)
	if err != nil {
		return nil, err
	}

	c := new(big.Int).Exp(r, e, n)
	c.Mul(c, m).Mod(c, n)
	s := privateExp(priv, c)
	s.Mul(s, rInv).Mod(s, n)

	if new(big.Int).Exp(s, e, n).Cmp(m) != 0 {
		return nil, errors.New("crypt: X9.31 operation failed its own check")
	}

	if other := new(big.Int).Sub(n, s); other.Cmp(s) < 0 {
		s = other
	}

	return s.FillBytes(make([]byte, k)), nil
}

// blindingPair returns a random number that has an inverse modulo n, and that inverse.
func blindingPair(n *big.Int) (r, inv *big.Int, err error) {
	for range 16 {
		if r, err = rand.Int(rand.Reader, n); err != nil {
			return nil, nil, fmt.Errorf("crypt: reading randomness for blinding: %w", err)
		}
		if inv = new(big.Int).ModInverse(r, n); inv != nil {
			return r, inv, nil
		}
	}
	return nil, nil, errors.New("crypt: no blinding factor found")
}

// privateExp returns c^d mod n. It uses the Chinese remainder theorem if the key has two primes
// with precomputed values.
func privateExp(priv *rsa.PrivateKey, c *big.Int) *big.Int {
	pre := &priv.Precomputed
	if len(priv.Primes) != 2 || pre.Dp == nil || pre.Dq == nil || pre.Qinv == nil {
		return new(big.Int).Exp(c, priv.D, priv.N)
	}
	p, q := priv.Primes[0], priv.Primes[1]
	mp := new(big.Int).Exp(new(big.Int).Mod(c, p), pre.Dp, p)
	mq := new(big.Int).Exp(new(big.Int).Mod(c, q), pre.Dq, q)
	h := new(big.Int).Sub(mp, mq)
	h.Mul(h, pre.Qinv).Mod(h, p)
	return h.Mul(h, q).Add(h, mq)
}

func x931Pad(k int, data []byte) ([]byte, error) {
	fill := k - len(data) - 2
	if fill < 0 {
		return nil, fmt.Errorf("crypt: %d bytes do not fit an X9.31 block of %d", len(data), k)
	}

	b := make([]byte, 0, k)
	if fill == 0 {
		b = append(b, 0x6a)
	} else {
		b = append(b, 0x6b)
		for range fill - 1 {
			b = append(b, 0xbb)
		}
		b = append(b, 0xba)
	}

	return append(append(b, data...), 0xcc), nil
}

// X931Recover returns the data of a block that X931Sign has made with the private key to pub. For
// any other input it returns ErrX931.
func X931Recover(pub *rsa.PublicKey, sig []byte) ([]byte, error) {
	k := pub.Size()
	s := new(big.Int).SetBytes(sig)
	if len(sig) != k || s.Cmp(pub.N) >= 0 {
		return nil, ErrX931
	}

	m := s.Exp(s, big.NewInt(int64(pub.E)), pub.N)
	if m.Bit(3) != 1 || m.Bit(2) != 1 || m.Bit(1) != 0 || m.Bit(0) != 0 {
		m.Sub(pub.N, m) // the sender sends the smaller of s and n-s
	}

	b := m.FillBytes(make([]byte, k))
	if b[k-1] != 0xcc {
		return nil, ErrX931
	}

	b = b[:k-1]
	switch b[0] {
	case 0x6a:
		return b[1:], nil
	case 0x6b:
		i := bytes.IndexByte(b, 0xba)
		if i < 1 {
			return nil, ErrX931
		}

		for _, c := range b[1:i] {
			if c != 0xbb {
				return nil, ErrX931
			}
		}

		return b[i+1:], nil
	}

	return nil, ErrX931
}
