package zmtp

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"
)

// The clients of an independent implementation connect to this package's listeners.
func TestInteropZmq4Clients(t *testing.T) {
	ctx := withTimeout(t)
	r, p := router(t, RouterConfig{}), publisher(t, PubConfig{})

	req := zmq4.NewReq(ctx, zmq4.WithID(zmq4.SocketIdentity("zmq4")))
	defer func() { _ = req.Close() }()
	if err := req.Dial("tcp://" + r.Addr().String()); err != nil {
		t.Fatal(err)
	}

	for _, size := range []int{0, 10, 255, 256, 50_000} {
		b := bytes.Repeat([]byte{'x'}, size)
		if err := req.Send(zmq4.NewMsg(b)); err != nil {
			t.Fatal(err)
		}
		if m, err := req.Recv(); err != nil || !bytes.Equal(m.Bytes(), b) {
			t.Fatalf("%d bytes: got %d, %v", size, len(m.Bytes()), err)
		}
	}

	dealer := zmq4.NewDealer(ctx)
	defer func() { _ = dealer.Close() }()
	if err := dealer.Dial("tcp://" + r.Addr().String()); err != nil {
		t.Fatal(err)
	}

	for i := range 50 {
		if err := dealer.SendMulti(zmq4.NewMsgFrom(nil, []byte(fmt.Sprint(i)))); err != nil {
			t.Fatal(err)
		}
	}

	for i := range 50 {
		m, err := dealer.Recv()
		if err != nil || len(m.Frames) != 2 || string(m.Frames[1]) != fmt.Sprint(i) {
			t.Fatalf("answer %d: %q, %v", i, m.Frames, err)
		}
	}

	sub := zmq4.NewSub(ctx)
	defer func() { _ = sub.Close() }()
	if err := sub.Dial("tcp://" + p.Addr().String()); err != nil {
		t.Fatal(err)
	}

	if err := sub.SetOption(zmq4.OptionSubscribe, "to"); err != nil {
		t.Fatal(err)
	}

	subscribed(t, p, 1)
	publish(t, p, "other", "no")
	publish(t, p, "topic", "yes")
	if m, err := sub.Recv(); err != nil || len(m.Frames) != 2 || string(m.Frames[1]) != "yes" {
		t.Fatalf("%q, %v", m.Frames, err)
	}
}

// This package's clients connect to the listeners of an independent implementation.
func TestInteropZmq4Servers(t *testing.T) {
	ctx := withTimeout(t)
	rep := zmq4.NewRep(ctx)
	defer func() { _ = rep.Close() }()

	if err := rep.Listen("tcp://127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}

	go func() {
		for {
			m, err := rep.Recv()
			if err != nil {
				return
			}
			_ = rep.Send(zmq4.NewMsgFrom(m.Frames...))
		}
	}()

	req := dialReq(t, rep.Addr())
	for _, s := range []string{"a", strings.Repeat("b", 100_000)} {
		wantEcho(t, req, s)
	}

	pub := zmq4.NewPub(ctx)
	defer func() { _ = pub.Close() }()
	if err := pub.Listen("tcp://127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}

	sub := dialSub(t, pub.Addr(), "t")
	stop := make(chan struct{})
	defer close(stop)

	go func() { // it does not say when the subscription has arrived
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
				_ = pub.Send(zmq4.NewMsgFrom([]byte("t"), []byte("body")))
			}
		}
	}()

	wantNext(t, sub, "t", "body")
}

// libzmq, through pyzmq, as Salt uses it. SALTERN_PYTHON names a Python that
// has pyzmq.
func TestInteropPyzmq(t *testing.T) {
	python := os.Getenv("SALTERN_PYTHON")
	if python == "" {
		t.Skip("SKIPPED, libzmq interop untested: set SALTERN_PYTHON to a Python with pyzmq")
	}

	r := router(t,
		RouterConfig{Listen: Listen{Heartbeat: Heartbeat{
			Interval: 200 * time.Millisecond,
			Timeout:  1200 * time.Millisecond,
		}}})

	p := publisher(t,
		PubConfig{
			Listen: Listen{Heartbeat: Heartbeat{
				Interval: 200 * time.Millisecond,
				Timeout:  1200 * time.Millisecond,
			}},
			OnSubscribe: func(q Peer, topic string) {
				t.Logf("subscription from %s %q: %q", q.SocketType,
					q.Identity, topic)
			},
		})

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "testdata/peer.py", r.Addr().String(), p.Addr().String())
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}

	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	out := bufio.NewReader(stdout)
	step := func(want string) {
		t.Helper()
		line, err := out.ReadString('\n')
		if err != nil || strings.TrimSpace(line) != want {
			t.Fatalf("peer says %q, %v; want %q", line, err, want)
		}
	}

	next := func() { _, _ = io.WriteString(stdin, "\n") }
	step("req ok")
	step("dealer ok")
	step("big ok")
	step("subscribed")
	subscribed(t, p, 2)
	publish(t, p, "broadcast", "hello")
	publish(t, p, "nobody", "x")
	publish(t, p, "topic1", "two")
	next()
	step("topics ok")
	eventually(t, "unsubscribed", func() bool {
		n := 0
		for _, s := range p.Subscribers() {
			n += len(s.Topics)
		}
		return n == 2
	})

	publish(t, p, "topic1", "not any more")
	publish(t, p, "broadcast", "end")
	next()
	step("cancel ok")
	step("idle ok") // for 2 s, longer than the heartbeat timeout, with heartbeats of its own

	if s := p.Stats(); s.Silent != 0 || s.Conns != 2 {
		t.Errorf("publisher: %+v", s)
	}

	if s := r.Stats(); s.Silent != 0 || s.BadPeers != 0 {
		t.Errorf("router: %+v", s)
	}

	publish(t, p, "broadcast", "still here")
	next()
	step("alive ok")
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}

	if s := p.Stats(); s.Accepted != 2 {
		t.Errorf("the peer had to reconnect: %+v", s)
	}
}
