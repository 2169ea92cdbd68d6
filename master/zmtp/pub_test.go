package zmtp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
)

func wantNext(t testing.TB, s *Sub, frames ...string) {
	t.Helper()
	got, err := s.Next(withTimeout(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(frames) {
		t.Fatalf("%d frames %q, want %q", len(got), got, frames)
	}
	for i := range got {
		if string(got[i]) != frames[i] {
			t.Fatalf("frame %d is %q, want %q", i, got[i], frames[i])
		}
	}
}

func publish(t testing.TB, p *Pub, frames ...string) {
	t.Helper()
	var b [][]byte
	for _, f := range frames {
		b = append(b, []byte(f))
	}
	if err := p.Publish(withTimeout(t), b...); err != nil {
		t.Fatal(err)
	}
}

func TestPubFanOut(t *testing.T) {
	p := publisher(t, PubConfig{})
	var subs []*Sub
	for range 20 {
		subs = append(subs, dialSub(t, p.Addr(), ""))
	}

	subscribed(t, p, 20)
	const n = 500
	for i := range n {
		publish(t, p, fmt.Sprint("message ", i))
	}

	publish(t, p, "topic", "body")
	for _, s := range subs {
		for i := range n {
			wantNext(t, s, fmt.Sprint("message ", i))
		}
		wantNext(t, s, "topic", "body")
	}

	if err := p.Flush(withTimeout(t)); err != nil {
		t.Fatal(err)
	}

	if s := p.Stats(); s.Published != n+1 || s.Sent != 20*(n+1) || s.Dropped != 0 || s.Slow != 0 {
		t.Errorf("stats %+v", s)
	}
}

func TestPubTopics(t *testing.T) {
	p := publisher(t, PubConfig{})
	a, b := dialSub(t, p.Addr(), "broadcast", "aa"), dialSub(t, p.Addr(), "b")
	subscribed(t, p, 2)
	for _, m := range []string{"aab", "a", "broadcast", "none", "b"} {
		publish(t, p, m, "x")
	}
	wantNext(t, a, "aab", "x")
	wantNext(t, a, "broadcast", "x")
	wantNext(t, b, "broadcast", "x")
	wantNext(t, b, "b", "x")
	publish(t, p, "aa", "end")
	wantNext(t, a, "aa", "end")
}

// A message for a topic that was subscribed to twice is delivered once, and one cancellation ends
// both subscriptions, as in libzmq, with both forms of subscription.
func TestPubSubscribeTwice(t *testing.T) {
	for name, change := range map[string]func(first byte, topic string) []byte{
		"messages": func(first byte, topic string) []byte {
			return appendMessage(nil, append([]byte{first}, topic...))
		},
		"commands": func(first byte, topic string) []byte {
			return appendCommand(nil, map[byte]string{0: "CANCEL", 1: "SUBSCRIBE"}[first], []byte(topic))
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, topic := range []string{"", "t"} {
				p := publisher(t, PubConfig{})
				s := shake(t, p.Addr(), "SUB")
				s.send(bytes.Join([][]byte{change(1, topic), change(0, topic), change(1, topic),
					change(1, topic), change(1, "mark")},
					nil))
				eventually(t, "marked",
					func() bool { l := p.Subscribers(); return len(l) == 1 && len(l[0].Topics) == 2 })
				publish(t, p, "t1")

				if _, b := s.frame(); string(b) != "t1" {
					t.Fatalf("got %q", b)
				}

				s.send(change(0, topic))
				s.send(change(0, topic)) // once too often
				eventually(t, "cancelled",
					func() bool { l := p.Subscribers(); return len(l) == 1 && len(l[0].Topics) == 1 })
				publish(t, p, "t2")
				publish(t, p, "mark")

				if _, b := s.frame(); string(b) != "mark" {
					t.Fatalf("got %q", b)
				}
			}
		})
	}
}

// The client counts its own subscriptions.
func TestSubCounts(t *testing.T) {
	p := publisher(t, PubConfig{})
	s := dialSub(t, p.Addr(), "a", "a", "mark")
	for _, want := range []int{2, 1} {
		if err := s.Unsubscribe("a"); err != nil {
			t.Fatal(err)
		}
		eventually(t, "topics", func() bool { l := p.Subscribers(); return len(l) == 1 && len(l[0].Topics) == want })
	}
	publish(t, p, "a")
	publish(t, p, "mark")
	wantNext(t, s, "mark")
}

func TestPubHooksAndDisconnect(t *testing.T) {
	var mu sync.Mutex
	var log []string
	add := func(format string, args ...any) {
		mu.Lock()
		log = append(log, fmt.Sprintf(format, args...))
		mu.Unlock()
	}

	p := publisher(t, PubConfig{
		OnConnect:    func(q Peer) { add("connect %d %s", q.ID, q.SocketType) },
		OnSubscribe:  func(q Peer, topic string) { add("subscribe %d %q", q.ID, topic) },
		OnDisconnect: func(q Peer, err error) { add("disconnect %d %v", q.ID, err) },
	})

	a := dialSub(t, p.Addr(), "x")
	subscribed(t, p, 1)
	id := p.Subscribers()[0].ID
	if !p.SendTo(withTimeout(t), id, []byte("only"), []byte("you")) || p.SendTo(withTimeout(t), id+1, nil) {
		t.Error("SendTo")
	}

	wantNext(t, a, "only", "you")
	if n := p.Disconnect(func(q Peer) bool { return q.ID == id }); n != 1 {
		t.Errorf("disconnected %d", n)
	}

	if _, err := a.Next(withTimeout(t)); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("next: %v", err)
	}

	eventually(t, "gone", func() bool { mu.Lock(); defer mu.Unlock(); return len(log) == 3 })
	want := fmt.Sprintf("[connect %d SUB subscribe %d \"x\" disconnect %d <nil>]", id, id, id)
	if fmt.Sprint(log) != want {
		t.Errorf("log %v", log)
	}
}

