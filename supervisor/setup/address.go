package setup

import (
	"net/netip"
	"slices"
	"strings"

	"saltern/supervisor/internal/vip"
)

// ValidateHere works like [Validate] for answers that a person gives at the machine itself: it
// refuses an address that the machine does not have. Validate accepts such an address, because a
// DHCP server may be late.
func ValidateHere(a Answers, f Facts, base Base) Validation {
	v := Validate(a, f, base)
	if slices.ContainsFunc(v.Faults, func(x Fault) bool { return x.Field == "address" }) ||
		v.Answers.Network.Method == "dhcp" {
		return v
	}

	want, _ := netip.ParseAddr(v.Answers.Address)
	has := networks(f, v.Answers.Network)
	if want.IsLoopback() || slices.ContainsFunc(has, func(i vip.Interface) bool {
		return slices.ContainsFunc(i.Addresses, func(p netip.Prefix) bool { return p.Addr() == want })
	}) {
		return v
	}

	var all []string
	for _, i := range has {
		for _, p := range i.Addresses {
			if text := p.Addr().String(); !p.Addr().IsLinkLocalUnicast() && !slices.Contains(all, text) {
				all = append(all, text)
			}
		}
	}

	c := &checker{faults: v.Faults}
	if len(all) == 0 {
		c.addFault("address", "this machine does not have %s, nor any other address: check the network", want)
	} else {
		c.addFault("address", "this machine does not have %s; it has %s", want, strings.Join(all, ", "))
	}

	v.Faults = c.faults
	return v
}

// DefaultAddress returns the address by which the other nodes reach this one if the answers name
// none. It is the address of the network that the answers configure, else that of the interface
// with the default route, else the machine's only address, else "".
func DefaultAddress(n Network, f Facts) string {
	if n.Method == "static" {
		if p, err := netip.ParsePrefix(n.Address); err == nil {
			return p.Addr().String()
		}
	}

	var all []string
	for _, i := range f.Interfaces {
		for _, s := range i.Addresses {
			p, err := netip.ParsePrefix(s)
			if err != nil || p.Addr().IsLinkLocalUnicast() {
				continue
			}
			if i.Default {
				return p.Addr().String()
			}

			all = append(all, p.Addr().String())
		}
	}

	if len(all) == 1 {
		return all[0]
	}

	return ""
}
