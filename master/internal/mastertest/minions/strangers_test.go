package minions

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/master/internal/local"
	"saltern/master/internal/mastertest"
	"saltern/master/value"
	"saltern/test/check"
)

// Findings of an audit about those who have proved nothing. The strangers and the
// minions come through a load balancer, each from a source of its own.
const behindBalancer = "saltern_proxy_from: 127.0.0.0/8\n"

var strangerAt = netip.MustParseAddrPort("203.0.113.9:1000")

// proxyHeader is the PROXY header, version 2, of a connection from src.
func proxyHeader(src netip.AddrPort) []byte {
	b := []byte("\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c")
	b = append(b, src.Addr().AsSlice()...)
	b = append(b, 192, 0, 2, 1)
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, src.Port()), 4506)
}

// throughBalancer returns the same master as it is reached through a load balancer by src.
func throughBalancer(r *mastertest.Master, src string) *mastertest.Master {
	t := r.T
	t.Helper()
	a := netip.MustParseAddr(src)
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	check.Must(t, err)
	var wg sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	keep := func(c net.Conn) bool {
		mu.Lock()
		defer mu.Unlock()
		if open == nil {
			_ = c.Close()
			return false
		}

		open[c] = true
		return true
	}

	wg.Go(func() {
		for port := uint16(2000); ; port++ {
			in, err := ln.Accept()
			if err != nil {
				return
			}

			out, err := net.Dial("tcp4", r.RequestAddress)
			if err != nil || !keep(in) || !keep(out) {
				_ = in.Close()
				continue
			}

			_, _ = out.Write(proxyHeader(netip.AddrPortFrom(a, port)))
			wg.Go(func() { _, _ = io.Copy(out, in); _ = out.Close() })
			wg.Go(func() { _, _ = io.Copy(in, out); _ = in.Close() })
		}
	})

	t.Cleanup(func() {
		_ = ln.Close()
		mu.Lock()
		for c := range open {
			_ = c.Close()
		}

		open = nil
		mu.Unlock()
		wg.Wait()
	})

	c := *r
	c.RequestAddress = ln.Addr().String()
	return &c
}

// dialStranger opens a connection past the handshake of ZMTP 3.0.
func dialStranger(r *mastertest.Master, src netip.AddrPort) net.Conn {
	t := r.T
	t.Helper()
	c, err := net.Dial("tcp4", r.RequestAddress)
	check.Must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	greeting := make([]byte, 64)
	copy(greeting, "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00NULL")
	_, err = c.Write(slices.Concat(proxyHeader(src), greeting,
		[]byte("\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03REQ")))
	check.Must(t, err)
	return c
}

// frame is the start of a request whose last frame has size bytes.
func frame(size int) []byte {
	return binary.BigEndian.AppendUint64([]byte{1, 0, 2}, uint64(size))
}

// request is a whole request.
func requestOf(payload []byte) []byte { return append(frame(len(payload)), payload...) }

// sendBigReturn sends a return of 200 KiB by a new connection, as minions do.
func sendBigReturn(n *mastertest.Minion, t *testing.T) time.Duration {
	t.Helper()
	n.HangUp()
	start := time.Now()
	l := n.Load("_return", "jid", attackJID, "fun", "test.echo", "fun_args", []any{}, "retcode", 0,
		"success", true, "return", strings.Repeat("x", 200<<10))
	b, err := n.Send(n.Payload(l))
	if err != nil {
		t.Fatalf("a return of 200 KiB is not taken: %v", err)
	}
	if _, sealed := n.Open(b, l.Str("nonce")); !sealed {
		t.Fatalf("a return of 200 KiB is refused: %.80q", b)
	}
	return time.Since(start)
}

// peak watches the heap until it is asked.
func peak() func() uint64 {
	stop, done := make(chan struct{}), make(chan struct{})
	var most uint64
	go func() {
		defer close(done)
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapInuse)
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()

	return func() uint64 { close(stop); <-done; return most }
}

// TestFinding02Decoding: what a stranger sends does not multiply in memory.
func TestFinding02Decoding(t *testing.T) {
	r := mastertest.Start(t, behindBalancer)
	honest := throughBalancer(r, "198.51.100.7").AcceptedMinion("min1", "min6")
	r.ListenToBus()
	lists := slices.Concat([]byte("\x83\xa3enc\xa5clear\xa7version\x03\xa4load\x82\xa3cmd\xa3foo\xa1x\xdd\x00\x1b\x77\x40"),
		bytes.Repeat([]byte{0x90}, 1800000))
	small := slices.Concat([]byte("\x83\xa3enc\xa5clear\xa7version\x03\xa4load\x82\xa3cmd\xa3foo\xa1x\xdc\xe2\x90"),
		bytes.Repeat([]byte{0x80}, 58000))
	runtime.GC()
	most := peak()
	var wg sync.WaitGroup
	for i, payload := range slices.Repeat([][]byte{requestOf(lists), requestOf(small)}, 25) {
		c := dialStranger(r, netip.AddrPortFrom(strangerAt.Addr(), uint16(i)))
		wg.Go(func() {
			_ = c.SetDeadline(time.Now().Add(30 * time.Second))
			_, _ = c.Write(payload)
			_, _ = io.CopyN(io.Discard, c, 120) // its READY and a refusal, or the end
		})
	}

	sendBigReturn(honest, t)
	wg.Wait()
	if got := most(); got > 450<<20 {
		t.Errorf("46 MB of a stranger took %d MiB", got>>20)
	}
}

