package client

import (
	"context"
	"net"
	"testing"

	"saltern/master/zmtp"
	"saltern/test/await"
)

// A connection serves the next request, too, unless the master has closed it meanwhile.
func TestKeptConnections(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	address := ln.Addr().String()
	serve := func(ln net.Listener) *zmtp.Router {
		r, err := zmtp.ListenRouter(t.Context(), ln,
			zmtp.RouterConfig{Handler: func(_ context.Context, _ zmtp.Peer, b []byte) ([]byte, bool) { return b, true }})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}

	router := serve(ln)
	s := NewShared(t.TempDir())
	defer s.Close()

	take := func() *zmtp.Req {
		t.Helper()
		r, err := s.takeConnection(t.Context(), address)
		if err != nil {
			t.Fatal(err)
		}

		if b, err := r.Do(t.Context(), []byte("x")); err != nil || string(b) != "x" {
			t.Fatalf("%q %v", b, err)
		}

		return r
	}

	first, second := take(), take()
	if first == second {
		t.Fatal("one connection for two at a time")
	}

	s.giveBack(first)
	s.giveBack(second)
	if r := take(); r != second {
		t.Error("the connection that was kept is not used")
	} else {
		s.giveBack(r)
	}

	router.Close()
	await.That(t, "the ends are seen", func() bool { return !first.Alive() && !second.Alive() })
	if ln, err = net.Listen("tcp", address); err != nil {
		t.Fatal(err)
	}
	defer serve(ln).Close()

	if r := take(); r == first || r == second {
		t.Error("a connection that has ended is used")
	} else {
		s.giveBack(r)
	}

	var all []*zmtp.Req
	for range maxKept + 3 {
		all = append(all, take())
	}

	for _, r := range all {
		s.giveBack(r)
	}

	if len(s.kept) != maxKept || all[maxKept].Alive() {
		t.Errorf("%d are kept", len(s.kept))
	}
}
