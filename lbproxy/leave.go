package lbproxy

import (
	"context"
	"net/http"
	"net/netip"

	"golang.org/x/sys/unix"
)

// CutLocal closes all sessions that clients opened to an address of this
// machine, and says how many: the address has moved to another machine, and
// nothing of them gets through any more. Masters are told as of any cut.
func (p *Proxy) CutLocal(address netip.Addr) (int, error) {
	n, err := p.cutWhere(endCut, -1, func(s *session, _ int64) bool {
		sa, err := unix.Getsockname(int(s.fd[0]))
		if err != nil {
			return false // it is ending
		}
		switch a := sa.(type) {
		case *unix.SockaddrInet4:
			return netip.AddrFrom4(a.Addr) == address
		case *unix.SockaddrInet6:
			return netip.AddrFrom16(a.Addr).Unmap() == address
		}
		return false
	})
	if n > 0 {
		p.log.Info("sessions cut", "address", address, "sessions", n)
	}
	return n, err
}

// CutLocal closes the sessions that clients opened to an address that has left
// the load balancer's machine.
func (c *Client) CutLocal(ctx context.Context, address netip.Addr) (int, error) {
	var r adminReply
	err := c.do(ctx, http.MethodPost, "cut-local", adminRequest{Address: address.String()}, &r)
	return r.Cut, err
}
