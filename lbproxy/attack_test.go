package lbproxy

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"saltern/internal/proxyproto"
	"saltern/test/await"
)

// TestAttack20ManyStrangers: 600 connections in all the ways in which one
// can be a burden to the proxy itself. A minion is served all the time, memory
// and what waits stay within the bounds, and in the end nothing is left.
func TestAttack20ManyStrangers(t *testing.T) {
	const each, lasts = 100, 3 * time.Second
	p, addr, _ := front(t, func(c *Config) {
		c.Limits.Pending = 8 << 20
		c.Frontends[0].Stall = 2 * time.Second
		c.Connect.Header = time.Second
	})

	minion := mustAsk(t, addr, "198.51.100.7", "sealed")
	before := fds(t)
	var conns []net.Conn
	var mu sync.Mutex
	raw := func() net.Conn {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Error(err)
			return nil
		}

		mu.Lock()
		conns = append(conns, c)
		mu.Unlock()
		return c
	}

	stop := make(chan struct{})
	var wg sync.WaitGroup
	head := func(i int) []byte {
		return proxyproto.Append(nil, netip.AddrPortFrom(netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}), 1),
			netip.MustParseAddrPort("127.0.0.1:2"))
	}

	hand := appendFrame(greeting(), flagCommand, appendReady(nil, "REQ"))
	request := func(text string) []byte { return appendFrame(appendFrame(nil, flagMore, nil), 0, []byte(text)) }
	again := func(c net.Conn, b []byte, pause time.Duration) { // until the end, or until it is cut
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(pause):
				}

				if _, err := c.Write(b); err != nil {
					return
				}
			}
		})
	}

	for i := range each {
		for kind := range 6 {
			c := raw()
			if c == nil {
				continue
			}

			switch kind {
			case 0: // a PROXY header that never ends
				c.Write([]byte(proxyproto.Signature + "\x21\x11\x04\x00")[:14+i%2])
			case 1: // silent
				c.Write(head(i))
			case 2: // a byte now and then, of a frame that is said to be endless
				c.Write(append(append(head(i), hand...), "\x02\x3f\xff\xff\xff\xff\xff\xff\xff"...))
				again(c, []byte("x"), 20*time.Millisecond)
			case 3: // asks for much and reads nothing
				c.Write(append(append(head(i), hand...), bytes.Repeat(request("big"), 32)...))
			case 4: // small requests one after the other, answers unread
				c.Write(append(head(i), hand...))
				again(c, bytes.Repeat(request("ping"), 20), 20*time.Millisecond)
			case 5: // half closed
				c.Write(append(append(head(i), hand...), request("ping")...))
				c.(*net.TCPConn).CloseWrite()
			}
		}
	}

	var worst time.Duration
	asked, pending := 0, int64(0)
	await.Holds(t, lasts, "a minion is served", func() bool {
		began := time.Now()
		if err := minion.ask("sealed"); err != nil {
			t.Errorf("after %d requests: %v", asked, err)
			return false
		}

		asked++
		worst, pending = max(worst, time.Since(began)), max(pending, p.Status().Pending)
		return true
	})

	t.Logf("%d requests, the worst took %v; at most %d KiB held; %v", asked, worst, pending>>10,
		p.Status().Frontends[0].Ended)
	if worst > 10*time.Second { // it takes some tens of milliseconds
		t.Errorf("a minion waited %v", worst)
	}

	if pending > 8<<20 {
		t.Errorf("%d bytes held", pending)
	}

	eventually(t, "headers that did not come",
		func() bool { return p.Status().Frontends[0].Ended["header-timeout"] >= each })
	close(stop)
	for _, c := range conns {
		c.Close()
	}

	wg.Wait()
	eventually(t, "nothing is left", func() bool {
		st := p.Status() // a session is counted out a moment before what it held
		return st.Sessions == 1 && st.Pending == 0 && fds(t) <= before+2*pipesMax+8
	})
}

// TestFinding08Proxy: a stranger's connections do not fill the log; those of
// minions are all in it.
func TestFinding08Proxy(t *testing.T) {
	var lines countingWriter
	s := newSalt(t)
	cfg := Config{
		Frontends: []Frontend{{
			Name:      "front",
			Mode:      Request,
			Bind:      []string{"127.0.0.1:0"},
			ProxyFrom: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		}},
		Backends: []Backend{s.backend("a")},
	}

	began := time.Now()
	_, addr := start(t, cfg, func(p *Proxy) { p.sessionLog.log = slog.New(slog.NewTextHandler(&lines, nil)) })
	mustAsk(t, addr, "198.51.100.7", "sealed")
	for range strangeBurst + 500 {
		if c, err := net.Dial("tcp", addr); err == nil {
			c.Write(proxyproto.Append(nil, netip.MustParseAddrPort("203.0.113.9:1"),
				netip.MustParseAddrPort("127.0.0.1:2")))
			c.(*net.TCPConn).CloseWrite()
			io.Copy(io.Discard, c)
			c.Close()
		}
	}

	for range 20 {
		c := mustAsk(t, addr, "198.51.100.7", "ping")
		c.Close()
	}

	eventually(t, "minions are in the log", func() bool { return lines.minions.Load() >= 20 })
	most := strangeBurst + int64(strangeRate*time.Since(began).Seconds()) + 1
	if n := lines.strangers.Load(); n < strangeBurst || n > most {
		t.Errorf("%d lines about a stranger", n)
	}
}

// countingWriter counts lines by whom they are about.
type countingWriter struct{ minions, strangers atomic.Int64 }

func (w *countingWriter) Write(b []byte) (int, error) {
	for line := range bytes.Lines(b) {
		switch {
		case bytes.Contains(line, []byte("client=198.51.100.7")):
			w.minions.Add(1)
		case bytes.Contains(line, []byte("client=203.0.113.9")):
			w.strangers.Add(1)
		}
	}
	return len(b), nil
}
