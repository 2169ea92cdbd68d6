package auth_test

import (
	"net/netip"
	"time"
)

// connected is a number of connected minions, with the one that signs in or without it. No
// address is known.
type connected struct {
	count int
	has   bool
}

func (c connected) CountWith(string) (int, bool) { return c.count, c.has }

func (connected) LastRequest(string) (from netip.Addr, at time.Time, ok bool) { return from, at, false }

// provenAt is a minion that last proved itself at an address.
type provenAt struct {
	addr netip.Addr
	id   string
}

func (provenAt) CountWith(string) (int, bool) { return 0, false }

func (p provenAt) LastRequest(id string) (netip.Addr, time.Time, bool) {
	return p.addr, time.Time{}, id == p.id
}
