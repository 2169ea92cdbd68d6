package lbproxy

import (
	"io"
	"net"
	"net/netip"
	"testing"

	"saltern/internal/proxyproto"
)

// BenchmarkTracker is the cost of looking at what passes: an answer of a master.
func BenchmarkTracker(b *testing.B) {
	head := appendFrame(greeting(), flagCommand, appendReady(nil, "ROUTER"))
	msg := appendFrame(appendFrame(nil, flagMore, nil), 0, append([]byte{0xda, 0, 96}, make([]byte, 96)...))
	var tr tracker
	tr.feed(head)
	for b.Loop() {
		tr.feed(msg)
	}
}

// BenchmarkConnection is a connection through the proxy from its begin to its
// end, with a byte each way, from a source of which nothing is known.
func BenchmarkConnection(b *testing.B) {
	cfg := testConfig(Request, newFake(b, "127.0.0.1:0", echo))
	cfg.Log.Sessions = "none"
	cfg.Frontends[0].ProxyFrom = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	cfg.Frontends[0].MaxPerSource = 1 << 20 // counted, and never reached
	_, addr := start(b, cfg)
	head := proxyproto.Append(nil, netip.MustParseAddrPort("203.0.113.9:1"), netip.MustParseAddrPort("127.0.0.1:2"))
	head = append(head, 'x')
	buf := make([]byte, 1)
	for b.Loop() {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			b.Fatal(err)
		}

		if _, err := c.Write(head); err != nil {
			b.Fatal(err)
		}

		if _, err := io.ReadFull(c, buf); err != nil {
			b.Fatal(err)
		}

		c.(*net.TCPConn).SetLinger(0)
		c.Close()
	}
}
