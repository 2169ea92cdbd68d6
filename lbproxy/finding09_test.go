package lbproxy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"saltern/internal/proxyproto"
)

// front is a proxy before a fake master whose clients tell where they are from
// by a PROXY header: the only way to have many addresses on one machine.
func front(t *testing.T, change ...func(*Config)) (*Proxy, string, *salt) {
	t.Helper()
	s := newSalt(t)
	cfg := Config{
		Frontends: []Frontend{{
			Name:      "front",
			Mode:      Request,
			Bind:      []string{"127.0.0.1:0"},
			ProxyFrom: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		}},
		Backends: []Backend{s.backend("a")},
		Health: Health{
			Inter:     50 * time.Millisecond,
			FastInter: 20 * time.Millisecond,
			DownInter: 20 * time.Millisecond,
		},
		Stop: 100 * time.Millisecond,
	}

	for _, f := range change {
		f(&cfg)
	}

	p, addr := start(t, cfg, func(p *Proxy) { p.tick = 10 * time.Millisecond })
	eventually(t, "master up", func() bool { return p.Status().Frontends[0].Serving })
	return p, addr, s
}

// client is a connection with its handshake done.
type client struct {
	net.Conn
	r *bufio.Reader
}

// from connects as a client at an address; "" is the balancer in front itself.
func from(addr, source string) (*client, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}

	head := []byte(proxyproto.Local)
	if source != "" {
		head = proxyproto.Append(nil, netip.AddrPortFrom(netip.MustParseAddr(source), 4711),
			netip.MustParseAddrPort("127.0.0.1:4506"))
	}

	c.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := c.Write(head); err == nil {
		r, err := hello(c, "REQ")
		if err == nil {
			return &client{c, r}, nil
		}
		c.Close()
		return nil, err
	}

	c.Close()
	return nil, errors.New("closed")
}

// ask sends a request and waits for the answer.
func (c *client) ask(text string) error {
	if _, err := c.Write(appendFrame(appendFrame(nil, flagMore, nil), 0, []byte(text))); err != nil {
		return err
	}
	_, err := readReply(c, c.r)
	return err
}

func mustAsk(t *testing.T, addr, source, text string) *client {
	t.Helper()
	c, err := from(addr, source)
	if err == nil {
		t.Cleanup(func() { c.Close() })
		err = c.ask(text)
	}
	if err != nil {
		t.Fatalf("%s from %q: %v", text, source, err)
	}
	return c
}

// TestFinding09OneStranger: one source opens as many connections as it can, each
// with a request that is answered in the clear. Sessions that exist, other
// sources, this machine and the health check go on.
func TestFinding09OneStranger(t *testing.T) {
	const sessions = 400
	p, addr, _ := front(t, func(c *Config) { c.Limits.Descriptors = reservedFDs + 2*sessions })
	minion := mustAsk(t, addr, "198.51.100.7", "sealed")
	pending := mustAsk(t, addr, "198.51.100.8", "_auth")
	in := 0
	for range 2 * sessions {
		c, err := from(addr, "203.0.113.9")
		if err != nil {
			continue
		}
		defer c.Close()

		if c.ask("ping") == nil {
			in++
		}
	}

	if in == 0 || in > sessions/2 {
		t.Errorf("one stranger holds %d of %d sessions", in, sessions)
	}

	if err := minion.ask("sealed"); err != nil {
		t.Errorf("session of a minion: %v", err)
	}

	if err := pending.ask("_auth"); err != nil {
		t.Errorf("session of another source: %v", err)
	}

	mustAsk(t, addr, "192.0.2.77", "_auth")
	mustAsk(t, addr, "2001:db8::1", "_auth")
	for range sessions / 5 { // minions come back behind one address
		mustAsk(t, addr, "198.51.100.7", "sealed")
	}

	mustAsk(t, addr, "", "ping")
	if st := p.Status(); st.Backends[0].Ports[0].State != Up || st.Backends[0].Ports[0].Failed != 0 {
		t.Errorf("%+v", st.Backends[0].Ports[0])
	}
}

// TestFinding09ManyStrangers: sources of which nothing is known cannot take what
// is kept for the others, and all of this is seen.
func TestFinding09ManyStrangers(t *testing.T) {
	const sessions = 200
	p, addr, _ := front(t, func(c *Config) { c.Limits.Descriptors = reservedFDs + 2*sessions })
	minion := mustAsk(t, addr, "198.51.100.7", "sealed")
	for i := range 2 * sessions { // each from another /64
		if c, err := from(addr, fmt.Sprintf("2001:db8:0:%x::1", i)); err == nil {
			defer c.Close()
		}
	}

	for range sessions / 10 {
		mustAsk(t, addr, "198.51.100.7", "sealed")
	}

	mustAsk(t, addr, "", "ping")
	if err := minion.ask("sealed"); err != nil {
		t.Error(err)
	}

	if _, err := from(addr, "203.0.113.1"); err == nil {
		t.Error("the reserve is open to everyone")
	}

	for range 40 {
		if c, err := from(addr, "2001:db8:0:1::2"); err == nil {
			defer c.Close()
		}
	}

	st := p.Status()
	if n := st.Frontends[0].Refused["reserve"]; n == 0 || st.Known != 1 {
		t.Errorf("%d refused for the reserve, %d known", n, st.Known)
	}

	var text strings.Builder
	if err := writeMetrics(&text, &st); err != nil ||
		!strings.Contains(text.String(), `saltern_lb_frontend_refused_total{frontend="front",reason="reserve"}`) ||
		!strings.Contains(text.String(), "saltern_lb_known_sources 1\n") {
		t.Error(text.String())
	}
}

