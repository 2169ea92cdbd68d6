// Package proxyproto reads and writes the header of the PROXY protocol, version 2. In the header a
// balancer states for which client it forwards a connection to a server (HAProxy's
// doc/proxy-protocol.txt, section 2.2). Only [Read] does I/O.
package proxyproto

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"time"
)

const (
	// Signature is the beginning of a header. Fixed is the length of the part that every header
	// has.
	Signature = "\r\n\r\n\x00\r\nQUIT\n"
	Fixed     = 16
	// Local is the header of a connection that the balancer opens for itself, such as a health check.
	Local   = Signature + "\x20\x00\x00\x00"
	maxBody = 2048 // bytes that addresses and TLVs may have; a longer header is refused

	// movedType is a TLV type that section 2.2.5 leaves to applications. Other applications use it
	// as well, so each of our values begins with movedName or beganName. It ends with a number of
	// milliseconds.
	movedType = 0xe5
	movedName = "saltern moved"
	beganName = "saltern began"

	// AgeUnknown is the age of a connection if the balancer does not state its age.
	AgeUnknown = math.MaxUint32 * time.Millisecond
)

// Move describes a connection that continues a session which another server began.
type Move struct {
	// Silent is for how long, up to now, messages from other servers may not have reached the
	// client.
	Silent time.Duration
	// Age is how long ago the client began the connection. It is never more than AgeUnknown.
	Age time.Duration
}

var errHeader = errors.New("bad PROXY v2 header")

// BodyLen checks the fixed part and returns the length of the body behind it.
func BodyLen(b []byte) (int, error) {
	if len(b) < Fixed || string(b[:12]) != Signature {
		return 0, fmt.Errorf("%w: no signature", errHeader)
	}
	if b[12]>>4 != 2 || b[12]&0xf > 1 {
		return 0, fmt.Errorf("%w: version or command %#x", errHeader, b[12])
	}
	n := int(binary.BigEndian.Uint16(b[14:]))
	if n > maxBody {
		return 0, fmt.Errorf("%w: %d bytes long", errHeader, n)
	}
	return n, nil
}

// Parse parses a whole header (fixed part and body). For LOCAL, and for families other than TCP
// over IP, it returns the zero AddrPort: the caller must use the connection's own address.
func Parse(b []byte) (netip.AddrPort, error) {
	n, err := BodyLen(b)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if len(b) != Fixed+n {
		return netip.AddrPort{}, fmt.Errorf("%w: %d bytes for %d", errHeader, len(b), Fixed+n)
	}

	body := b[Fixed:]
	switch addresses(b) {
	case addresses4:
		if len(body) < addresses4 {
			return netip.AddrPort{}, fmt.Errorf("%w: short IPv4 addresses", errHeader)
		}
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(body[:4])), binary.BigEndian.Uint16(body[8:])), nil
	case addresses6:
		if len(body) < addresses6 {
			return netip.AddrPort{}, fmt.Errorf("%w: short IPv6 addresses", errHeader)
		}
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(body[:16])).Unmap(),
			binary.BigEndian.Uint16(body[32:])), nil
	}

	return netip.AddrPort{}, nil
}

// Lengths in bytes of two addresses with their ports.
const (
	addresses4 = 4 + 4 + 2 + 2
	addresses6 = 16 + 16 + 2 + 2
)

// addresses returns how many bytes of addresses the fixed part announces. For LOCAL, and for
// families other than TCP over IP, it returns 0.
func addresses(b []byte) int {
	switch {
	case b[12]&0xf == 0:
		return 0
	case b[13] == 0x11:
		return addresses4
	case b[13] == 0x21:
		return addresses6
	}
	return 0
}

// Moved reports whether a whole header that [Parse] accepts marks a session as moved, i.e. begun by
// another server. Only our own balancer writes such marks, see [AppendMoved].
func Moved(b []byte) (m Move, ok bool) {
	told := addresses(b)
	if told == 0 {
		return Move{}, false
	}

	m.Age = AgeUnknown
	for rest := b[Fixed+told:]; len(rest) >= 3; {
		n := int(binary.BigEndian.Uint16(rest[1:]))
		if n > len(rest)-3 {
			break
		}

		if rest[0] == movedType {
			if d, is := duration(rest[3:3+n], movedName); is {
				m.Silent = d
				ok = true
			}
			if d, is := duration(rest[3:3+n], beganName); is {
				m.Age = d
			}
		}

		rest = rest[3+n:]
	}

	if !ok {
		return Move{}, false
	}
	return m, true
}

// duration parses the value of a TLV of ours whose value begins with name. It returns false for any
// other value.
func duration(value []byte, name string) (d time.Duration, is bool) {
	text, is := bytes.CutPrefix(value, []byte(name))
	if !is || len(text) != 4 {
		return 0, false
	}
	return time.Duration(binary.BigEndian.Uint32(text)) * time.Millisecond, true
}

// AppendMoved works like [Append], and adds the marks that [Moved] reads. Servers that do not know
// the TLV type of the marks skip them.
func AppendMoved(b []byte, src, dst netip.AddrPort, m Move) []byte {
	at := len(b)
	b = Append(b, src, dst)
	b = appendDuration(b, movedName, m.Silent)
	b = appendDuration(b, beganName, m.Age)
	binary.BigEndian.PutUint16(b[at+14:], uint16(len(b)-at-Fixed))
	return b
}

func appendDuration(b []byte, name string, d time.Duration) []byte {
	b = append(b, movedType, 0, byte(len(name)+4))
	b = append(b, name...)
	return binary.BigEndian.AppendUint32(b, uint32(min(max(d.Milliseconds(), 0), math.MaxUint32)))
}

// Append appends to b the header for a connection from src to dst, and returns the result. If the
// addresses are of different families, it writes both as IPv6.
func Append(b []byte, src, dst netip.AddrPort) []byte {
	b = append(b, Signature...)
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

// Read reads exactly one header, and returns the address as [Parse] does.
func Read(r io.Reader) (netip.AddrPort, error) {
	b := make([]byte, Fixed)
	if _, err := io.ReadFull(r, b); err != nil {
		return netip.AddrPort{}, fmt.Errorf("read PROXY header: %w", err)
	}
	n, err := BodyLen(b)
	if err != nil {
		return netip.AddrPort{}, err
	}
	b = append(b, make([]byte, n)...)
	if _, err := io.ReadFull(r, b[Fixed:]); err != nil {
		return netip.AddrPort{}, fmt.Errorf("read PROXY header: %w", err)
	}
	return Parse(b)
}
