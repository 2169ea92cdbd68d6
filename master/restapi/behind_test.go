package restapi

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/internal/proxyproto"
	"saltern/internal/ratelimit"
	"saltern/master/conf"
	"saltern/master/value"
	"saltern/test/await"
)

// serving runs salt-api for a master of which there is only the folder of its sockets.
func serving(t *testing.T, o Options, sockets string) (s *Server, addr string) {
	t.Helper()
	s, err := New(&conf.Master{
		Raw:   value.NewMap(),
		Paths: conf.Paths{SockDir: sockets, TokenDir: filepath.Join(sockets, "tokens")},
	},
		o, slog.New(slog.DiscardHandler), os.Getenv)
	if err != nil {
		t.Fatal(err)
	}

	ln, err := s.Listen()
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := s.Serve(ctx, ln); err != nil {
			t.Error(err)
		}
	})

	t.Cleanup(func() { cancel(); done.Wait(); s.Close() })
	return s, ln.Addr().String()
}

// behindServer runs salt-api for the load balancers that a file names. authorized_ips permits one
// client.
func behindServer(t *testing.T) (s *Server, addr, file string) {
	t.Helper()
	dir := t.TempDir()
	o, _, err := read(t, "{port: 1, disable_ssl: true, authorized_ips: [203.0.113.9]}")
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(dir, "balancers")
	o.Behind, o.Balancers = "127.0.0.1:0", file
	s, addr = serving(t, o, dir)
	return s, addr, file
}