// TestFinding09Shown: who is limited is in the status, with the address.
func TestFinding09Shown(t *testing.T) {
	p, addr, _ := front(t, func(c *Config) { c.Frontends[0].MaxPerSource = 3 })
	for range 5 {
		if c, err := from(addr, "2001:db8:0:7::5"); err == nil {
			defer c.Close()
		}
	}
	st := p.Status().Frontends[0]
	if len(st.Limited) != 1 || st.LimitedSources != 1 || st.Limited[0].Source != "2001:db8:0:7::/64" ||
		st.Limited[0].Refused != 2 || st.Limited[0].Sessions != 3 {
		t.Errorf("%+v", st)
	}
}

// TestFinding09Gateway: the default lets in thousands of minions behind one
// address at once, before anything is known of them.
func TestFinding09Gateway(t *testing.T) {
	s := newSources(&Frontend{}, true)
	gateway, now := netip.MustParseAddr("203.0.113.1"), int64(time.Hour)
	n := func(st standing, most int) (in int) {
		for range most {
			if s.admitSession(gateway, now, st) {
				in++
			}
		}
		return in
	}

	if in := n(standing{}, 9000); in != 9000 {
		t.Errorf("%d of 9000 let in", in)
	}

	now += int64(time.Minute)
	if in := n(standing{}, 30000); in != defaultBurst {
		t.Errorf("%d more within the burst", in)
	}

	now += int64(time.Minute)
	if in := n(standing{}, 30000); in != defaultPerSource-9000-defaultBurst {
		t.Errorf("%d more, at most %d in all", in, defaultPerSource)
	}

	now += int64(time.Minute)
	if in := n(standing{known: true}, 30000); in != 30000 {
		t.Errorf("known: %d of 30000", in)
	}

	if in := n(standing{local: true}, 300000); in != 300000 {
		t.Errorf("this machine: %d", in)
	}
}

// TestFinding09NothingProven: connections that never prove anything end; those
// of minions and of this machine stay.
func TestFinding09NothingProven(t *testing.T) {
	p, addr, _ := front(t, func(c *Config) {
		c.Connect.Unproven = 500 * time.Millisecond
		c.Connect.Handshake = 300 * time.Millisecond
	})

	minion := mustAsk(t, addr, "198.51.100.7", "sealed")
	quiet := mustAsk(t, addr, "198.51.100.7", "_auth") // another minion behind the same address
	own := mustAsk(t, addr, "", "ping")
	stranger := mustAsk(t, addr, "203.0.113.9", "ping")
	silent, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()

	if _, err := silent.Write(proxyproto.Append(nil, netip.MustParseAddrPort("203.0.113.9:1"),
		netip.MustParseAddrPort("127.0.0.1:2"))); err != nil {
		t.Fatal(err)
	}

	for who, c := range map[string]io.Reader{"stranger": stranger, "silent": silent} {
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: %v", who, err)
		}
	}

	if e := p.Status().Frontends[0].Ended; e["unproven"] != 1 || e["handshake-timeout"] != 1 {
		t.Errorf("%v", e)
	}

	for who, c := range map[string]*client{"minion": minion, "neighbour": quiet, "this machine": own} {
		if err := c.ask("ping"); err != nil {
			t.Errorf("%s: %v", who, err)
		}
	}
}

// TestFinding09FullMaster: a master that is at its bound closes new connections,
// and serves those it has. It is not dead, and nothing is cut.
func TestFinding09FullMaster(t *testing.T) {
	s := newSalt(t)
	var full atomic.Bool
	b := newFake(t, "127.0.0.1:0", func(c net.Conn) {
		if full.Load() {
			c.(*net.TCPConn).SetLinger(0)
			return
		}
		s.request(c)
	})

	p, addr, _ := front(t, func(c *Config) {
		c.Backends[0].RequestPort = b.addr.Port
		c.Rebalance.Off = true
	})

	minion := mustAsk(t, addr, "198.51.100.7", "sealed")
	full.Store(true)
	port := func() PortStatus { return p.Status().Backends[0].Ports[0] }
	before := port().Failed
	eventually(t, "checks fail", func() bool {
		if err := minion.ask("sealed"); err != nil {
			t.Fatalf("the session ended: %v", err)
		}

		for range 5 { // new ones find it full
			if c, err := from(addr, "203.0.113.9"); err == nil {
				c.Close()
			}
		}

		return port().Failed > before+5
	})

	if st := port(); st.State != Joining || st.Cuts != 0 || !strings.Contains(st.LastError, errFull.Error()) {
		t.Errorf("%+v", st)
	}

	full.Store(false)
	eventually(t, "up again", func() bool { return port().State == Up })
	if err := minion.ask("sealed"); err != nil {
		t.Error(err)
	}
}

