package crypt

import (
	"bytes"
	"errors"
	"testing"
)

func TestPlain(t *testing.T) {
	k, err := NewKey(nil)
	if err != nil {
		t.Fatal(err)
	}

	for n := range 70 {
		data := bytes.Repeat([]byte{'x'}, n)
		blob := k.SealPlain(data)
		if got, err := k.OpenPlain(blob); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%d bytes: %q, %v", n, got, err)
		}

		for _, i := range []int{0, len(blob) / 2, len(blob) - 1} {
			bad := bytes.Clone(blob)
			bad[i] ^= 1
			if _, err := k.OpenPlain(bad); !errors.Is(err, ErrOpen) {
				t.Fatalf("byte %d changed: %v", i, err)
			}
		}

		if _, err := k.OpenPlain(blob[:len(blob)-1]); !errors.Is(err, ErrOpen) {
			t.Fatal("a short blob opens")
		}
	}

	// Both forms are of one kind.
	if got, err := k.OpenPlain(k.Seal([]byte{0xc0}, "")); err != nil || string(got) != marker+"\xc0" {
		t.Errorf("%q, %v", got, err)
	}
}