func TestPubClosed(t *testing.T) {
	p := publisher(t, PubConfig{})
	s := dialSub(t, p.Addr(), "")
	subscribed(t, p, 1)
	publish(t, p, "last")
	p.Close()
	wantNext(t, s, "last")

	if err := p.Publish(withTimeout(t), []byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("publish after close: %v", err)
	}

	if p.SendTo(withTimeout(t), 1, nil) {
		t.Error("SendTo after close")
	}

	if err := p.Flush(withTimeout(t)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("flush after close: %v", err)
	}
}

// A message to one subscriber does not overtake messages that were published before it.
func TestPubSendToOrder(t *testing.T) {
	p := publisher(t, PubConfig{})
	s := dialSub(t, p.Addr(), "")
	subscribed(t, p, 1)
	id := p.Subscribers()[0].ID
	for i := range 200 {
		publish(t, p, fmt.Sprint("all ", i))
		if !p.SendTo(withTimeout(t), id, []byte(fmt.Sprint("one ", i))) {
			t.Fatal("not sent")
		}
	}

	for i := range 200 {
		wantNext(t, s, fmt.Sprint("all ", i))
		wantNext(t, s, fmt.Sprint("one ", i))
	}
}

// Subscribers come and go while messages are published.
func TestPubChurn(t *testing.T) {
	p := publisher(t, PubConfig{})
	steady := dialSub(t, p.Addr(), "")
	subscribed(t, p, 1)
	var g sync.WaitGroup
	for range 4 {
		g.Go(func() {
			for range 50 {
				s, err := DialSub(withTimeout(t), p.Addr().String(), DialConfig{}, "")
				if err != nil {
					t.Error(err)
					return
				}
				s.Close()
			}
		})
	}

	const n = 2000
	go func() {
		for i := range n {
			_ = p.Publish(context.Background(), []byte(fmt.Sprint(i)))
		}
	}()

	for i := range n {
		wantNext(t, steady, fmt.Sprint(i))
	}

	g.Wait()
	eventually(t, "all gone", func() bool { return p.Stats().Conns == 1 })
}
