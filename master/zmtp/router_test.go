package zmtp

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"saltern/test/await"
)

func TestRouterEchoSizes(t *testing.T) {
	r := router(t, RouterConfig{})
	req := dialReq(t, r.Addr())
	for _, n := range []int{0, 1, 254, 255, 256, 4095, 4096, 4097, 32<<10 - 1, 32<<10 + 1, 64 << 10,
		64<<10 + 1, 1 << 20, 3<<20 + 7} {
		b := bytes.Repeat([]byte{byte(n), 'x', 0}, n/3+1)[:n]
		got, err := req.Do(withTimeout(t), b)
		if err != nil || !bytes.Equal(got, b) {
			t.Fatalf("%d bytes: got %d, %v", n, len(got), err)
		}
	}

	if s := r.Stats(); s.Requests != 14 || s.BadPeers != 0 || s.Conns != 1 {
		t.Errorf("stats %+v", s)
	}

	eventually(t, "budget free", func() bool { return r.hub.memory.inUse() == 0 }) // a moment after the last answer
}

// A reply of any size may be a part of the payload, also when it has to wait for the peer.
func TestRouterReplyAliasesPayload(t *testing.T) {
	r := router(t,
		RouterConfig{Handler: func(_ context.Context, _ Peer, b []byte) ([]byte, bool) { return b[1:], true }})
	var g sync.WaitGroup
	for i := range 8 {
		g.Go(func() {
			d, err := DialReq(withTimeout(t), r.Addr().String(), DialConfig{})
			if err != nil {
				t.Error(err)
				return
			}
			defer d.Close()

			for _, n := range []int{2, 3 << 10, 20 << 10, 40 << 10, 60 << 10, 70 << 10, 5 << 20} {
				b := bytes.Repeat([]byte{byte('a' + i)}, n)
				if got, err := d.Do(withTimeout(t), b); err != nil || !bytes.Equal(got, b[1:]) {
					t.Errorf("%d bytes: got %d, %v", n, len(got), err)
				}
			}
		})
	}

	g.Wait()
	eventually(t, "budget free", func() bool { return r.hub.memory.inUse() == 0 })
}

// The Router calls Free once for each reply, when the reply has been written or dropped.
func TestRouterFreesReplies(t *testing.T) {
	var mu sync.Mutex
	out := map[*byte]bool{}
	made, freed := 0, 0
	r := router(t, RouterConfig{
		Handler: func(_ context.Context, _ Peer, b []byte) ([]byte, bool) {
			reply := bytes.Clone(b)
			mu.Lock()
			defer mu.Unlock()
			out[&reply[0]] = true
			made++
			return reply, true
		},
		Free: func(b []byte) {
			mu.Lock()
			defer mu.Unlock()
			if !out[&b[0]] {
				t.Error("freed what is not out")
			}

			delete(out, &b[0])
			freed++
			clear(b) // whoever reads it still, gets zeros
		},
	})

	req := dialReq(t, r.Addr())
	for _, n := range []int{1, 300, 32 << 10, 32<<10 + 1, 64<<10 + 1, 8 << 20} {
		b := bytes.Repeat([]byte{'z'}, n)
		if got, err := req.Do(withTimeout(t), b); err != nil || !bytes.Equal(got, b) {
			t.Fatalf("%d bytes: got %d, %v", n, len(got), err)
		}
	}

	// A peer disconnects while a big answer is being written.
	d := shake(t, r.Addr(), "REQ")
	d.send(appendMessage(nil, nil, bytes.Repeat([]byte{'y'}, 16<<20)))
	eventually(t, "request handled", func() bool { mu.Lock(); defer mu.Unlock(); return made == 7 })
	d.Close()
	eventually(t, "all freed", func() bool { mu.Lock(); defer mu.Unlock(); return freed == made && len(out) == 0 })
	eventually(t, "budget free", func() bool { return r.hub.memory.inUse() == 0 })
}

