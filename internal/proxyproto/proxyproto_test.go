package proxyproto

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestProxyHeaderRoundTrip(t *testing.T) {
	for _, c := range []struct{ src, dst, want string }{
		{"192.0.2.1:1234", "198.51.100.2:4505", "192.0.2.1:1234"},
		{"[2001:db8::1]:65535", "[2001:db8::2]:4506", "[2001:db8::1]:65535"},
		{"192.0.2.1:1", "[2001:db8::2]:4506", "192.0.2.1:1"},
	} {
		b := Append(nil, netip.MustParseAddrPort(c.src), netip.MustParseAddrPort(c.dst))
		got, err := Parse(b)
		if err != nil || got.String() != c.want {
			t.Errorf("%s: %v, %v", c.src, got, err)
		}
	}

	r := strings.NewReader(string(Append(nil, netip.MustParseAddrPort("192.0.2.1:1"),
		netip.MustParseAddrPort("192.0.2.2:2"))) + "GET /")
	if got, err := Read(r); err != nil || got.String() != "192.0.2.1:1" || r.Len() != 5 {
		t.Errorf("read %v, %v, %d left", got, err, r.Len())
	}

	// As HAProxy 2.6 sends it for 127.0.0.1:41952 to 127.0.0.1:4506.
	h := []byte("\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\x7f\x00\x00\x01\x7f\x00\x00\x01\xa3\xe0\x11\x9a")
	if got, err := Parse(h); err != nil || got.String() != "127.0.0.1:41952" {
		t.Errorf("%v, %v", got, err)
	}

	if mine := Append(nil, netip.MustParseAddrPort("127.0.0.1:41952"),
		netip.MustParseAddrPort("127.0.0.1:4506")); !bytes.Equal(mine, h) {
		t.Errorf("written %q", mine)
	}
}

// TestMoved: the mark stands behind whatever others put into a header, and others read the
// header as if it were not there.
func TestMoved(t *testing.T) {
	src, v4, v6 := netip.MustParseAddrPort("192.0.2.1:1"), netip.MustParseAddrPort("192.0.2.2:2"), netip.MustParseAddrPort("[2001:db8::2]:2")
	for _, c := range []struct {
		dst          netip.AddrPort
		silent, want time.Duration
	}{
		{v4, 1500 * time.Millisecond, 1500 * time.Millisecond},
		{v6, 0, 0},
		{v4, -time.Second, 0},
		{v4, 1 << 62, (1<<32 - 1) * time.Millisecond},
	} {
		b := AppendMoved([]byte("before"), src, c.dst, Move{Silent: c.silent, Age: c.silent})[len("before"):]
		if got, err := Parse(b); err != nil || got != src {
			t.Errorf("%v: read %v, %v", c, got, err)
		}
		if got, ok := Moved(b); !ok || got != (Move{c.want, c.want}) {
			t.Errorf("%v: %v %v", c, got, ok)
		}
	}

	moved := AppendMoved(nil, src, v4, Move{time.Second, time.Minute})
	parts := string(moved[Fixed+12:])
	end := 3 + len(movedName) + 4
	mark, began := parts[:end], parts[end:]
	for name, tlvs := range map[string]string{
		"none": "", "another's": "\xe5\x00\x02hi", "cut": mark[:len(mark)-1], "short": "\xe5\x00", "of no length": "\xe5\x00\x00",
		"longer than what is left": "\x04\xff\xff" + mark, "how old it is": began,
	} {
		if d, ok := Moved(with(src, v4, tlvs)); ok {
			t.Errorf("%s: moved after %v", name, d)
		}
	}

	if d, ok := Moved(with(src, v4, "\x04\x00\x03abc\xe5\x00\x02hi"+mark)); !ok || d != (Move{time.Second, AgeUnknown}) {
		t.Errorf("behind others, of a balancer that tells no age: %v %v", d, ok)
	}
	if d, ok := Moved(with(src, v4, began+mark)); !ok || d != (Move{time.Second, time.Minute}) {
		t.Errorf("the other way round: %v %v", d, ok)
	}

	if _, ok := Moved([]byte(Local)); ok {
		t.Error("a check was moved")
	}
}

// with is a header with TLVs as another balancer writes them.
func with(src, dst netip.AddrPort, tlvs string) []byte {
	b := Append(nil, src, dst)
	b[15] += byte(len(tlvs))
	return append(b, tlvs...)
}

func TestProxyHeaderFaults(t *testing.T) {
	good := Append(nil, netip.MustParseAddrPort("1.2.3.4:5"), netip.MustParseAddrPort("6.7.8.9:10"))
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
		if ap, err := Parse(b); err == nil {
			t.Errorf("%s: taken as %v", name, ap)
		}
		if ap, err := Read(bytes.NewReader(b)); err == nil && name != "bytes after" {
			t.Errorf("%s: read as %v", name, ap)
		}
	}

	local := edit(func(b []byte) []byte { b[12] = 0x20; return b })
	if ap, err := Parse(local); err != nil || ap.IsValid() {
		t.Errorf("local: %v, %v", ap, err)
	}
}

func FuzzProxyHeader(f *testing.F) {
	f.Add(Append(nil, netip.MustParseAddrPort("1.2.3.4:5"), netip.MustParseAddrPort("6.7.8.9:10")))
	f.Add(Append(nil, netip.MustParseAddrPort("[::1]:5"), netip.MustParseAddrPort("6.7.8.9:10")))
	f.Add([]byte(Local))
	f.Add(AppendMoved(nil, netip.MustParseAddrPort("1.2.3.4:5"), netip.MustParseAddrPort("6.7.8.9:10"), Move{time.Second, time.Minute}))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := BodyLen(b)
		if err == nil && (n < 0 || n > maxBody) {
			t.Fatalf("body of %d", n)
		}

		ap, err := Parse(b)
		if err != nil || !ap.IsValid() {
			return
		}

		move, _ := Moved(b)
		moved := AppendMoved(nil, ap, netip.MustParseAddrPort("[::1]:1"), move)
		if got, ok := Moved(moved); !ok || got != move {
			t.Fatalf("%v became %v, %v", move, got, ok)
		}

		again, err := Parse(moved)
		if err != nil || again != ap {
			t.Fatalf("%v became %v, %v", ap, again, err)
		}
	})
}
