package zmtp

import (
	"encoding/binary"
	"net/netip"
)

// The PROXY protocol, version 2 (haproxy.org, proxy-protocol.txt, section
// 2.2): signature, version and command, family, length, addresses, TLVs.
const (
	proxySignature = "\r\n\r\n\x00\r\nQUIT\n"
	proxyFixed     = len(proxySignature) + 4
	maxProxyBody   = 2048
)

// readProxy reads a PROXY header if the first byte announces one. ok is false
// when there was no header, or one (LOCAL, or an unknown family) that leaves
// the address of the connection in force.
func readProxy(r *reader) (src netip.AddrPort, ok bool, err error) {
	b, err := r.peek(1)
	if err != nil || b[0] != proxySignature[0] {
		return src, false, err
	}
	if b, err = r.peek(proxyFixed); err != nil {
		return src, false, unexpected(err)
	}
	command, family, size, err := parseProxyHead(b)
	if err != nil {
		return src, false, err
	}
	if b, err = r.peek(proxyFixed + size); err != nil {
		return src, false, unexpected(err)
	}
	src, ok, err = parseProxyBody(command, family, b[proxyFixed:])
	r.skip(proxyFixed + size)
	return src, ok, err
}

func parseProxyHead(b []byte) (command, family byte, size int, err error) {
	n := len(proxySignature)
	if len(b) < proxyFixed || string(b[:n]) != proxySignature {
		return 0, 0, 0, violation("bad signature in PROXY header")
	}
	if b[n]>>4 != 2 || b[n]&0x0f > 1 {
		return 0, 0, 0, violation("PROXY version and command 0x%02x", b[n])
	}
	size = int(binary.BigEndian.Uint16(b[n+2:]))
	if size > maxProxyBody {
		return 0, 0, 0, violation("PROXY header of %d bytes", size)
	}
	return b[n] & 0x0f, b[n+1], size, nil
}

func parseProxyBody(command, family byte, b []byte) (src netip.AddrPort, ok bool, err error) {
	if command == 0 { // LOCAL: the proxy itself, for instance a health check
		return src, false, nil
	}
	var size int
	switch family {
	case 0x11: // TCP over IPv4
		size = 4
	case 0x21: // TCP over IPv6
		size = 16
	default: // receivers must take what they do not know as LOCAL
		return src, false, nil
	}
	if len(b) < 2*size+4 {
		return src, false, violation("PROXY addresses of %d bytes", len(b))
	}
	ip, _ := netip.AddrFromSlice(b[:size])
	return netip.AddrPortFrom(ip.Unmap(), binary.BigEndian.Uint16(b[2*size:])), true, nil
}
