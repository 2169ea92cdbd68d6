package eauth

import (
	"net"
	"net/netip"
	"slices"

	"saltern/master/internal/source"
	"saltern/master/value"
)

// Source returns the address on whose behalf a command was sent. A program that forwards commands
// states that address in the load, with the key of root or of the master's user as the proof; for
// such a command passed is true. Otherwise Source returns peer, the address of the connection.
// Source removes the stated address from load.
func (a *Authenticator) Source(load *value.Map, peer netip.Addr) (addr netip.Addr, passed bool) {
	var keys []string
	for user, key := range a.cfg.UserKeys {
		if user == "root" || user == a.cfg.User || user == a.cfg.Running {
			keys = append(keys, key)
		}
	}
	if said, ok := source.Take(load, keys); ok {
		return said, true
	}
	return peer, false
}

// countsAt returns the address for which a wrong password counts. It returns the invalid address if
// peer belongs to this host, because many users may share that address: the users of a Python
// salt-api, or those of a web server in front of Saltern's salt-api.
func (a *Authenticator) countsAt(peer netip.Addr) netip.Addr {
	if a.cfg.Here(peer) {
		return netip.Addr{}
	}
	return peer
}

// Here reports whether an address belongs to this host.
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