// TestFinding06Claims: what is announced and does not come keeps nobody out, nor does
// what comes in parts.
func TestFinding06Claims(t *testing.T) {
	r := mastertest.Start(t, behindBalancer)
	proven := throughBalancer(r, "198.51.100.7").AcceptedMinion("min1", "min6")
	sendBigReturn(proven, t)
	fresh := throughBalancer(r, "198.51.100.8").AcceptedMinion("min2", "min7")
	var held []net.Conn
	for i := range 300 {
		c := dialStranger(r, netip.AddrPortFrom(strangerAt.Addr(), uint16(i)))
		_, err := c.Write(frame(1 << 20))
		check.Must(t, err)
		held = append(held, c)
	}

	part := make([]byte, 200<<10)
	for _, c := range held {
		_ = c.SetWriteDeadline(time.Now().Add(5 * time.Second))
		_, _ = c.Write(part) // 60 MB in all
	}

	for _, n := range []*mastertest.Minion{proven, fresh} {
		sendBigReturn(n, t)
	}
}

// TestFinding07Ping: an echo is small, and a slow reader holds nothing.
func TestFinding07Ping(t *testing.T) {
	r := mastertest.Start(t, behindBalancer)
	for name, c := range map[string]struct {
		load *value.Map
		want string
	}{
		"a health check": {value.NewMap("cmd", "ping"), "map[cmd:ping]"},
		"a tool's":       {value.NewMap("cmd", "ping", "id", "x", "n", 1), "map[cmd:ping id:x n:1]"},
		"large":          {value.NewMap("cmd", "ping", "x", strings.Repeat("x", 200<<10)), "map[cmd:ping]"},
		"deep":           {value.NewMap("cmd", "ping", "x", []any{[]any{}}), "map[cmd:ping]"},
	} {
		got := throughBalancer(r, "203.0.113.9").AskValue(value.NewMap("enc", "clear", "load", c.load, "version", 3))
		m, _ := got.(*value.Map)
		plain := map[string]any{}
		for k, v := range m.All() {
			plain[k.(string)] = v
		}

		if s := fmt.Sprint(plain); s != c.want {
			t.Errorf("%s: %.100s", name, s)
		}
	}
}

// TestFinding08Logs: a stranger's lines are few, whatever he asks for.
func TestFinding08Logs(t *testing.T) {
	r := mastertest.Start(t, behindBalancer)
	s := throughBalancer(r, "203.0.113.9")
	before := len(r.Log.String())
	long := strings.Repeat("\x01", 10<<10)
	for i := range 300 {
		for _, load := range []*value.Map{
			value.NewMap("cmd", "publish", "user", long, "key", "x", "fun", "test.ping", "tgt", "*", "arg", []any{}),
			value.NewMap("cmd", "mk_token", "eauth", long, "username", long, "password", "x"),
			value.NewMap("cmd", "_auth", "id", fmt.Sprintf("new%d", i), "sig_algo", long, "pub", "x",
				"nonce", mastertest.NewNonce()),
			value.NewMap("cmd", "runner", "fun", long, "user", long),
			value.NewMap("cmd", fmt.Sprint("no such command ", i)),
		} {
			_, _ = s.AskRaw(mastertest.Pack(t, value.NewMap("enc", "clear", "load", load, "version", 3)))
		}
	}

	lines := slices.DeleteFunc(strings.Split(r.Log.String()[before:], "\n"),
		func(l string) bool { return l == "" || strings.Contains(l, "level=DEBUG") })
	if len(lines) > 700 {
		kinds := map[string]int{}
		for _, l := range lines {
			_, l, _ = strings.Cut(l, "level=")
			kinds[l[:min(len(l), 60)]]++
		}
		t.Errorf("1500 requests of a stranger made %d lines: %v", len(lines), kinds)
	}
}

// TestFinding02Known: whoever has the master's key is not bound as strangers are.
func TestFinding02Known(t *testing.T) {
	r := mastertest.Start(t, behindBalancer)
	ids := make([]any, 20000)
	for i := range ids {
		ids[i] = fmt.Sprintf("minion-%d.example.com", i)
	}

	ask := func(key string) *value.Map {
		load := value.NewMap("cmd", "publish", "tgt", ids, "tgt_type", "list", "fun", "test.ping", "arg",
			[]any{}, "key", key, "user", local.CurrentUser(), "ret", "", "jid", "")
		m, _ := throughBalancer(r, "203.0.113.9").AskValue(value.NewMap("enc", "clear", "load", load, "version", 3)).(*value.Map)
		return m
	}

	key, err := os.ReadFile(r.Path("cache", "."+local.CurrentUser()+"_key"))
	check.Must(t, err)
	if got := ask(string(key)).Map("load"); got == nil || !strings.Contains(got.Str("error"), "could not resolve") {
		t.Errorf("with the key: %v", got)
	}

	if got := ask("wrong"); got.Map("error").Str("name") != "AuthenticationError" {
		t.Errorf("without it: %v", got)
	}
}
