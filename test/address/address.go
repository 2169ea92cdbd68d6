// Package address finds addresses for the servers of a test.
package address

import (
	"net"
	"net/netip"
	"testing"
)

// Free is an address of a host where nobody listens just now. The test fails when
// there is none.
func Free(t testing.TB, host string) netip.AddrPort {
	t.Helper()
	ln, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return netip.MustParseAddrPort(ln.Addr().String())
}