// TestFinding09SealedAnswers: of the answers captured from masters of Salt those
// to encrypted requests prove a minion, and no other one.
func TestFinding09SealedAnswers(t *testing.T) {
	files, err := filepath.Glob("../master/testdata/wire/*_rep.bin")
	if err != nil || len(files) < 60 {
		t.Fatalf("%d captures, %v", len(files), err)
	}

	n := 0
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}

		// What is not sealed is a map, a text, or the one of the tcp transport.
		sealed := b[0] == 0xda
		if sealed {
			n++
		}

		if got := sealedAnswer(b, uint64(len(b))); got != sealed {
			t.Errorf("%s: %v", filepath.Base(f), got)
		}
	}

	if n < 30 {
		t.Errorf("%d sealed", n)
	}

	long := strings.Repeat("the master cannot store the key ", 5)
	for _, text := range []string{"", "\xda", "\xda\x00\x60", "\xda\x00" + string(rune(len(long)/2)) + long,
		"\xc5\x00\xa0" + long} {
		if sealedAnswer([]byte(text), 500) {
			t.Errorf("%q proves a minion", text)
		}
	}
}

// TestFinding09HandedOver: what is known survives a change of the process.
func TestFinding09HandedOver(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "admin")
	_, addr, _ := front(t, func(c *Config) { c.Admin.Socket = socket })
	mustAsk(t, addr, "198.51.100.7", "sealed")
	next, err := New(testConfig(Request), nil)
	if err != nil {
		t.Fatal(err)
	}
	next.adoptSettings(t.Context(), NewClient(socket))
	if a := netip.MustParseAddr("198.51.100.7"); !next.known.contains(a, next.clock()) ||
		next.known.contains(a, next.clock()+int64(knownFor)) {
		t.Errorf("%v", next.known.entries(next.clock()))
	}
}

// TestFinding09KnownIsBounded: addresses without end do not grow the table.
func TestFinding09KnownIsBounded(t *testing.T) {
	k := newKnown()
	k.limit = 100
	for i := range 1000 {
		k.add(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 1)
	}
	if k.count() != 100 {
		t.Errorf("%d entries", k.count())
	}
	k.forgetOld(int64(knownFor) + 2)
	if k.count() != 0 {
		t.Errorf("%d entries after a week", k.count())
	}
}

// FuzzSealedAnswer: whatever comes, a text never proves a minion.
func FuzzSealedAnswer(f *testing.F) {
	files, err := filepath.Glob("../master/testdata/wire/*_rep.bin")
	if err != nil || len(files) == 0 {
		f.Fatal("no captures")
	}

	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, uint64(len(b)))
	}

	f.Fuzz(func(t *testing.T, b []byte, size uint64) {
		if !sealedAnswer(b, size) {
			return
		}

		if size < 64 || len(b) < 26 {
			t.Errorf("%d of %d bytes prove a minion", len(b), size)
		}

		// The same head in front of plain text.
		if sealedAnswer(append([]byte{b[0], 'a', 'a', 'a', 'a'}, strings.Repeat("master is busy ", 5)...), size) {
			t.Errorf("a text behind %#x proves a minion", b[0])
		}
	})
}

// TestFinding09QuietSubscriber: a publish session of a source that is not known
// ends when it is old, as a cut, which a master tells from a minion that went.
func TestFinding09QuietSubscriber(t *testing.T) {
	ends := make(chan error, 8)
	pub := newFake(t, "127.0.0.1:0", func(c net.Conn) {
		r, err := hello(c, "PUB")
		if err != nil {
			return
		}

		_, err = r.ReadByte()
		if !errors.Is(err, io.EOF) { // checks go by themselves
			ends <- err
		}
	})

	_, addr, _ := front(t, func(c *Config) {
		c.Frontends[0].Mode, c.Backends[0].PublishPort = Publish, pub.addr.Port
		c.Connect.Unproven = 20 * time.Millisecond
		c.Rebalance.Quiet = time.Millisecond
		c.Rebalance.Off = true
	})

	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	c.Write(proxyproto.Append(nil, netip.MustParseAddrPort("203.0.113.9:1"), netip.MustParseAddrPort("127.0.0.1:2")))
	if _, err := hello(c, "SUB"); err != nil {
		t.Fatal(err)
	}

	if err := <-ends; !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the master sees %v", err)
	}
}
