package eauth

import (
	"net"
	"net/netip"
	"slices"

	"saltern/master/internal/source"
	"saltern/master/value"
)

// Source is the address for which a command is given: the one that a program with the
// key of root or the master's user names, which passed it on, else that of the connection.
// What the command says of it is removed.
func (a *Authenticator) Source(load *value.Map, from netip.Addr) (addr netip.Addr, passed bool) {
	var keys []string
	for user, key := range a.cfg.UserKeys {
		if user == "root" || user == a.cfg.User || user == a.cfg.Running {
			keys = append(keys, key)
		}
	}
	if said, ok := source.Take(load, keys); ok {
		return said, true
	}
	return from, false
}

// countsAt is the address at which a wrong password counts. This host itself is none:
// many may be behind it, by a salt-api in Python or a web server in front of ours.
func (a *Authenticator) countsAt(from netip.Addr) netip.Addr {
	if a.cfg.Here(from) {
		return netip.Addr{}
	}
	return from
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
