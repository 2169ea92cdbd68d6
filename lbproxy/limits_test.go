package lbproxy

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"saltern/internal/proxyproto"
	"saltern/test/await"
)

func TestIdleLimits(t *testing.T) {
	t.Parallel()
	b := newFake(t, "127.0.0.1:0", echo)
	t.Run("request frontend", func(t *testing.T) {
		cfg := testConfig(Request, b)
		cfg.Frontends[0].Idle = time.Second
		p, addr := start(t, cfg, func(p *Proxy) { p.tick = 10 * time.Millisecond })
		idle, busy := dial(t, addr), dial(t, addr)
		ask(t, idle, "x")
		gone := make(chan error, 1)
		go func() { _, err := idle.Read(make([]byte, 1)); gone <- err }()

		for cut := false; !cut; {
			ask(t, busy, "x")
			select {
			case err := <-gone:
				cut = true
				if err == nil {
					t.Error("idle session was told something")
				}
			case <-time.After(20 * time.Millisecond):
			}
		}

		ask(t, busy, "x")
		if e := p.Status().Frontends[0].Ended; e["idle"] != 1 {
			t.Errorf("%v", e)
		}
	})

	t.Run("not while a request is outstanding", func(t *testing.T) {
		slow := newFake(t, "127.0.0.1:0", func(c net.Conn) {
			buf := make([]byte, 1)
			if _, err := io.ReadFull(c, buf); err == nil {
				time.Sleep(700 * time.Millisecond)
				c.Write(buf)
				io.Copy(io.Discard, c)
			}
		})

		cfg := testConfig(Request, slow)
		cfg.Frontends[0].Idle = 100 * time.Millisecond
		_, addr := start(t, cfg, func(p *Proxy) { p.tick = 10 * time.Millisecond })
		ask(t, dial(t, addr), "x")
	})

	t.Run("never on a publish frontend", func(t *testing.T) {
		cfg := testConfig(Publish, b)
		p, addr := start(t, cfg, func(p *Proxy) { p.tick = 5 * time.Millisecond })
		c := dial(t, addr)
		ask(t, c, "x")
		await.Holds(t, 400*time.Millisecond, "the session", func() bool { return p.Status().Sessions == 1 })
		ask(t, c, "x")
	})

	t.Run("half-closed", func(t *testing.T) {
		deaf := newFake(t, "127.0.0.1:0", func(c net.Conn) { io.Copy(io.Discard, c); <-t.Context().Done() })
		cfg := testConfig(Publish, deaf)
		cfg.Frontends[0].HalfClosed = 200 * time.Millisecond
		p, addr := start(t, cfg, func(p *Proxy) { p.tick = 10 * time.Millisecond })
		c := dial(t, addr)
		c.CloseWrite()
		eventually(t, "cut", func() bool { return p.Status().Frontends[0].Ended["half-closed"] == 1 })
	})
}

// TestAttack20SilentClients: clients that connect and say nothing cost two
// descriptors each and no memory worth mentioning, and nobody else waits.
func TestAttack20SilentClients(t *testing.T) {
	b := newFake(t, "127.0.0.1:0", echo)
	p, addr := start(t, testConfig(Request, b))
	for range 500 {
		dial(t, addr)
	}
	ask(t, dial(t, addr), "x")
	if st := p.Status(); st.Pending != 0 {
		t.Errorf("%d bytes held", st.Pending)
	}
}

