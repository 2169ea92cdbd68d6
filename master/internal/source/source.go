// Package source lets a program such as salt-api tell the master for which client's address it sends
// a command. The master records that address, and locks it out after failed log-ins. It trusts the
// address if there is a proof, made with the key of the user whom the master runs as.
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

// Field is the field of an unencrypted command that holds the address and its proof.
const Field = "saltern_source"

const maxField = 256 // bytes

// Fields that the master adds to an answer whose error is in Salt's words, because Salt has the same
// words for several errors.
const (
	// BusyField: the master did not refuse; the caller may try again.
	BusyField = "saltern_busy"
	// ProvenField: the caller has proven who he is, but may not do that. He did not guess a password.
	ProvenField = "saltern_proven"
)

type fromKey struct{}

// With returns a context with the address for which commands are sent.
func With(ctx context.Context, from netip.Addr) context.Context {
	return context.WithValue(ctx, fromKey{}, from)
}

// Of returns the address that With has put into the context, or an invalid one.
func Of(ctx context.Context) netip.Addr {
	a, _ := ctx.Value(fromKey{}).(netip.Addr)
	return a
}

// Say puts the address into a command, with a proof made with key. If key is empty, it adds nothing.
func Say(load *value.Map, key string, from netip.Addr) {
	load.Delete(Field)
	if key != "" && from.IsValid() {
		load.Set(Field, from.String()+" "+proofOf(key, from))
	}
}

// Take removes the address from a command and returns it. ok is false if no key fits the proof, or
// there is no address.
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
