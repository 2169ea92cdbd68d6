package httpserver

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/internal/ratelimit"
	"saltern/test/await"
)

// served runs a server with places whose handler does what the path says.
func served(t *testing.T, p *Places, hold <-chan struct{}) string {
	t.Helper()
	srv := &http.Server{ConnState: p.State, ConnContext: p.Context, ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if name, ok := strings.CutPrefix(r.URL.Path, "/proven/"); ok {
				Prove(r.Context(), name)
			}
			if r.URL.Path == "/work" {
				defer Working(r.Context())()
				<-hold
			}
		})}

	ln, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := Serve(ctx, srv, ln, 0); err != nil {
			t.Error(err)
		}
	})

	t.Cleanup(func() { cancel(); done.Wait() })
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	return "127.0.0.1:" + port
}

// call is a connection from an address of this machine.
type call struct {
	net.Conn
	t *testing.T
	r *bufio.Reader
}

func dial(t *testing.T, address, from string) *call {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return &call{c, t, bufio.NewReader(c)}
}

func (c *call) send(path string) { _, _ = fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path) }

// asks reports whether a request is answered.
func (c *call) asks(path string) bool {
	c.send(path)
	return c.answered()
}

func (c *call) answered() bool {
	res, err := http.ReadResponse(c.r, nil)
	if err == nil {
		res.Body.Close()
	}
	return err == nil
}

// closed waits until the server has closed it.
func (c *call) closed() bool {
	_, err := c.r.ReadByte()
	ne, _ := err.(net.Error)
	return err != nil && (ne == nil || !ne.Timeout())
}

// atWork waits until so many requests are at work.
func atWork(t *testing.T, p *Places, want int) {
	t.Helper()
	await.That(t, fmt.Sprintf("%d requests at work", want), func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		n := 0
		for _, at := range p.all {
			n += at.busy
		}
		return n == want
	})
}

func strangers(netip.Addr) ratelimit.Class { return ratelimit.Stranger }

// TestPlacesOfOneStranger: whoever holds all that strangers may have loses his own oldest
// connection to the next who comes, from anywhere.
func TestPlacesOfOneStranger(t *testing.T) {
	p := NewPlaces(ratelimit.Shared(16), strangers, time.Now)
	address := served(t, p, nil)
	var held []*call
	for range 8 {
		held = append(held, dial(t, address, "127.0.0.66"))
		await.That(t, "the connection being counted", func() bool { n, _ := p.Counted(); return n == len(held) })
	}

	for i := range 3 {
		if !dial(t, address, fmt.Sprintf("127.0.0.%d", 2+i)).asks("/") {
			t.Fatalf("honest client %d is not answered", i)
		}
		if !held[i].closed() {
			t.Errorf("the stranger's connection %d stays", i)
		}
	}

	if !held[7].asks("/") {
		t.Error("the stranger's newest connection is closed")
	}
}

// TestPlacesOfMany: with all places held from as many addresses a call that comes whole
// is answered all the same, and who is known, or proven, has places of his own.
func TestPlacesOfMany(t *testing.T) {
	known := netip.MustParseAddr("127.0.1.1")
	p := NewPlaces(ratelimit.Shared(16), func(a netip.Addr) ratelimit.Class {
		if a == known {
			return ratelimit.Familiar
		}
		return ratelimit.Stranger
	}, time.Now)

	hold := make(chan struct{})
	address := served(t, p, hold)
	var old []*call
	for i := range 8 {
		old = append(old, dial(t, address, fmt.Sprintf("127.0.2.%d", 1+i)))
	}

	await.That(t, "all places being held", func() bool { n, _ := p.Counted(); return n == 8 })
	old[0].send("/work")
	atWork(t, p, 1)
	if !dial(t, address, known.String()).asks("/") {
		t.Error("who is known is not answered")
	}

	await.That(t, "a new stranger being answered", func() bool { return dial(t, address, "127.0.0.2").asks("/") })
	close(hold)
	if !old[0].answered() {
		t.Error("a request at work was cut")
	}
}

// TestPlacesOfTheProven: a connection counts for who has proved himself on it; idle ones
// of his go when there is no place left, those that are at work stay.
func TestPlacesOfTheProven(t *testing.T) {
	p := NewPlaces(ratelimit.Shared(8), strangers, time.Now)
	hold := make(chan struct{})
	address := served(t, p, hold)
	var anns []*call
	for i := range 8 {
		c := dial(t, address, "127.0.0.2")
		if !c.asks("/proven/ann") {
			t.Fatalf("connection %d of ann is refused", i)
		}
		anns = append(anns, c)
	}

	for _, c := range anns[1:] {
		c.send("/work")
	}

	atWork(t, p, 7)
	bob := dial(t, address, "127.0.0.3")
	if !bob.asks("/proven/bob") || !anns[0].closed() {
		t.Error("no place for bob beside ann's idle connection")
	}

	bob.send("/work")
	atWork(t, p, 8)
	await.That(t, "a stranger being turned away", func() bool {
		_, before := p.Counted()
		c := dial(t, address, "127.0.0.4")
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\n")
		if !c.closed() {
			t.Error("a ninth connection")
		}

		_, after := p.Counted()
		return after == before+1
	})

	close(hold)
	for _, c := range append(anns[1:], bob) {
		if !c.answered() {
			t.Error("a request at work was cut")
		}
	}

	for _, c := range append(anns, bob) {
		c.Close()
	}

	await.That(t, "nothing being left", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.all) == 0 && len(p.by) == 0 && p.classes == [3]int{}
	})
}
