package zmtp

import (
	"net/netip"
	"time"

	"saltern/internal/proxyproto"
)

// proxyTold holds the fields of a connection's PROXY header.
type proxyTold struct {
	// src is the client's address. It is invalid without a header, and with a header that names no
	// address, such as LOCAL; in these cases the client's address is that of the connection.
	src netip.AddrPort
	// missing and began are copied to [Peer].
	missing, began time.Time
}

// readProxy reads a PROXY header if the connection's first byte announces one.
func readProxy(r *reader) (p proxyTold, err error) {
	b, err := r.peek(1)
	if err != nil || b[0] != proxyproto.Signature[0] {
		return p, err
	}

	if b, err = r.peek(proxyproto.Fixed); err != nil {
		return p, unexpected(err)
	}

	size, err := proxyproto.BodyLen(b)
	if err != nil {
		return p, violation("%v", err)
	}

	size += proxyproto.Fixed
	if b, err = r.peek(size); err != nil {
		return p, unexpected(err)
	}

	if p.src, err = proxyproto.Parse(b); err != nil {
		return p, violation("%v", err)
	}

	if move, moved := proxyproto.Moved(b); moved {
		now := time.Now()
		p.missing = now.Add(-move.Silent)
		p.began = now.Add(-move.Age)
	}

	r.skip(size)
	return p, nil
}