// A DEALER may send many requests at once. The answers arrive in order, each with the envelope of
// its request.
func TestRouterPipelinedDealer(t *testing.T) {
	r := router(t, RouterConfig{})
	d := shake(t, r.Addr(), "DEALER")
	var b []byte
	for i := range 100 {
		b = appendMessage(b, []byte("tag"), []byte(fmt.Sprint("env", i)), nil, []byte(fmt.Sprint("body", i)))
	}

	d.send(b)
	for i := range 100 {
		for k, want := range []string{"tag", fmt.Sprint("env", i), "", fmt.Sprint("body", i)} {
			h, got := d.frame()
			if string(got) != want || h.more != (k < 3) {
				t.Fatalf("request %d, frame %d: %q, more %v", i, k, got, h.more)
			}
		}
	}
}

// Attack row 9: many clients that ask for the same identity at once get each their own answers.
func TestAttack09SameIdentity(t *testing.T) {
	r := router(t, RouterConfig{})
	var g sync.WaitGroup
	for i := range 20 {
		g.Go(func() {
			req, err := DialReq(withTimeout(t), r.Addr().String(), DialConfig{Identity: "same"})
			if err != nil {
				t.Error(err)
				return
			}
			defer req.Close()

			for k := range 50 {
				want := fmt.Sprintf("client %d request %d", i, k)
				if b, err := req.Do(withTimeout(t), []byte(want)); err != nil || string(b) != want {
					t.Errorf("%q, %v; want %q", b, err, want)
					return
				}
			}
		})
	}

	g.Wait()
}

func TestRouterPeer(t *testing.T) {
	peers := make(chan Peer, 1)
	r := router(t, RouterConfig{Handler: func(_ context.Context, p Peer, b []byte) ([]byte, bool) {
		peers <- p
		return b, true
	}})

	req, err := DialReq(withTimeout(t), r.Addr().String(), DialConfig{Identity: "me"})
	if err != nil {
		t.Fatal(err)
	}
	defer req.Close()

	wantEcho(t, req, "x")
	p := <-peers
	if p.Identity != "me" || p.SocketType != "REQ" || p.ID == 0 || p.Remote.String() != req.conn.LocalAddr().String() {
		t.Errorf("peer %+v", p)
	}
}

// When the connection to a peer is lost, the context of its handler ends.
func TestRouterLostPeerCancels(t *testing.T) {
	started, ended := make(chan struct{}), make(chan struct{})
	r := router(t, RouterConfig{Handler: func(ctx context.Context, _ Peer, b []byte) ([]byte, bool) {
		close(started)
		<-ctx.Done()
		close(ended)
		return nil, false
	}})

	d := shake(t, r.Addr(), "REQ")
	d.send(appendMessage(nil, nil, []byte("x")))
	<-started
	_ = d.Close()

	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("context lives on")
	}
}

func TestRouterRefusalAndPanic(t *testing.T) {
	r := router(t, RouterConfig{Handler: func(_ context.Context, _ Peer, b []byte) ([]byte, bool) {
		switch string(b) {
		case "panic":
			panic("on purpose")
		case "no":
			return nil, false
		}
		return b, true
	}})

	for _, word := range []string{"panic", "no"} {
		d := shake(t, r.Addr(), "REQ")
		d.send(appendMessage(nil, nil, []byte(word)))
		d.wantClosed()
	}

	wantEcho(t, dialReq(t, r.Addr()), "still there")
	eventually(t, "one panic, nothing running", func() bool { s := r.Stats(); return s.Panics == 1 && s.Working == 0 })
}

// When no worker becomes free in time, a request gets the busy answer, or its connection is closed.
func TestRouterBusy(t *testing.T) {
	for _, busy := range []string{"", "busy"} {
		t.Run(busy, func(t *testing.T) {
			hold, started := make(chan struct{}), make(chan struct{}, 2)
			cfg := RouterConfig{Concurrency: 2, QueueWait: 20 * time.Millisecond,
				Handler: func(context.Context, Peer, []byte) ([]byte, bool) {
					started <- struct{}{}
					<-hold
					return []byte("done"), true
				}}

			if busy != "" {
				cfg.Busy = func([]byte) []byte { return []byte(busy) }
			}

			r := router(t, cfg)
			var g sync.WaitGroup
			for range 2 {
				req := dialReq(t, r.Addr())
				g.Go(func() {
					if b, err := req.Do(withTimeout(t), []byte("x")); err != nil || string(b) != "done" {
						t.Errorf("%q, %v", b, err)
					}
				})
				<-started
			}

			b, err := dialReq(t, r.Addr()).Do(withTimeout(t), []byte("x"))
			if string(b) != busy || (err != nil) != (busy == "") {
				t.Errorf("third request: %q, %v", b, err)
			}

			close(hold)
			g.Wait()
			if s := r.Stats(); s.Busy != 1 {
				t.Errorf("stats %+v", s)
			}
		})
	}
}

