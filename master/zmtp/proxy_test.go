package zmtp

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"saltern/internal/proxyproto"
)

// proxyHeader builds a version 2 header.
func proxyHeader(command, family byte, body []byte) []byte {
	b := append([]byte(proxyproto.Signature), 0x20|command, family)
	return append(binary.BigEndian.AppendUint16(b, uint16(len(body))), body...)
}

func proxyAddrs(src, dst netip.AddrPort, tlv string) []byte {
	b := append(src.Addr().AsSlice(), dst.Addr().AsSlice()...)
	b = binary.BigEndian.AppendUint16(b, src.Port())
	return append(binary.BigEndian.AppendUint16(b, dst.Port()), tlv...)
}

var (
	proxyV4  = netip.MustParseAddrPort("192.0.2.7:4711")
	proxyTo4 = netip.MustParseAddrPort("192.0.2.1:4506")
	proxyV6  = netip.MustParseAddrPort("[2001:db8::7]:4712")
	proxyTo6 = netip.MustParseAddrPort("[2001:db8::1]:4506")
)

func TestProxyHeader(t *testing.T) {
	good := proxyHeader(1, 0x11, proxyAddrs(proxyV4, proxyTo4, ""))
	mapped := netip.MustParseAddrPort("[::ffff:192.0.2.9]:1")
	for name, c := range map[string]struct {
		in   []byte
		want string // "": the address of the connection; "-": closed
	}{
		"v4":          {good, proxyV4.String()},
		"v4 with tlv": {proxyHeader(1, 0x11, proxyAddrs(proxyV4, proxyTo4, "\x04\x00\x02xx")), proxyV4.String()},
		"moved":       {proxyproto.AppendMoved(nil, proxyV4, proxyTo4, proxyproto.Move{Silent: 5 * time.Second, Age: 7 * time.Second}), proxyV4.String()},
		"v6":          {proxyHeader(1, 0x21, proxyAddrs(proxyV6, proxyTo6, "")), proxyV6.String()},
		"v4 in v6":    {proxyHeader(1, 0x21, proxyAddrs(mapped, proxyTo6, "")), "192.0.2.9:1"},
		"local":       {proxyHeader(0, 0, nil), ""},
		"local, body": {proxyHeader(0, 0x11, proxyAddrs(proxyV4, proxyTo4, "")), ""},
		"unspec":      {proxyHeader(1, 0, nil), ""},
		"udp":         {proxyHeader(1, 0x12, proxyAddrs(proxyV4, proxyTo4, "")), ""},
		"unix":        {proxyHeader(1, 0x31, make([]byte, 216)), ""},
		"none":        {nil, ""},
		"short":       {proxyHeader(1, 0x11, make([]byte, 11)), "-"},
		"command 2":   {proxyHeader(2, 0x11, proxyAddrs(proxyV4, proxyTo4, "")), "-"},
		"too long":    {proxyHeader(1, 0x11, make([]byte, 2049)), "-"},
		"version 1":   {[]byte("PROXY TCP4 192.0.2.7 192.0.2.1 4711 4506\r\n"), "-"},
		"signature":   {[]byte("\r\n\r\n\x00\r\nQUIT\r\x21\x11\x00\x00"), "-"},
		"twice":       {append(bytes.Clone(good), good...), "-"},
	} {
		t.Run(name, func(t *testing.T) {
			peers := make(chan Peer, 1)
			p := publisher(t, PubConfig{OnConnect: func(q Peer) { peers <- q },
				Listen: Listen{ProxyFrom: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}})
			peer := dialRaw(t, p.Addr())
			_, _ = peer.Write(append(bytes.Clone(c.in), appendReady(greeting(), "SUB", "")...))

			if c.want == "-" {
				peer.wantClosed()
				return
			}

			want := c.want
			if want == "" {
				want = peer.LocalAddr().String()
			}

			select {
			case q := <-peers:
				if q.Remote.String() != want {
					t.Errorf("peer is %v, want %s", q.Remote, want)
				}
				if away := time.Since(q.Missing); q.Missing.IsZero() != (name != "moved") ||
					name == "moved" && (away < 5*time.Second || away > 5*time.Second+patience) {
					t.Errorf("may miss what was said since %v", q.Missing)
				}
				if before := q.Missing.Sub(q.Began); name == "moved" && before != 2*time.Second {
					t.Errorf("it began %v before", before)
				}
			case <-time.After(patience):
				t.Fatal("no connection")
			}
		})
	}
}

