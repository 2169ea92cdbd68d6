package lbproxy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// PROXY protocol version 2, as in HAProxy's doc/proxy-protocol.txt section 2.2.
const (
	proxySig    = "\r\n\r\n\x00\r\nQUIT\n"
	proxyFixed  = 16
	maxProxyLen = 1024 // body: addresses and TLVs; more is refused
)

var errProxyHeader = errors.New("bad PROXY v2 header")

// proxyBodyLen checks the fixed part and returns the length of the rest.
func proxyBodyLen(b []byte) (int, error) {
	if len(b) < proxyFixed || string(b[:12]) != proxySig {
		return 0, fmt.Errorf("%w: no signature", errProxyHeader)
	}
	if b[12]>>4 != 2 || b[12]&0xf > 1 {
		return 0, fmt.Errorf("%w: version or command %#x", errProxyHeader, b[12])
	}
	n := int(binary.BigEndian.Uint16(b[14:]))
	if n > maxProxyLen {
		return 0, fmt.Errorf("%w: %d bytes long", errProxyHeader, n)
	}
	return n, nil
}

// parseProxy reads a whole header (fixed part and body). The address is not
// valid for LOCAL and for families other than TCP over IP: the connection's
// own address counts then.
func parseProxy(b []byte) (netip.AddrPort, error) {
	n, err := proxyBodyLen(b)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if len(b) != proxyFixed+n {
		return netip.AddrPort{}, fmt.Errorf("%w: %d bytes for %d", errProxyHeader, len(b), proxyFixed+n)
	}
	if b[12]&0xf == 0 {
		return netip.AddrPort{}, nil
	}
	body := b[proxyFixed:]
	switch b[13] {
	case 0x11:
		if len(body) < 12 {
			return netip.AddrPort{}, fmt.Errorf("%w: short IPv4 addresses", errProxyHeader)
		}
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(body[:4])), binary.BigEndian.Uint16(body[8:])), nil
	case 0x21:
		if len(body) < 36 {
			return netip.AddrPort{}, fmt.Errorf("%w: short IPv6 addresses", errProxyHeader)
		}
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(body[:16])).Unmap(), binary.BigEndian.Uint16(body[32:])), nil
	}
	return netip.AddrPort{}, nil
}

// appendProxy writes the header for a connection from src to dst. Addresses of
// two families are both written as IPv6.
func appendProxy(b []byte, src, dst netip.AddrPort) []byte {
	b = append(b, proxySig...)
	b = append(b, 0x21)
	if src.Addr().Is4() && dst.Addr().Is4() {
		s, d := src.Addr().As4(), dst.Addr().As4()
		b = append(b, 0x11, 0, 12)
		b = append(append(b, s[:]...), d[:]...)
	} else {
		s, d := src.Addr().As16(), dst.Addr().As16()
		b = append(b, 0x21, 0, 36)
		b = append(append(b, s[:]...), d[:]...)
	}
	b = binary.BigEndian.AppendUint16(b, src.Port())
	return binary.BigEndian.AppendUint16(b, dst.Port())
}
