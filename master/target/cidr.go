package target

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"saltern/master/value"
)

// cidr is an ipcidr target: an address or a network. It matches a minion if an address in the
// minion's grain ipv4 or ipv6 equals that address or belongs to that network.
type cidr struct {
	prefix netip.Prefix
	grain  string
	data   func(id string) (*value.Map, bool)
}

func newCIDR(s string, data func(string) (*value.Map, bool)) (node, error) {
	p, err := parseNetwork(s)
	if err != nil {
		return nil, err
	}
	grain := "ipv6"
	if p.Addr().Is4() {
		grain = "ipv4"
	}
	return cidr{p, grain, data}, nil
}

// parseNetwork parses an address or network by the rules of Python's ip_address and strict
// ip_network.
func parseNetwork(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil {
		return netip.PrefixFrom(a.WithZone(""), a.BitLen()), nil
	}

	bad := fmt.Errorf("%w: %s is neither an address nor a network", errInvalid, quoteShort(s))
	host, mask, ok := strings.Cut(s, "/")
	a, err := netip.ParseAddr(host)
	if !ok || err != nil || a.Zone() != "" {
		return netip.Prefix{}, bad
	}

	bits, err := strconv.ParseUint(mask, 10, 8)
	if err != nil || strings.HasPrefix(mask, "+") {
		n, ok := maskBits(mask)
		if !ok || !a.Is4() {
			return netip.Prefix{}, bad
		}
		bits = uint64(n)
	}

	p, err := a.Prefix(int(bits))
	if err != nil {
		return netip.Prefix{}, bad
	}
	if p.Addr() != a {
		return netip.Prefix{}, fmt.Errorf("%w: network %s has host bits set", errInvalid, quoteShort(s))
	}

	return p, nil
}

// maskBits returns the number of bits of a mask such as 255.255.0.0. It returns false if s is not a
// mask. As in Python, 0.0.255.255 means the same as 255.255.0.0.
func maskBits(s string) (int, bool) {
	a, err := netip.ParseAddr(s)
	if err != nil || !a.Is4() {
		return 0, false
	}

	b := a.As4()
	m := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	if m != 0 && m>>31 == 0 {
		m = ^m
	}

	n := 0
	for ; m>>31 == 1; m <<= 1 {
		n++
	}

	return n, m == 0
}

func (c cidr) matches(id string) bool {
	g, ok := c.data(id)
	if !ok {
		return false
	}

	for _, v := range g.List(c.grain) {
		s, ok := v.(string)
		if !ok {
			continue
		}
		if a, err := netip.ParseAddr(s); err == nil && c.prefix.Contains(a.WithZone("")) {
			return true
		}
	}

	return false
}