// Parked requests leave their workers to other requests, however many are parked, and get a worker
// again when they continue. The Router ends a parked request whose peer disconnects.
func TestParkedRequestsLeaveTheirWorkers(t *testing.T) {
	const parked = 50
	hold := make(chan struct{})
	var waiting, left atomic.Int64
	r := router(t,
		RouterConfig{
			Concurrency: 2,
			QueueWait:   patience,
			Handler: func(ctx context.Context, p Peer, b []byte) ([]byte, bool) {
				if string(b) != "wait" {
					return bytes.Clone(b), true
				}

				if !p.Account.Take(1000) {
					t.Error("no room")
				}

				resume := p.Account.Park()
				waiting.Add(1)
				select {
				case <-hold:
				case <-ctx.Done():
					left.Add(1)
				}

				resume()
				return []byte("done"), true
			},
		})

	var g sync.WaitGroup
	for range parked {
		req := dialReq(t, r.Addr())
		g.Go(func() {
			if b, err := req.Do(withTimeout(t), []byte("wait")); err != nil || string(b) != "done" {
				t.Errorf("%q, %v", b, err)
			}
		})
	}

	gone := shake(t, r.Addr(), "REQ")
	gone.send(appendMessage(nil, nil, []byte("wait")))
	eventually(t, "all wait", func() bool { return waiting.Load() == parked+1 })
	wantEcho(t, dialReq(t, r.Addr()), "another")
	eventually(t, "all wait, and hold nothing", func() bool {
		s := r.Stats()
		return s.Parked == parked+1 && s.Working == 0 && r.hub.memory.inUse() == 0
	})

	gone.Close()
	eventually(t, "the end of who has hung up", func() bool { return left.Load() == 1 })
	close(hold)
	g.Wait()
	eventually(t, "nothing left", func() bool { s := r.Stats(); return s.Parked == 0 && s.Working == 0 && s.Busy == 0 })
}

// Close lets a running request finish within the linger time.
func TestRouterCloseLingers(t *testing.T) {
	started, closing := make(chan struct{}), make(chan struct{})
	r := router(t,
		RouterConfig{Listen: Listen{Linger: patience}, Handler: func(context.Context, Peer, []byte) ([]byte, bool) {
			close(started)
			<-closing
			return []byte(strings.Repeat("x", 5<<20)), true
		}})

	req := dialReq(t, r.Addr())
	dialReq(t, r.Addr()) // idle
	go func() { <-started; r.Close() }()
	go func() {
		defer close(closing)
		<-started
		await.Within(patience, func() bool {
			c, err := net.Dial("tcp", r.Addr().String())
			if err == nil {
				_ = c.Close()
			}
			return err != nil
		})
	}()

	b, err := req.Do(withTimeout(t), []byte("x"))
	if err != nil || len(b) != 5<<20 {
		t.Fatalf("%d bytes, %v", len(b), err)
	}

	r.Close()
	if _, err := req.Do(withTimeout(t), nil); err == nil {
		t.Error("answer after Close")
	}
}

// The end of the context has the effect of Close. Handlers that ignore their context get only the
// linger time.
func TestRouterContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	started, ended := make(chan struct{}), make(chan struct{})
	r, err := ListenRouter(ctx, listen(t), RouterConfig{Listen: Listen{Linger: 10 * time.Millisecond},
		Handler: func(ctx context.Context, _ Peer, _ []byte) ([]byte, bool) {
			close(started)
			<-ctx.Done()
			close(ended)
			return nil, true
		}})
	if err != nil {
		t.Fatal(err)
	}

	d := shake(t, r.Addr(), "REQ")
	d.send(appendMessage(nil, nil, []byte("x")))
	<-started
	cancel()
	d.wantClosed()
	<-ended
	r.Close()

	if s := r.Stats(); s.Conns != 0 || s.Working != 0 {
		t.Errorf("stats %+v", s)
	}
}
