package zmtp

import (
	"net/netip"
	"time"

	"saltern/internal/proxyproto"
)

// readProxy reads a PROXY header if the first byte announces one. src is invalid without a header,
// or with one that keeps the address of the connection. missing is set if a balancer moved the
// connection here: it may lack what was sent to it since then.
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
