package spake2

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
)

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The first vector of RFC 9382 appendix B: shares and both confirmations, and
// with them the transcript, the keys and the shared point.
func TestVector(t *testing.T) {
	var w Secret
	copy(w[:], unhex(t, "2ee57912099d31560b3a44b1184b9b4866e904c49d12ac5042c97dca461b1a5f"))
	a, err := newParty(w, true, unhex(t, "43dd0fd7215bdcb482879fca3220c6a968e66d70b1356cac18bb26c84a78d729"))
	if err != nil {
		t.Fatal(err)
	}

	b, err := newParty(w, false, unhex(t, "dcb60106f276b02606d8ef0a328c02e4b629f84f89786af5befb0bc75b6e66be"))
	if err != nil {
		t.Fatal(err)
	}

	n := Names{A: []byte("server"), B: []byte("client")}
	ownA, wantB, err := a.Finish(b.Share(), n)
	if err != nil {
		t.Fatal(err)
	}

	ownB, wantA, err := b.Finish(a.Share(), n)
	if err != nil {
		t.Fatal(err)
	}

	for what, v := range map[string]struct {
		got  []byte
		want string
	}{
		"pA": {a.Share(),
			"04a56fa807caaa53a4d28dbb9853b9815c61a411118a6fe516a8798434751470f9010153ac33d0d5f2047ffdb1a3e42c9b4e6be662766e1eeb4116988ede5f912c"},
		"pB": {b.Share(),
			"0406557e482bd03097ad0cbaa5df82115460d951e3451962f1eaf4367a420676d09857ccbc522686c83d1852abfa8ed6e4a1155cf8f1543ceca528afb591a1e0b7"},
		"confirmation A":  {ownA, "58ad4aa88e0b60d5061eb6b5dd93e80d9c4f00d127c65b3b35b1b5281fee38f0"},
		"confirmation B":  {ownB, "d3e2e547f1ae04f2dbdbf0fc4b79f8ecff2dff314b5d32fe9fcef2fb26dc459b"},
		"A as B wants it": {wantA, "58ad4aa88e0b60d5061eb6b5dd93e80d9c4f00d127c65b3b35b1b5281fee38f0"},
		"B as A wants it": {wantB, "d3e2e547f1ae04f2dbdbf0fc4b79f8ecff2dff314b5d32fe9fcef2fb26dc459b"},
	} {
		if !bytes.Equal(v.got, unhex(t, v.want)) {
			t.Errorf("%s: %x", what, v.got)
		}
	}
}

func secret(t *testing.T, s string) Secret {
	t.Helper()
	w, err := NewSecret([]byte(strings.Repeat(s, 48))[:48])
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// Another secret, name or bound value on one side, and neither confirmation
// fits. Every exchange is another one.
func TestDifferences(t *testing.T) {
	same := Names{[]byte("a"), []byte("b"), []byte("connection")}
	for what, v := range map[string]struct {
		w    Secret
		n    Names
		good bool
	}{
		"the same":       {secret(t, "x"), same, true},
		"another secret": {secret(t, "y"), same, false},
		"another name":   {secret(t, "x"), Names{[]byte("c"), same.B, same.Bound}, false},
		"another line":   {secret(t, "x"), Names{same.A, same.B, []byte("other")}, false},
		"moved bytes":    {secret(t, "x"), Names{[]byte("ab"), nil, same.Bound}, false},
	} {
		a, err := New(secret(t, "x"), true)
		if err != nil {
			t.Fatal(err)
		}

		b, err := New(v.w, false)
		if err != nil {
			t.Fatal(err)
		}

		ownA, wantB, err := a.Finish(b.Share(), same)
		if err != nil {
			t.Fatal(err)
		}

		ownB, wantA, err := b.Finish(a.Share(), v.n)
		if err != nil {
			t.Fatal(err)
		}

		if Equal(ownA, wantA) != v.good || Equal(ownB, wantB) != v.good {
			t.Errorf("%s: %v %v", what, Equal(ownA, wantA), Equal(ownB, wantB))
		}

		if Equal(ownA, ownB) {
			t.Errorf("%s: a confirmation can be sent back", what)
		}
	}
}

func TestBadShares(t *testing.T) {
	p, err := New(secret(t, "x"), true)
	if err != nil {
		t.Fatal(err)
	}

	off := append([]byte(nil), p.Share()...)
	off[64] ^= 1
	compressed := append([]byte{2}, p.Share()[1:33]...)

	// w times N: the shared point would be infinity.
	blind, err := blinded(pointN, signN, p.w)
	if err != nil {
		t.Fatal(err)
	}

	for what, share := range map[string][]byte{
		"none":           nil,
		"infinity":       {0},
		"zeros":          make([]byte, shareLen),
		"off the curve":  off,
		"compressed":     compressed,
		"no random part": blind.Bytes(),
	} {
		if _, _, err := p.Finish(share, Names{}); !errors.Is(err, errShare) {
			t.Errorf("%s: %v", what, err)
		}
	}

	if _, err := NewSecret(make([]byte, 32)); err == nil {
		t.Error("a secret with a bias was taken")
	}
}
