// Package source tells the master on whose behalf a program such as salt-api sends a command: the
// address of its client. The master records that address, and locks out by it. A proof by the key
// of the master's account makes it trusted.
package source

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"strings"

	"saltern/master/value"
)

// Field is the field of a clear command to the master with the address and its proof.
const Field = "saltern_source"

const maxField = 256 // bytes

// Fields of an answer of the master beside the error in Salt's words, which are the same for
// several errors.
const (
	// BusyField: it is no refusal, the caller may try again.
	BusyField = "saltern_busy"
	// ProvenField: the caller has proven who he is, but may not do that. It was no guess.
	ProvenField = "saltern_proven"
)

type fromKey struct{}

// With returns a context with the address on whose behalf a command is sent.
func With(ctx context.Context, from netip.Addr) context.Context {
	return context.WithValue(ctx, fromKey{}, from)
}

// Of returns the address of [With]. Without one it is not valid.
func Of(ctx context.Context) netip.Addr {
	a, _ := ctx.Value(fromKey{}).(netip.Addr)
	return a
}

// Say puts the address into a command. key is the key of the master's account; without it nothing
// is added.
func Say(load *value.Map, key string, from netip.Addr) {
	load.Delete(Field)
	if key != "" && from.IsValid() {
		load.Set(Field, from.String()+" "+proofOf(key, from))
	}
}

// Take removes the address from a command, and returns it when one of the keys proves it.
func Take(load *value.Map, keys []string) (from netip.Addr, ok bool) {
	said := load.Str(Field)
	load.Delete(Field)
	text, mac, _ := strings.Cut(said, " ")
	from, err := netip.ParseAddr(text)
	if err != nil || len(said) > maxField {
		return netip.Addr{}, false
	}
	for _, key := range keys {
		if key != "" && hmac.Equal([]byte(mac), []byte(proofOf(key, from))) {
			ok = true
		}
	}
	return from, ok
}

func proofOf(key string, from netip.Addr) string {
	m := hmac.New(sha256.New, []byte(key))
	m.Write([]byte("saltern source " + from.String()))
	return hex.EncodeToString(m.Sum(nil))
}
