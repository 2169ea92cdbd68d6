// Package source says for which address a program asks that passes on what others ask
// of it, as salt-api does. The master writes that address down, and locks out by it. It
// is believed with a proof by the key of the master's account.
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

// Field is where a clear command to the master has the address and its proof.
const Field = "saltern_source"

const maxField = 256 // bytes

// What an answer of the master says beside the error in Salt's words, which are the same
// for several things.
const (
	// BusyField: it is no refusal, who asks may try again.
	BusyField = "saltern_busy"
	// ProvenField: who asks is who he says, and may not do that. It was no guess.
	ProvenField = "saltern_proven"
)

type fromKey struct{}

// With says for which address a command is given.
func With(ctx context.Context, from netip.Addr) context.Context {
	return context.WithValue(ctx, fromKey{}, from)
}

// Of is the address of [With]; not valid without.
func Of(ctx context.Context) netip.Addr {
	a, _ := ctx.Value(fromKey{}).(netip.Addr)
	return a
}

// Say puts the address into a command. key is that of the master's account; without it
// nothing is said.
func Say(load *value.Map, key string, from netip.Addr) {
	load.Delete(Field)
	if key != "" && from.IsValid() {
		load.Set(Field, from.String()+" "+proofOf(key, from))
	}
}

// Take removes what a command says from it, and gives the address when one of the keys
// proves it.
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
