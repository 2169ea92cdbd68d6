package lbproxy

import (
	"bytes"
	"net/netip"
	"testing"
)

func TestProxyHeaderRoundTrip(t *testing.T) {
	for _, c := range []struct{ src, dst, want string }{
		{"192.0.2.1:1234", "198.51.100.2:4505", "192.0.2.1:1234"},
		{"[2001:db8::1]:65535", "[2001:db8::2]:4506", "[2001:db8::1]:65535"},
		{"192.0.2.1:1", "[2001:db8::2]:4506", "192.0.2.1:1"},
	} {
		b := appendProxy(nil, netip.MustParseAddrPort(c.src), netip.MustParseAddrPort(c.dst))
		got, err := parseProxy(b)
		if err != nil || got.String() != c.want {
			t.Errorf("%s: %v, %v", c.src, got, err)
		}
	}
	// As HAProxy 2.6 sends it for 127.0.0.1:41952 to 127.0.0.1:4506.
	h := []byte("\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\x7f\x00\x00\x01\x7f\x00\x00\x01\xa3\xe0\x11\x9a")
	if got, err := parseProxy(h); err != nil || got.String() != "127.0.0.1:41952" {
		t.Errorf("%v, %v", got, err)
	}
	if mine := appendProxy(nil, netip.MustParseAddrPort("127.0.0.1:41952"), netip.MustParseAddrPort("127.0.0.1:4506")); !bytes.Equal(mine, h) {
		t.Errorf("written %q", mine)
	}
}

func TestProxyHeaderFaults(t *testing.T) {
	good := appendProxy(nil, netip.MustParseAddrPort("1.2.3.4:5"), netip.MustParseAddrPort("6.7.8.9:10"))
	edit := func(f func(b []byte) []byte) []byte { return f(bytes.Clone(good)) }
	for name, b := range map[string][]byte{
		"empty":       {},
		"short":       good[:15],
		"version 1":   edit(func(b []byte) []byte { b[12] = 0x11; return b }),
		"command 2":   edit(func(b []byte) []byte { b[12] = 0x22; return b }),
		"signature":   edit(func(b []byte) []byte { b[3] = 'x'; return b }),
		"cut body":    good[:20],
		"too long":    edit(func(b []byte) []byte { b[14], b[15] = 0xff, 0xff; return b }),
		"short IPv4":  edit(func(b []byte) []byte { b[15] = 4; return b[:20] }),
		"short IPv6":  edit(func(b []byte) []byte { b[13] = 0x21; return b }),
		"bytes after": append(bytes.Clone(good), 0),
	} {
		if ap, err := parseProxy(b); err == nil {
			t.Errorf("%s: taken as %v", name, ap)
		}
	}
	local := edit(func(b []byte) []byte { b[12] = 0x20; return b })
	if ap, err := parseProxy(local); err != nil || ap.IsValid() {
		t.Errorf("local: %v, %v", ap, err)
	}
}

func FuzzProxyHeader(f *testing.F) {
	f.Add(appendProxy(nil, netip.MustParseAddrPort("1.2.3.4:5"), netip.MustParseAddrPort("6.7.8.9:10")))
	f.Add(appendProxy(nil, netip.MustParseAddrPort("[::1]:5"), netip.MustParseAddrPort("6.7.8.9:10")))
	f.Add([]byte(proxySig + "\x20\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := proxyBodyLen(b)
		if err == nil && (n < 0 || n > maxProxyLen) {
			t.Fatalf("body of %d", n)
		}
		ap, err := parseProxy(b)
		if err != nil || !ap.IsValid() {
			return
		}
		again, err := parseProxy(appendProxy(nil, ap, netip.MustParseAddrPort("[::1]:1")))
		if err != nil || again != ap {
			t.Fatalf("%v became %v, %v", ap, again, err)
		}
	})
}
