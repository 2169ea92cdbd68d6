package zmtp

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"saltern/test/await"
)

var fromLoopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// as returns the first bytes that a peer with address src sends through a proxy.
func as(src, socketType string) []byte {
	a := netip.AddrPortFrom(netip.MustParseAddr(src), 1000)
	return append(proxyHeader(1, 0x11, proxyAddrs(a, proxyTo4, "")), appendReady(greeting(), socketType, "")...)
}

// TestFinding09Places: a source that has not authenticated cannot take the connection slots of
// others, and strangers cannot take the slots of authenticated sources and of this host.
func TestFinding09Places(t *testing.T) {
	sources := NewSources(time.Now)
	p := publisher(t,
		PubConfig{Listen: Listen{Limits: Limits{MaxConns: 40}, ProxyFrom: fromLoopback, Sources: sources}})
	try := func(src string) bool {
		c := dialRaw(t, p.Addr())
		_, _ = c.Write(as(src, "SUB"))
		_, err := c.in.ReadByte() // of the greeting, or the end
		if err != nil {
			return false
		}

		before := len(p.Subscribers())
		await.Within(2*time.Second, func() bool {
			return len(p.Subscribers()) > before || len(p.Subscribers()) == int(p.Stats().Conns)
		})

		return true
	}

	count := func(src string) (n int) {
		for range 40 {
			if try(src) {
				n++
			}
		}
		return n
	}

	attacker, honest := count("203.0.113.9"), 0
	if attacker != 15 { // half of three quarters
		t.Errorf("one stranger has %d places of 40", attacker)
	}

	if honest = count("198.51.100.7"); honest == 0 {
		t.Error("another one has none")
	}

	sources.Prove(netip.MustParseAddr("192.0.2.77"))
	if n := count("192.0.2.77"); n < 10 {
		t.Errorf("a proven source got %d places", n)
	}
}

// TestFinding09Unproven: the listener closes an idle connection that has not authenticated. It
// keeps one that has, and one from this host.
func TestFinding09Unproven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := newPipes()
		r, err := ListenRouter(context.Background(), ln, RouterConfig{
			Listen: Listen{Limits: Limits{ProveIn: 2 * time.Minute}, ProxyUnix: true},
			Handler: func(_ context.Context, p Peer, b []byte) ([]byte, bool) {
				if bytes.Equal(b, []byte("proof")) {
					p.Account.Prove(func() bool { return true })
				}
				return bytes.Clone(b), true
			}})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()

		// A peer that speaks ZMTP 3.0 gets no PING.
		old := func(src, says string) []byte {
			b := as(src, "REQ")
			if src == "" {
				b = appendReady(greeting(), "REQ", "")
			}
			at := bytes.Index(b, []byte{0xff, 0, 0, 0, 0, 0, 0, 0})
			b[at+11] = 0
			return appendMessage(b, nil, []byte(says))
		}

		_, silent := ln.dial(old("203.0.113.9", "hello"))
		_, proven := ln.dial(old("198.51.100.7", "proof"))
		_, sameSource := ln.dial(old("198.51.100.7", "hello"))
		time.Sleep(time.Minute)
		synctest.Wait()

		if r.Stats().Conns != 3 {
			t.Fatalf("%d connections", r.Stats().Conns)
		}

		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if !ended(silent) {
			t.Error("a connection that proved nothing stays")
		}

		if ended(proven) || ended(sameSource) {
			t.Error("a proven source's connection was ended")
		}

		if s := r.Stats(); s.Unproven != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// TestFinding06Shares: each source has a share of the strangers' memory, only bytes that have
// arrived count, and all memory is released.
func TestFinding06Shares(t *testing.T) {
	r := router(t,
		RouterConfig{Listen: Listen{Limits: Limits{MaxMessage: 1 << 20, MaxStrange: 3 << 20}, ProxyFrom: fromLoopback}})
	claim := append([]byte{flagMore, 0}, longHeader(0, 1<<20)...)
	for range 50 {
		c := dialRaw(t, r.Addr())
		c.send(append(as("203.0.113.9", "REQ"), claim...))
		c.welcome()
	}

	if n := r.hub.strangers.inUse(); n != 0 {
		t.Errorf("%d bytes are set aside for what was announced", n)
	}

	var held []*raw
	for range 50 {
		c := dialRaw(t, r.Addr())
		_, _ = c.Write(append(append(as("203.0.113.9", "REQ"), claim...), make([]byte, 300<<10)...))
		held = append(held, c)
	}

	eventually(t, "the stranger's share is used", func() bool { return r.Stats().NoRoom > 0 })
	if n := r.hub.strangers.inUse(); n > 2<<20 {
		t.Errorf("one source has %d bytes of %d", n, 3<<20)
	}

	other := dialRaw(t, r.Addr())
	text := bytes.Repeat([]byte("x"), 400<<10)
	other.send(append(as("198.51.100.7", "REQ"), appendMessage(nil, nil, text)...))
	other.welcome()
	other.frame()

	if _, got := other.frame(); !bytes.Equal(got, text) {
		t.Errorf("another source's message: %d bytes back", len(got))
	}

	for _, c := range held {
		_ = c.Close()
	}

	eventually(t, "all came back", func() bool { return r.hub.strangers.inUse() == 0 })
}

// TestFinding07Slow: an answer counts against the memory until it is written, and the listener
// closes the connection of a peer that reads too slowly.
func TestFinding07Slow(t *testing.T) {
	big := make([]byte, 8<<20)
	r := router(t, RouterConfig{
		Listen:     Listen{Limits: Limits{MinRate: 1 << 20}, ProxyFrom: fromLoopback},
		WriteStall: 300 * time.Millisecond, Free: func([]byte) {},
		Handler: func(context.Context, Peer, []byte) ([]byte, bool) { return big, true }})

	c := dialRaw(t, r.Addr())
	c.send(append(as("203.0.113.9", "REQ"), appendMessage(nil, nil, []byte("x"))...))
	eventually(t, "the answer counts", func() bool { return r.hub.strangers.inUse() == int64(len(big)) })
	stop := make(chan struct{})
	defer close(stop)

	go func() { // reads now and then: never at a standstill, far too slow
		b := make([]byte, 64<<10)
		for {
			if _, err := c.Read(b); err != nil {
				return
			}

			select {
			case <-stop:
				return
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()

	eventually(t, "it is cut", func() bool { return r.Stats().Stalled == 1 })
	eventually(t, "the memory came back", func() bool { return r.hub.strangers.inUse() == 0 })
}

// TestSources: the table is bounded and counts an IPv6 network as one source.
func TestSources(t *testing.T) {
	now := time.Unix(1e9, 0)
	s := NewSources(func() time.Time { return now })
	s.Prove(netip.MustParseAddr("2001:db8::1"))
	if !s.Proven(netip.MustParseAddr("2001:db8::ffff:1")) || s.Proven(netip.MustParseAddr("2001:db8:0:1::1")) {
		t.Error("a /64 is one source")
	}

	s.Prove(netip.MustParseAddr("::ffff:192.0.2.1"))
	if !s.Proven(netip.MustParseAddr("192.0.2.1")) {
		t.Error("an IPv4 address in IPv6 is that address")
	}

	for i := range maxSources + 100 {
		s.Prove(netip.MustParseAddr(fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)))
	}

	if len(s.at) > maxSources {
		t.Errorf("%d sources", len(s.at))
	}

	now = now.Add(sourceLasts)
	if s.Proven(netip.MustParseAddr("10.0.255.255")) {
		t.Error("a day later")
	}
}