// TestAttack34Spoof: a PROXY header counts only from the configured balancers.
func TestAttack34Spoof(t *testing.T) {
	got := make(chan string, 16)
	b := newFake(t, "127.0.0.1:0", func(c net.Conn) {
		c.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
		buf, _ := io.ReadAll(c)
		if len(buf) > 16 { // a check sends less
			got <- string(buf)
		}
	})

	spoof := string(proxyproto.Append(nil, netip.MustParseAddrPort("203.0.113.9:99"),
		netip.MustParseAddrPort("127.0.0.1:4506")))
	send := func(t *testing.T, addr, text string) {
		c := dial(t, addr)
		for i := range text { // byte by byte: headers come in any pieces
			if _, err := io.WriteString(c, text[i:i+1]); err != nil {
				break
			}
		}

		c.CloseWrite()
		io.Copy(io.Discard, c)
	}

	t.Run("from a stranger it is payload", func(t *testing.T) {
		_, addr := start(t, testConfig(Request, b))
		send(t, addr, spoof+"payload")
		if s := <-got; s != spoof+"payload" {
			t.Errorf("backend got %q", s)
		}
	})

	t.Run("from a balancer it is taken, and passed on", func(t *testing.T) {
		cfg := testConfig(Request, b)
		cfg.Frontends[0].ProxyFrom = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		cfg.Backends[0].ProxyV2 = true
		p, addr := start(t, cfg)
		send(t, addr, spoof+"payload")
		s := <-got
		if len(s) < 28 {
			t.Fatalf("backend got %q", s)
		}

		ap, err := proxyproto.Parse([]byte(s[:28]))
		if err != nil || ap.String() != "203.0.113.9:99" || s[28:] != "payload" {
			t.Errorf("%v %v %q", ap, err, s)
		}

		send(t, addr, "no header at all, but long enough")
		eventually(t, "refused", func() bool { return p.Status().Frontends[0].Ended["bad-header"] == 1 })
	})

	t.Run("deny applies to the address in the header", func(t *testing.T) {
		cfg := testConfig(Request, b)
		cfg.Frontends[0].ProxyFrom = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		cfg.Frontends[0].Deny = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}
		p, addr := start(t, cfg)
		send(t, addr, spoof+"payload")
		eventually(t, "refused", func() bool { return p.Status().Frontends[0].Ended["bad-header"] == 1 })
	})

	t.Run("a header that does not come", func(t *testing.T) {
		cfg := testConfig(Request, b)
		cfg.Frontends[0].ProxyFrom = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		cfg.Connect.Header = 100 * time.Millisecond
		p, addr := start(t, cfg)
		dial(t, addr)
		eventually(t, "refused", func() bool { return p.Status().Frontends[0].Ended["header-timeout"] == 1 })
	})
}

func TestSourceLimits(t *testing.T) {
	t.Parallel()
	b := newFake(t, "127.0.0.1:0", echo)
	refused := func(t *testing.T, cfg Config, n int, why string) {
		p, addr := start(t, cfg)
		for range n {
			ask(t, dial(t, addr), "x")
		}

		if _, err := dial(t, addr).Read(make([]byte, 1)); err == nil {
			t.Error("served")
		}

		if p.Status().Frontends[0].Refused[why] != 1 {
			t.Errorf("%v", p.Status().Frontends[0].Refused)
		}
	}

	cfg := func() Config { return testConfig(Request, b) }
	t.Run("deny", func(t *testing.T) {
		c := cfg()
		c.Frontends[0].Deny = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		refused(t, c, 0, "acl")
	})

	t.Run("allow", func(t *testing.T) {
		c := cfg()
		c.Frontends[0].Allow = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
		refused(t, c, 0, "acl")
	})

	t.Run("max sessions", func(t *testing.T) {
		c := cfg()
		c.Frontends[0].MaxSessions = 2
		refused(t, c, 2, "max-sessions")
	})

	t.Run("max per source", func(t *testing.T) {
		c := cfg()
		c.Frontends[0].MaxPerSource = 3
		refused(t, c, 3, "source-limit")
	})

	t.Run("rate", func(t *testing.T) {
		c := cfg()
		c.Frontends[0].Rate, c.Frontends[0].Burst = 0.01, 4
		refused(t, c, 4, "source-limit")
	})
}

// TestSocketOptions: what is set on the listener holds for accepted sockets.
func TestSocketOptions(t *testing.T) {
	t.Parallel()
	b := newFake(t, "127.0.0.1:0", echo)
	p, addr := start(t, testConfig(Publish, b))
	ask(t, dial(t, addr), "x")
	l := p.allLoops()[0]
	eventually(t, "the backend side follows after a second", func() (tuned bool) {
		l.runAndWait(func() { l.eachOpen(func(s *session) { tuned = s.keepaliveSet }) })
		return tuned
	})

	l.runAndWait(func() {
		l.eachOpen(func(s *session) {
			for side, fd := range s.fd {
				for _, o := range []struct{ level, name, want int }{
					{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1}, {unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
					{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 60}, {unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 15},
					{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 3}, {unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 90000},
				} {
					if v, err := unix.GetsockoptInt(int(fd), o.level, o.name); err != nil || v != o.want {
						t.Errorf("side %d option %d: %d, %v; want %d", side, o.name, v, err, o.want)
					}
				}
			}
		})
	})
}
