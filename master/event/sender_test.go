package event

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/test/await"
)

// numbered counts the events of clients on a bus, and reports an error when an event comes twice or
// before an earlier one.
type numbered struct {
	t    *testing.T
	last map[string]int64 // by tag
	seen map[string]bool
}

func (n *numbered) take(sub *Subscription) {
	for e := range sub.C {
		i, _ := e.Data.Int("i")
		if last, any := n.last[e.Tag]; any && i <= last {
			n.t.Errorf("%s: %d comes after %d", e.Tag, i, last)
		}
		n.last[e.Tag] = i
		n.seen[fmt.Sprint(e.Tag, " ", i)] = true
	}
}

// TestSenderOverARestart: while a master stops and another one starts, no confirmed event is lost,
// no event comes twice, and the events of each client stay in order.
func TestSenderOverARestart(t *testing.T) {
	dir := sockDir(t)
	subs := make([]*Subscription, 3)
	start := func(i int) (stop func()) {
		b := NewBus(time.Now, 0)
		subs[i] = b.Subscribe("all", 1<<16, nil)
		s, err := Serve(b, Config{Dir: dir}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return func() { s.Close(); b.Close() }
	}

	stop := start(0)

	shared := NewSender(dir)
	defer shared.Close()
	ctx, end := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	confirmed := make([][]string, 6)
	for c := range confirmed {
		clients.Go(func() {
			sender := shared
			if c >= 3 {
				sender = NewSender(dir)
				defer sender.Close()
			}

			for i := 0; ctx.Err() == nil; i++ {
				tag := fmt.Sprint("client/", c)
				short, done := context.WithTimeout(t.Context(), 10*time.Second)
				if err := sender.Fire(short, tag, data("i", i)); err == nil {
					confirmed[c] = append(confirmed[c], fmt.Sprint(tag, " ", i))
				}
				done()
			}
		})
	}

	fired := func(i int) func() bool { return func() bool { return len(subs[i].C) > 300 } }
	until(t, fired(0))
	stop()
	stop = start(1)
	until(t, fired(1))
	stop()
	stop = start(2)
	until(t, fired(2))
	end()
	clients.Wait()
	stop()

	n := numbered{t, map[string]int64{}, map[string]bool{}}
	for _, sub := range subs {
		n.take(sub)
		if sub.Dropped() > 0 {
			t.Fatal("the test is too slow to count")
		}
	}

	for _, list := range confirmed {
		if len(list) < 30 {
			t.Errorf("a client got %d events through", len(list))
		}

		for _, e := range list {
			if !n.seen[e] {
				t.Errorf("%s was confirmed and is on no bus", e)
			}
		}
	}
}

// TestConfirmedReachesReaders: all readers of the socket get every event that was confirmed before
// the master stops.
func TestConfirmedReachesReaders(t *testing.T) {
	_, s := serve(t, Config{})
	l := listenTo(t, s)
	sender := NewSender(s.cfg.Dir)
	defer sender.Close()

	const events = 120                // Close allows a second for them
	big := strings.Repeat("x", 4<<10) // more than the kernel takes at once
	for i := range events {
		if err := sender.Fire(await.Context(t), "x", data("i", i, "big", big)); err != nil {
			t.Fatal(err)
		}
	}

	closed := make(chan struct{})
	go func() { defer close(closed); s.Close() }()
	for i := range events {
		e, err := l.Next(await.Context(t))
		if n, _ := e.Data.Int("i"); err != nil || n != int64(i) {
			t.Fatalf("event %d: %v, %v", i, e.Data, err)
		}
	}

	if _, err := l.Next(await.Context(t)); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}

	<-closed
}

// TestEventsWaitForTheMaster: an event that arrives while the master is starting waits until the
// parts that act on events have subscribed.
func TestEventsWaitForTheMaster(t *testing.T) {
	b, s := serve(t, Config{Later: true})
	sender := NewSender(s.cfg.Dir)
	defer sender.Close()

	if _, err := sender.Ready(await.Context(t)); err != nil {
		t.Fatal(err)
	}

	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := sender.Fire(short, "x/1", data()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("before: %v", err)
	}

	fired := make(chan error, 1)
	go func() { fired <- sender.Fire(await.Context(t), "x/2", data()) }()
	sub := b.Subscribe("late", 10, nil)
	s.Take()

	if err := <-fired; err != nil {
		t.Fatal(err)
	}

	for _, tag := range []string{"x/1", "x/2"} {
		if e := <-sub.C; e.Tag != tag {
			t.Errorf("%s instead of %s", e.Tag, tag)
		}
	}

	_, never := serve(t, Config{Later: true})
	never.Close()
}

