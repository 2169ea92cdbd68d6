package zmtp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// Frame flags (RFC 37, "Framing"). All other bits are reserved and must be 0.
const (
	flagMore    = 0x01
	flagLong    = 0x02
	flagCommand = 0x04
)

const (
	greetingSize = 64
	// maxHeader is the size of the longest frame header in bytes.
	maxHeader = 9
	// maxCommand bounds every command frame in bytes, including READY with all its metadata.
	maxCommand = 4096
	// maxPingContext is the size in bytes of the longest context of a PING (RFC 37, "Heartbeating").
	maxPingContext = 16
)

// errProtocol is wrapped by every error about a peer that violates ZMTP or one of the listener's
// limits.
var errProtocol = errors.New("zmtp: protocol violation")

func violation(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errProtocol}, args...)...)
}

// greeting returns the bytes that both ends send first: signature, version 3.1, mechanism NULL,
// as-server 0. Byte 8 (counted from 0) is 1, the value that libzmq sends to old peers.
func greeting() []byte {
	g := make([]byte, greetingSize)
	g[0] = 0xff
	g[8] = 0x01
	g[9] = 0x7f
	g[10], g[11] = 3, 1
	copy(g[12:], "NULL")
	return g
}

// parseGreeting checks the 64 bytes of a peer's greeting and returns its minor version. It ignores
// the padding between the signature bytes, where libzmq puts the length of its identity.
func parseGreeting(g []byte) (minor byte, err error) {
	switch {
	case len(g) != greetingSize:
		return 0, violation("greeting of %d bytes", len(g))
	case g[0] != 0xff || g[9] != 0x7f:
		return 0, violation("bad signature in greeting")
	case g[10] < 3:
		return 0, violation("peer speaks version %d", g[10])
	}
	mech := strings.TrimRight(string(g[12:32]), "\x00")
	if mech != "NULL" {
		return 0, violation("unknown mechanism %q", mech)
	}
	return g[11], nil
}

// header is a decoded frame header.
type header struct {
	more    bool
	command bool
	size    uint64
}

// parseHeader reads a frame header and returns the number n of its bytes, or 0 when b holds only a
// part of the header.
func parseHeader(b []byte) (h header, n int, err error) {
	if len(b) == 0 {
		return h, 0, nil
	}

	f := b[0]
	if f&^(flagMore|flagLong|flagCommand) != 0 {
		return h, 0, violation("reserved bits in frame flags 0x%02x", f)
	}

	h.more, h.command = f&flagMore != 0, f&flagCommand != 0
	if h.more && h.command {
		return h, 0, violation("command frame with more flag")
	}
	if f&flagLong == 0 {
		if len(b) < 2 {
			return h, 0, nil
		}
		h.size = uint64(b[1])
		return h, 2, nil
	}

	if len(b) < maxHeader {
		return h, 0, nil
	}

	h.size = binary.BigEndian.Uint64(b[1:])
	if h.size>>63 != 0 {
		return h, 0, violation("frame size with top bit set")
	}

	return h, maxHeader, nil
}

// appendHeader appends the shortest header for a frame of size bytes.
func appendHeader(dst []byte, flags byte, size int) []byte {
	if size <= 255 {
		return append(dst, flags, byte(size))
	}
	return binary.BigEndian.AppendUint64(append(dst, flags|flagLong), uint64(size))
}

// appendMessage appends a message that consists of one or more frames.
func appendMessage(dst []byte, frames ...[]byte) []byte {
	for i, f := range frames {
		var flags byte
		if i < len(frames)-1 {
			flags = flagMore
		}
		dst = append(appendHeader(dst, flags, len(f)), f...)
	}
	return dst
}

// appendCommand appends a command frame.
func appendCommand(dst []byte, name string, body []byte) []byte {
	dst = appendHeader(dst, flagCommand, 1+len(name)+len(body))
	dst = append(append(dst, byte(len(name))), name...)
	return append(dst, body...)
}

// parseCommand splits the body of a command frame into the command's name and body, which are parts
// of b.
func parseCommand(b []byte) (name, body []byte, err error) {
	if len(b) == 0 || b[0] == 0 || len(b) < 1+int(b[0]) {
		return nil, nil, violation("malformed command")
	}
	n := 1 + int(b[0])
	return b[1:n], b[n:], nil
}

// metadata holds the properties of a READY command that this package uses.
type metadata struct {
	socketType string
	identity   string
}

// parseMetadata reads the properties of READY. It ignores case in names (RFC 37) and skips unknown
// names.
func parseMetadata(b []byte) (m metadata, err error) {
	for len(b) > 0 {
		n := int(b[0])
		if n == 0 || len(b) < 1+n+4 {
			return m, violation("malformed property in READY")
		}

		name := string(b[1 : 1+n])
		b = b[1+n:]
		size := binary.BigEndian.Uint32(b)
		b = b[4:]
		if uint64(size) > uint64(len(b)) {
			return m, violation("property in READY longer than the command")
		}

		value := string(b[:size])
		b = b[size:]
		switch {
		case strings.EqualFold(name, "Socket-Type"):
			m.socketType = value
		case strings.EqualFold(name, "Identity"):
			if len(value) > 255 {
				return m, violation("identity of %d bytes", len(value))
			}
			m.identity = value
		}
	}

	return m, nil
}

// appendReady appends a READY command. For the socket types for which libzmq sends Identity (here
// ROUTER, REQ and DEALER), the command contains Identity even when it is empty.
func appendReady(dst []byte, socketType, identity string) []byte {
	body := appendProperty(nil, "Socket-Type", socketType)
	switch socketType {
	case "ROUTER", "REQ", "DEALER":
		body = appendProperty(body, "Identity", identity)
	}
	return appendCommand(dst, "READY", body)
}

func appendProperty(dst []byte, name, value string) []byte {
	dst = append(append(dst, byte(len(name))), name...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(value)))
	return append(dst, value...)
}

// accepts reports whether a socket of type local may be connected to a socket of type peer (RFC 23,
// "Socket Types").
func accepts(local, peer string) bool {
	switch local {
	case "ROUTER":
		return peer == "REQ" || peer == "DEALER" || peer == "ROUTER"
	case "PUB":
		return peer == "SUB" || peer == "XSUB"
	case "REQ":
		return peer == "REP" || peer == "ROUTER"
	case "SUB":
		return peer == "PUB" || peer == "XPUB"
	}
	return false
}
