// Package source adds the address of a client to a command. With this address a program such as
// salt-api tells the master on behalf of which client it sends the command. The master records the
// address, and locks the address out after failed log-ins. It trusts the address only if the
// command contains a proof made with the key of the user as whom the master runs.
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

// Field is the field of an unencrypted command that contains the address and the proof.
const Field = "saltern_source"

const maxField = 256 // length of the field, in bytes

// Fields that the master adds to an answer that contains one of Salt's errors. The fields
// distinguish causes for which Salt uses the same text.
const (
	// BusyField means that the master was too busy. The caller is not refused, and may try again.
	BusyField = "saltern_busy"
	// ProvenField means that the caller is authenticated but lacks the permission. So this was no
	// attempt to guess a password.
	ProvenField = "saltern_proven"
)

type fromKey struct{}

// With returns a context that contains the address of the client on whose behalf commands are sent.
func With(ctx context.Context, from netip.Addr) context.Context {
	return context.WithValue(ctx, fromKey{}, from)
}

// Of returns the address that With has added to the context, or the invalid address.
func Of(ctx context.Context) netip.Addr {
	a, _ := ctx.Value(fromKey{}).(netip.Addr)
	return a
}

// Say adds the address to a command, with a proof made with key. If key is empty, it adds nothing.
func Say(load *value.Map, key string, from netip.Addr) {
	load.Delete(Field)
	if key != "" && from.IsValid() {
		load.Set(Field, from.String()+" "+proofOf(key, from))
	}
}

// Take removes the client's address from a command and returns it. ok is false if there is no
// address, or if its proof was made with none of keys.
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
