package zmtp

import (
	"net/netip"
	"time"

	"saltern/internal/proxyproto"
)

// readProxy reads a PROXY header if the first byte announces one. src is not valid when
// there was none, or one that leaves the address of the connection in force. A connection
// that a balancer has moved here lacks at most what was said since the time missing, which
// is zero for others.
func readProxy(r *reader) (src netip.AddrPort, missing time.Time, err error) {
	b, err := r.peek(1)
	if err != nil || b[0] != proxyproto.Signature[0] {
		return src, missing, err
	}

	if b, err = r.peek(proxyproto.Fixed); err != nil {
		return src, missing, unexpected(err)
	}

	size, err := proxyproto.BodyLen(b)
	if err != nil {
		return src, missing, violation("%v", err)
	}

	size += proxyproto.Fixed
	if b, err = r.peek(size); err != nil {
		return src, missing, unexpected(err)
	}

	if src, err = proxyproto.Parse(b); err != nil {
		return src, missing, violation("%v", err)
	}

	if silent, moved := proxyproto.Moved(b); moved {
		missing = time.Now().Add(-silent)
	}

	r.skip(size)
	return src, missing, nil
}