func name(t *testing.T, file string, balancers ...string) {
	t.Helper()
	if err := os.WriteFile(file+".new", []byte(strings.Join(balancers, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// get sends a request from an address of this machine, with a header before the request. The code
// is 0 if the connection was closed without an answer.
func get(t *testing.T, addr, from, header, path string) int {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = fmt.Fprintf(c, "%sGET %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", header, path)
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		if ne, ok := err.(net.Error); ok && ne.Timeout() {
			t.Errorf("%s, %q: the connection stays", from, header)
		}
		return 0
	}

	res.Body.Close()
	return res.StatusCode
}

func headerOf(client string) string {
	return string(proxyproto.Append(nil, netip.MustParseAddrPort(client), netip.MustParseAddrPort("127.0.0.1:8000")))
}

// TestAttack50Strangers: a sender that is no load balancer gets no answer on the load balancers'
// port, with a PROXY header or without, and cannot use another address. The load balancers are
// those that the file names at that moment.
func TestAttack50Strangers(t *testing.T) {
	s, addr, file := behindServer(t)
	good := headerOf("203.0.113.9:4711")
	try := func(from, header string, want int) {
		t.Helper()
		if got := get(t, addr, from, header, "/"); got != want {
			t.Errorf("%s, %.40q: %d, want %d", from, header, got, want)
		}
	}

	try("127.0.0.2", good, 0) // no file yet
	name(t, file, "127.0.0.2/32", "fd00::1/128")
	for _, header := range []string{good, "", proxyproto.Local, "PROXY TCP4 203.0.113.9 127.0.0.1 1 2\r\n"} {
		try("127.0.0.1", header, 0)
	}

	if n := s.count.refused.Load(); n != 5 {
		t.Errorf("%d refused", n)
	}

	try("127.0.0.2", good, http.StatusOK)
	try("127.0.0.2", headerOf("198.51.100.1:4711"), http.StatusForbidden)
	try("127.0.0.2", proxyproto.Local, http.StatusForbidden) // the balancer is no client
	name(t, file, "127.0.0.3/32", "nonsense")
	try("127.0.0.2", good, 0)
	try("127.0.0.3", good, http.StatusOK)
}

// TestAttack50Headers: a wrong header of a load balancer ends its connection, and no other
// connection waits for one without a header.
func TestAttack50Headers(t *testing.T) {
	_, addr, file := behindServer(t)
	name(t, file, "127.0.0.2/32")
	good := headerOf("203.0.113.9:4711")
	for what, header := range map[string]string{
		"none": "", "version 1": "PROXY TCP4 203.0.113.9 127.0.0.1 1 2\r\n", "half": good[:20], "twice": good + good,
		"huge": proxyproto.Signature + "\x21\x11\xff\xff", "command": proxyproto.Signature +
			"\x22\x11\x00\x0c" + good[16:],
	} {
		if got := get(t, addr, "127.0.0.2", header, "/"); got != 0 && got != http.StatusBadRequest {
			t.Errorf("%s: %d", what, got)
		}
	}

	c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.2")}}).Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	_ = c.SetDeadline(time.Now().Add(3 * headerTime))
	if n, err := c.Read(make([]byte, 1)); n != 0 || os.IsTimeout(err) {
		t.Errorf("a silent connection: %d, %v", n, err)
	}
}

// TestReadyz: load balancers learn whether the master serves, whoever else asks. The files that a
// killed master leaves do not count as a sign of life (F4). If strangers have used up their share,
// salt-api still counts as ready.
func TestReadyz(t *testing.T) {
	s, addr, file := behindServer(t)
	name(t, file, "127.0.0.1/32")
	try := func(what string, want int) {
		t.Helper()
		if got := get(t, addr, "127.0.0.1", proxyproto.Local, "/readyz"); got != want {
			t.Errorf("%s: %d, want %d", what, got, want)
		}
	}

	try("without a master", http.StatusServiceUnavailable)
	if err := os.WriteFile(filepath.Join(s.master.SockDir, "workers.ipc"), nil, 0o600); err != nil {
		t.Fatal(err)
	}

	s.life.answered = time.Time{}
	try("with what a dead one has left", http.StatusServiceUnavailable)

	s.life.stop()
	s.life = newLife(func(context.Context) error { return nil }, time.Now)
	try("with a master", http.StatusOK)
	for i := range 1000 {
		from := holder{from: netip.AddrFrom4([4]byte{203, 0, byte(i >> 8), byte(i)})}
		for _, p := range []*pool{s.pools.requests, s.pools.workers, s.pools.logins, s.pools.proofs} {
			for p.Take(from, ratelimit.Stranger, 1) != nil {
				continue
			}
		}
		s.pools.memory.Take(from, ratelimit.Stranger, 1<<20)
	}

	try("with strangers everywhere", http.StatusOK)
	for i := range 10 {
		for s.pools.workers.Take(holder{name: fmt.Sprint(i)}, ratelimit.Proven, 1) != nil {
			continue
		}
	}

	try("with all workers busy", http.StatusOK) // there is a place to wait
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	for i := range 10 {
		for range s.opts.Queue {
			waiting.Go(func() { _, _ = s.pools.workers.Wait(ctx, holder{name: fmt.Sprint(i)}, ratelimit.Proven, 1) })
		}
	}

	await.That(t, "a full line", func() bool { return s.pools.workers.Full(ratelimit.Proven, 1) })
	try("with a full line", http.StatusServiceUnavailable)
	cancel()
	waiting.Wait()

	if n := s.count.requests.Load(); n != 0 {
		t.Errorf("checks count as %d requests", n)
	}
}

// TestBehind: salt-api is behind the load balancer unless the section names another
// host or port.
func TestBehind(t *testing.T) {
	const given = "\nsaltern_api: {host: '::', port: 8000, behind: '10.0.0.1:14507', balancers: /b}"
	for section, want := range map[string]bool{
		"null": true, "{debug: true}": true, "{port: 8000}": true, "{host: 0.0.0.0}": true, "{host: '::', port: 8000}": true,
		"{port: 8001}": false, "{host: 10.0.0.5}": false, "{host: 127.0.0.1, port: 8000}": false, "{host: localhost}": false,
	} {
		o, _, err := read(t, strings.Replace(section+given, "null\n", "{disable_ssl: true}\n", 1))
		if err != nil && !strings.Contains(err.Error(), "ssl_") {
			t.Errorf("%s: %v", section, err)
		}

		if (o.Behind == "10.0.0.1:14507" && o.Balancers == "/b") != want ||
			(o.Behind == "" && o.Balancers == "") == want {
			t.Errorf("%s: %q %q", section, o.Behind, o.Balancers)
		}
	}

	if o, _, _ := read(t, "{port: 8000, behind: '0.0.0.0:1', balancers: /x, disable_ssl: true}"); o.Behind != "" {
		t.Error("a section can say it by itself")
	}
}