// TestSenderToMastersOfSalt: a master that does not confirm gets all events over one connection,
// and after its restart over another one.
func TestSenderToMastersOfSalt(t *testing.T) {
	dir := sockDir(t)
	path := filepath.Join(dir, pullName)
	sender := NewSender(dir)
	defer sender.Close()

	if _, err := sender.Ready(await.Context(t)); err == nil {
		t.Fatal("there is no master")
	}

	for life := range 2 {
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}

		tag := func(i int) string { return fmt.Sprintf("x/%d/%d", life, i) }
		const events = 20
		for i := range events { // the kernel has them
			if err := sender.Fire(await.Context(t), tag(i), data()); err != nil {
				t.Fatal(err)
			}
		}

		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}

		in := bufio.NewReader(c)
		for i := range events {
			var n uint32
			if err := binary.Read(in, binary.BigEndian, &n); err != nil {
				t.Fatal(err)
			}

			frame := make([]byte, n)
			if _, err := io.ReadFull(in, frame); err != nil {
				t.Fatal(err)
			}

			if e, _, err := parseFrame(frame); err != nil || e.Tag != tag(i) {
				t.Errorf("%q, %v", e.Tag, err)
			}
		}

		l.Close()
		c.Close()
	}
}

// TestSenderIsHeldByNobody: if a master accepts events and does not answer, each caller waits no
// longer than its context lasts, whichever callers wait before it. The last calls end when the
// Sender is closed.
func TestSenderIsHeldByNobody(t *testing.T) {
	dir := sockDir(t)
	l, err := net.Listen("unix", filepath.Join(dir, ackName))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()

	sender := NewSender(dir)
	big := strings.Repeat("x", 512<<10) // fills what the kernel takes
	var calls sync.WaitGroup
	for range 20 {
		calls.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			defer cancel()
			if err := sender.Fire(ctx, "x", data("big", big)); err == nil {
				t.Error("confirmed by nobody")
			}
		})
	}

	calls.Wait()
	waiting := make(chan error)
	go func() { waiting <- sender.Fire(context.Background(), "x", data()) }()
	until(t, func() bool { // it is written, or waits for its turn
		sender.mu.Lock()
		defer sender.mu.Unlock()
		return sender.link != nil
	})

	sender.Close()
	if err := <-waiting; err == nil {
		t.Error("confirmed after the end")
	}

	if err := sender.Fire(await.Context(t), "x", data()); !errors.Is(err, errSenderClosed) {
		t.Errorf("after the end: %v", err)
	}
}

// TestSenderIsToldWhy: if the master refuses an event, Fire returns an error with the reason, and
// the master accepts the next event.
func TestSenderIsToldWhy(t *testing.T) {
	b, s := serve(t, Config{MaxFrame: 4 << 10})
	sub := b.Subscribe("all", 10, nil)
	sender := NewSender(s.cfg.Dir)
	defer sender.Close()

	if err := sender.Fire(await.Context(t), "x", data("big", strings.Repeat("x", 8<<10))); err == nil ||
		!strings.Contains(err.Error(), "the limit is 4096") {
		t.Errorf("too large: %v", err)
	}

	if err := sender.Fire(await.Context(t), "bad\n\ntag", data()); !errors.Is(err, errTag) {
		t.Errorf("a bad tag: %v", err)
	}

	if err := sender.Fire(await.Context(t), "y", data()); err != nil || len(sub.C) != 1 {
		t.Errorf("the next one: %v, %d events", err, len(sub.C))
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add(appendAnswer(nil, nil))
	f.Add(appendAnswer(nil, errors.New(strings.Repeat("x", 5000))))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		text, err := readAnswer(bufio.NewReader(bytes.NewReader(b)))
		if err != nil {
			return
		}

		var said error
		if text != "" {
			said = errors.New(text)
		}

		if len(text) > maxAnswer || !bytes.HasPrefix(b, appendAnswer(nil, said)) {
			t.Fatalf("%q of %x", text, b)
		}
	})
}

// BenchmarkSender is 3,000 callers at once, by one connection.
func BenchmarkSender(b *testing.B) {
	bus, s := serve(b, Config{})
	sub := bus.Subscribe("all", 1<<16, nil)
	sender := NewSender(s.cfg.Dir)
	defer sender.Close()

	for b.Loop() {
		var calls sync.WaitGroup
		for range 3000 {
			calls.Go(func() {
				if err := sender.Fire(await.Context(b), "x", data("a", 1)); err != nil {
					b.Error(err)
				}
			})
		}

		calls.Wait()
		for len(sub.C) > 0 {
			<-sub.C
		}
	}
}
