package zmtp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"saltern/test/await"
)

// patience is how long a test waits for an expected event.
const patience = 20 * time.Second

func vector(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "testdata", "wire", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

func withTimeout(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func echo(_ context.Context, _ Peer, b []byte) ([]byte, bool) { return bytes.Clone(b), true }

func router(t testing.TB, cfg RouterConfig) *Router {
	t.Helper()
	if cfg.Handler == nil {
		cfg.Handler = echo
	}
	r, err := ListenRouter(context.Background(), listen(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func publisher(t testing.TB, cfg PubConfig) *Pub {
	t.Helper()
	p := ListenPub(context.Background(), listen(t), cfg)
	t.Cleanup(p.Close)
	return p
}

func dialReq(t testing.TB, a net.Addr) *Req {
	t.Helper()
	r, err := DialReq(withTimeout(t), a.String(), DialConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func dialSub(t testing.TB, a net.Addr, topics ...string) *Sub {
	t.Helper()
	s, err := DialSub(withTimeout(t), a.String(), DialConfig{}, topics...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func wantEcho(t testing.TB, r *Req, payload string) {
	t.Helper()
	b, err := r.Do(withTimeout(t), []byte(payload))
	if err != nil || string(b) != payload {
		t.Fatalf("answer %q, %v; want %q", b, err, payload)
	}
}

// eventually waits until ok returns true.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	await.That(t, what, ok)
}

// subscribed waits until a Pub has n connections that have subscribed.
func subscribed(t testing.TB, p *Pub, n int) {
	t.Helper()
	eventually(t, "subscribers", func() bool {
		have := 0
		for _, s := range p.Subscribers() {
			if len(s.Topics) > 0 {
				have++
			}
		}
		return have == n
	})
}

// raw is a peer whose bytes the test writes itself.
type raw struct {
	t testing.TB
	net.Conn
	in *bufio.Reader
}

func dialRaw(t testing.TB, a net.Addr) *raw {
	t.Helper()
	c, err := net.Dial("tcp", a.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return &raw{t, c, bufio.NewReader(c)}
}

// shake connects as a peer of the given type and completes the handshake.
func shake(t testing.TB, a net.Addr, socketType string) *raw {
	t.Helper()
	r := dialRaw(t, a)
	r.send(appendReady(greeting(), socketType, ""))
	r.welcome()
	return r
}

// welcome reads the server's greeting and READY.
func (r *raw) welcome() {
	r.t.Helper()
	g := make([]byte, greetingSize)
	if _, err := io.ReadFull(r.in, g); err != nil {
		r.t.Fatalf("no greeting: %v", err)
	}
	if h, _ := r.frame(); !h.command {
		r.t.Fatal("no READY")
	}
}

func (r *raw) send(b []byte) {
	r.t.Helper()
	if _, err := r.Write(b); err != nil {
		r.t.Fatalf("send: %v", err)
	}
}

func (r *raw) frame() (header, []byte) {
	r.t.Helper()
	h, b, err := r.tryFrame()
	if err != nil {
		r.t.Fatalf("read frame: %v", err)
	}
	return h, b
}

func (r *raw) tryFrame() (h header, b []byte, err error) {
	head, err := r.in.Peek(2)
	if err != nil {
		return h, nil, err
	}

	n := 2
	h.more = head[0]&flagMore != 0
	h.command = head[0]&flagCommand != 0
	h.size = uint64(head[1])
	if head[0]&flagLong != 0 {
		if head, err = r.in.Peek(9); err != nil {
			return h, nil, err
		}
		n, h.size = 9, binary.BigEndian.Uint64(head[1:])
	}

	_, _ = r.in.Discard(n)
	b = make([]byte, h.size)
	_, err = io.ReadFull(r.in, b)
	return h, b, err
}

// wantClosed waits until the server has closed the connection.
func (r *raw) wantClosed() {
	r.t.Helper()
	for {
		if _, err := r.in.ReadByte(); err != nil {
			if ne, ok := err.(net.Error); ok && ne.Timeout() {
				r.t.Fatal("connection still open")
			}
			return
		}
	}
}

// wantRefused dials a when the listener has no room. The listener must reset the connection, before
// or after the client has learned that it was open.
func wantRefused(t testing.TB, a net.Addr) {
	t.Helper()
	c, err := net.Dial("tcp", a.String())
	if errors.Is(err, syscall.ECONNRESET) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	(&raw{t, c, bufio.NewReader(c)}).wantClosed()
}

func newBufio(c net.Conn) *bufio.Reader { return bufio.NewReader(c) }