// Attack row 34: a header from an address outside of ProxyFrom ends the connection (see also
// TestAttack20HostileBytes, where ProxyFrom is empty).
func TestAttack34SpoofedSource(t *testing.T) {
	p := publisher(t, PubConfig{Listen: Listen{ProxyFrom: []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}}})
	c := dialRaw(t, p.Addr())
	_, _ = c.Write(append(proxyHeader(1, 0x11, proxyAddrs(proxyV4, proxyTo4, "")),
		appendReady(greeting(), "SUB", "")...))
	c.wantClosed()
	if s := p.Stats(); s.Conns > 1 {
		t.Errorf("stats %+v", s)
	}
}

// A member of the cluster may send the header as soon as it is a member.
func TestProxyMember(t *testing.T) {
	var member atomic.Bool
	p := publisher(t, PubConfig{Listen: Listen{ProxyFrom: []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")},
		ProxyMember: func(a netip.Addr) bool { return member.Load() && a.String() == "127.0.0.1" }}})
	text := append(proxyHeader(1, 0x11, proxyAddrs(proxyV4, proxyTo4, "")), appendReady(greeting(), "SUB", "")...)
	before := dialRaw(t, p.Addr())
	_, _ = before.Write(text)
	before.wantClosed()
	member.Store(true)
	after := dialRaw(t, p.Addr())
	after.send(text)
	after.welcome()
}

// Connections of the proxy itself do not count against MaxPerSource; those that it relays do.
func TestProxyPerSource(t *testing.T) {
	p := publisher(t, PubConfig{Listen: Listen{Limits: Limits{MaxPerSource: 1},
		ProxyFrom: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}})
	for range 3 {
		shake(t, p.Addr(), "SUB")
	}

	header := proxyHeader(1, 0x11, proxyAddrs(proxyV4, proxyTo4, ""))
	one := dialRaw(t, p.Addr())
	one.send(append(bytes.Clone(header), appendReady(greeting(), "SUB", "")...))
	one.welcome()
	eventually(t, "four", func() bool { return len(p.Subscribers()) == 4 })
	two := dialRaw(t, p.Addr())
	_, _ = two.Write(append(bytes.Clone(header), appendReady(greeting(), "SUB", "")...))
	two.wantClosed()

	if s := p.Stats(); s.Refused != 1 {
		t.Errorf("stats %+v", s)
	}
}

func TestUnixSocket(t *testing.T) {
	for _, trusted := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "s")
		ln, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}

		peers := make(chan Peer, 2)
		r, err := ListenRouter(context.Background(), ln, RouterConfig{Listen: Listen{ProxyUnix: trusted},
			Handler: func(_ context.Context, p Peer, b []byte) ([]byte, bool) { peers <- p; return b, true }})
		if err != nil {
			t.Fatal(err)
		}

		t.Cleanup(r.Close)
		req, err := DialReq(withTimeout(t), "unix:"+path, DialConfig{})
		if err != nil {
			t.Fatal(err)
		}

		t.Cleanup(req.Close)
		wantEcho(t, req, "hello")
		if p := <-peers; p.Remote.IsValid() {
			t.Errorf("peer %+v", p)
		}

		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()

		b := append(proxyHeader(1, 0x21, proxyAddrs(proxyV6, proxyTo6, "")), appendReady(greeting(), "REQ", "")...)
		_, _ = c.Write(appendMessage(b, nil, []byte("x")))
		if !trusted {
			_ = c.SetReadDeadline(time.Now().Add(patience))
			buf := make([]byte, 4096)
			for err == nil {
				_, err = c.Read(buf)
			}

			if ne, ok := err.(net.Error); ok && ne.Timeout() {
				t.Error("connection still open")
			}

			continue
		}

		if p := <-peers; p.Remote != proxyV6 {
			t.Errorf("peer %+v", p)
		}
	}
}
