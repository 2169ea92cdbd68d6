package eauth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/netip"
	"slices"
	"strings"

	"saltern/master/value"
)

// SourceField is the field of a log-in that says for which address salt-api asks.
const SourceField = "saltern_source"

// SetSource says in a load with a name and a password for which address a program of
// the master's account asks. key is that account's.
func SetSource(load *value.Map, key string, from netip.Addr) {
	load.Delete(SourceField)
	if key != "" && from.IsValid() {
		load.Set(SourceField, from.String()+" "+vouch(key, from))
	}
}

func vouch(key string, from netip.Addr) string {
	m := hmac.New(sha256.New, []byte(key))
	m.Write([]byte("saltern source " + from.String()))
	return hex.EncodeToString(m.Sum(nil))
}

// source is the address for which a log-in is asked: the one that a program with the
// key of root or the master's user names, else that of the connection. That of this
// host itself is none: many may be behind it, by a salt-api in Python or a web server in
// front of ours. The field is removed from creds.
func (a *Authenticator) source(creds *value.Map, from netip.Addr) netip.Addr {
	said := creds.Str(SourceField)
	creds.Delete(SourceField)
	if text, proof, ok := strings.Cut(said, " "); ok && len(said) < 256 {
		addr, err := netip.ParseAddr(text)
		if err == nil && a.vouched(addr, proof) {
			from = addr
		}
	}
	if a.cfg.Here(from) {
		return netip.Addr{}
	}
	return from
}

func (a *Authenticator) vouched(addr netip.Addr, proof string) bool {
	ok := false
	for user, key := range a.cfg.UserKeys {
		if key != "" && (user == "root" || user == a.cfg.User || user == a.cfg.Running) && hmac.Equal([]byte(proof), []byte(vouch(key, addr))) {
			ok = true
		}
	}
	return ok
}

// Here reports whether an address is one of this host.
func Here(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if !a.IsValid() || a.IsLoopback() {
		return true
	}
	addrs, err := net.InterfaceAddrs()
	return err == nil && slices.ContainsFunc(addrs, func(n net.Addr) bool {
		p, err := netip.ParsePrefix(n.String())
		return err == nil && p.Addr().Unmap().WithZone("") == a
	})
}
