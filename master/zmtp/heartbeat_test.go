package zmtp

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener in memory, with which tests can control the clock.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "memory"} }

// onUnix is a connection that may have a PROXY header.
type onUnix struct{ net.Conn }

func (onUnix) RemoteAddr() net.Addr { return &net.UnixAddr{Net: "unix"} }

// dial connects a peer. frames delivers the frames that the server sends until the end of the
// connection.
func (p *pipes) dial(greetingAndMore []byte) (c net.Conn, frames chan string) {
	c, server := net.Pipe()
	p.conns <- onUnix{server}
	frames = make(chan string, 1000)
	go func() {
		defer close(frames)
		in := &raw{Conn: c}
		_, _ = io.CopyN(io.Discard, c, greetingSize)
		in.in = newBufio(c)

		for {
			h, b, err := in.tryFrame()
			if err != nil {
				return
			}

			if h.command {
				b = append([]byte("/"), b...)
			}

			frames <- string(b)
		}
	}()

	if greetingAndMore != nil {
		go func() { _, _ = c.Write(greetingAndMore) }()
	}

	return c, frames
}

func ended(frames chan string) bool {
	for {
		select {
		case _, ok := <-frames:
			if !ok {
				return true
			}
		default:
			return false
		}
	}
}

const (
	pingSeen = "/\x04PING\x00\x00"
	hour     = time.Hour
)

// As with a real master, the listener sends a PING every 10 s with a TTL of 0, and closes a
// connection after 30 s of silence (at the next PING). It keeps peers that answer.
func TestHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := newPipes()
		p := ListenPub(context.Background(), ln, PubConfig{})
		defer p.Close()

		shake := appendReady(greeting(), "SUB", "")
		_, mute := ln.dial(shake)
		alive, frames := ln.dial(shake)
		old := greeting()
		old[11] = 0
		_, v30 := ln.dial(appendReady(old, "SUB", ""))
		stop := make(chan struct{})
		defer func() { <-stop }()

		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		pings := 0
		go func() {
			defer close(stop)
			for {
				select {
				case f := <-frames:
					if f == pingSeen {
						pings++
						_, _ = alive.Write(appendCommand(nil, "PONG", nil))
					}
				case <-ctx.Done():
					return
				}
			}
		}()

		time.Sleep(29 * time.Second)
		synctest.Wait()
		if s := p.Stats(); s.Conns != 3 {
			t.Fatalf("after 29 s: %+v", s)
		}

		time.Sleep(12 * time.Second)
		synctest.Wait()
		if s := p.Stats(); s.Conns != 2 || s.Silent != 1 || !ended(mute) {
			t.Fatalf("after 41 s: %+v", s)
		}

		time.Sleep(hour)
		synctest.Wait()
		if s := p.Stats(); s.Conns != 2 {
			t.Fatalf("after an hour: %+v", s)
		}

		if want := int((hour + 41*time.Second) / (10 * time.Second)); pings < want-1 || pings > want+1 {
			t.Errorf("%d PINGs in an hour and 41 s", pings)
		}

		for len(v30) > 0 {
			if f := <-v30; f == pingSeen {
				t.Error("PING sent to a peer of version 3.0")
			}
		}
	})
}

// A peer does not count as silent while its request is being handled and the next one waits, nor
// while it accepts bytes of a long answer.
func TestHeartbeatSparesTheBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := newPipes()
		r, err := ListenRouter(context.Background(), ln,
			RouterConfig{Handler: func(_ context.Context, _ Peer, b []byte) ([]byte, bool) {
				time.Sleep(2 * time.Minute)
				return b, true
			}})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()

		b := appendReady(greeting(), "DEALER", "")
		b = appendMessage(b, nil, []byte("one"))
		b = appendMessage(b, nil, []byte("two"))
		c, frames := ln.dial(b)
		var got string
		pongs := make(chan struct{}, 1000)
		defer close(pongs)

		go func() { // one writer: the pipe's lock would hold the test's clock
			for range pongs {
				_, _ = c.Write(appendCommand(nil, "PONG", nil))
			}
		}()

		for f := range frames {
			switch {
			case f == pingSeen:
				pongs <- struct{}{}
			case f != "" && f[0] != '/':
				got += f + " "
			}

			if f == "two" {
				_ = c.Close()
			}
		}

		if got != "one two " {
			t.Errorf("answers %q", got)
		}
	})
}

// Without READY the handshake ends after 5 s, however many bytes arrive slowly.
func TestHandshakeDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := newPipes()
		p := ListenPub(context.Background(), ln, PubConfig{})
		defer p.Close()

		_, silent := ln.dial(nil)
		slow, half := ln.dial(greeting())
		time.Sleep(4 * time.Second)
		_, _ = slow.Write([]byte{flagCommand})
		synctest.Wait()

		if s := p.Stats(); s.Handshakes != 2 {
			t.Fatalf("after 4 s: %+v", s)
		}

		time.Sleep(time.Second)
		synctest.Wait()
		if s := p.Stats(); s.Conns != 0 || s.LateShakes != 2 || !ended(silent) || !ended(half) {
			t.Errorf("after 5 s: %+v", s)
		}
	})
}

// A message may not pause for more than 30 s, nor arrive more slowly than MinRate.
func TestMessagePace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := newPipes()
		r, err := ListenRouter(context.Background(), ln,
			RouterConfig{Handler: echo, Listen: Listen{Heartbeat: Heartbeat{Interval: -1}}})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()

		const size = 400 << 10
		start := append(appendReady(greeting(), "REQ", ""), flagMore, 0)
		start = append(start, longHeader(0, size)...)
		slow, _ := ln.dial(start) // 4 KiB/s is just enough, with 30 s to spare
		stuck, gone := ln.dial(start)
		_, _ = stuck.Write(make([]byte, 100<<10))

		for range size / 4096 {
			time.Sleep(time.Second)
			if _, err := slow.Write(make([]byte, 4096)); err != nil {
				t.Fatalf("cut off: %v", err)
			}
		}

		synctest.Wait()
		if s := r.Stats(); s.Conns != 1 || s.Requests != 1 || !ended(gone) {
			t.Errorf("%+v", s)
		}
	})
}

// A client with a Heartbeat closes the connection to a silent server.
func TestClientHeartbeat(t *testing.T) {
	ln := listen(t)
	defer func() { _ = ln.Close() }()
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		_, _ = c.Write(appendReady(greeting(), "PUB", ""))
		_, _ = io.Copy(io.Discard, c) // reads, and never says a word
		_ = c.Close()
	}()

	s, err := DialSub(withTimeout(t), ln.Addr().String(),
		DialConfig{Heartbeat: Heartbeat{Interval: 20 * time.Millisecond}}, "")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()

	if _, err := s.Next(withTimeout(t)); !errors.Is(err, errSilent) {
		t.Errorf("next: %v", err)
	}
}

// PONG repeats the context of its PING.
func TestPong(t *testing.T) {
	r := router(t, RouterConfig{})
	c := shake(t, r.Addr(), "REQ")
	for _, context := range []string{"", "x", "0123456789abcdef"} {
		c.send(appendCommand(nil, "PING", append([]byte{0, 100}, context...)))
		if h, b := c.frame(); !h.command || string(b) != "\x04PONG"+context {
			t.Errorf("context %q: %q", context, b)
		}
	}
}

// A client closes the connection to a server that is silent for longer than the TTL in the server's
// PING, as libzmq does, and not before.
func TestTimeToLive(t *testing.T) {
	ln := listen(t)
	defer func() { _ = ln.Close() }()
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}

		b := appendReady(greeting(), "PUB", "")

		// a message after it would end the time
		b = append(appendMessage(b, []byte("one")), pingFrame(300*time.Millisecond)...)
		_, _ = c.Write(b)
		_, _ = io.Copy(io.Discard, c)
		_ = c.Close()
	}()

	s, err := DialSub(withTimeout(t), ln.Addr().String(), DialConfig{}, "")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()

	if m, err := s.Next(withTimeout(t)); err != nil || string(m[0]) != "one" {
		t.Fatalf("%q, %v", m, err)
	}

	if _, err := s.Next(withTimeout(t)); !errors.Is(err, errSilent) {
		t.Errorf("next: %v", err)
	}
}

// With a TTL the listener sends a PING right after each publish: libzmq forgets the TTL of the
// previous PING at every message, and the host may vanish at that moment.
func TestPingAfterPublish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := newPipes()
		p := ListenPub(context.Background(), ln,
			PubConfig{Listen: Listen{Heartbeat: Heartbeat{Interval: hour, Timeout: 3 * hour, TTL: 12 * time.Second}}})
		defer p.Close()

		c, frames := ln.dial(append(appendReady(greeting(), "SUB", ""), appendMessage(nil, []byte{1})...))
		time.Sleep(time.Minute)
		if err := p.Publish(context.Background(), []byte("job")); err != nil {
			t.Fatal(err)
		}

		var got []string
		end := time.After(time.Second)
		for len(got) < 3 {
			select {
			case f := <-frames:
				got = append(got, f)
				continue
			case <-end:
			}
			break
		}

		if ping := "/\x04PING\x00\x78"; len(got) != 3 || got[1] != "job" ||
			!strings.HasPrefix(got[2], ping) || len(got[2]) != len(ping)+maxPingContext {
			t.Errorf("frames %q", got)
		}

		_ = c.Close()
	})
}

// The listener writes message and PING at once. If the host vanished between two writes, the
// subscriber would wait for as long as its kernel keeps the connection.
func TestPingInOneWrite(t *testing.T) {
	ln, err := net.Listen("unixpacket", filepath.Join(t.TempDir(), "pub")) // a write is a packet
	if err != nil {
		t.Fatal(err)
	}

	p := ListenPub(context.Background(), ln,
		PubConfig{
			Shards: 1,
			Listen: Listen{Heartbeat: Heartbeat{Interval: hour, Timeout: 3 * hour, TTL: 12 * time.Second}},
		})

	t.Cleanup(p.Close)
	ping := string(p.hub.pings.pingAt(time.Now())) // but for the time
	old := greeting()
	old[11] = 0 // knows no PING

	for _, tc := range []struct {
		name, topic string
		greeting    []byte
		want        []string
	}{
		{"everything", "", greeting(),
			[]string{ping, "\x01\x05first\x00\x01a\x01\x06second\x00\x01b" + ping, "\x00\x05third" + ping,
				"\x00\x06fourth" + ping}},
		{"a topic", "t", greeting(), []string{ping, "\x00\x05third" + ping, "\x00\x06fourth" + ping}},
		{"version 3.0", "t", old, []string{"\x00\x05third", "\x00\x06fourth"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := net.Dial("unixpacket", ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()

			b := appendReady(tc.greeting, "SUB", "")
			if _, err := c.Write(append(b, appendMessage(nil, []byte("\x01"+tc.topic))...)); err != nil {
				t.Fatal(err)
			}

			subscribed(t, p, 1)

			// Block the shard, so that the first two messages are one burst.
			stand, stands := make(chan struct{}), make(chan struct{})
			if err := p.handToShards(withTimeout(t), &publication{do: func(*shard) { close(stands); <-stand }},
				p.shards); err != nil {
				t.Fatal(err)
			}

			<-stands
			publish(t, p, "first", "a")
			publish(t, p, "second", "b")
			close(stand)

			if err := p.Flush(withTimeout(t)); err != nil {
				t.Fatal(err)
			}

			publish(t, p, "third")
			if ok := p.SendTo(withTimeout(t), p.Subscribers()[0].ID, []byte("fourth")); !ok {
				t.Fatal("not sent")
			}

			_ = c.SetReadDeadline(time.Now().Add(patience))
			buf := make([]byte, 1<<10)
			if _, err := c.Read(buf); err != nil { // greeting and READY
				t.Fatal(err)
			}

			for _, want := range tc.want {
				n, err := c.Read(buf)
				got := string(buf[:n])
				if strings.HasSuffix(want, ping) && len(got) == len(want) {
					got = got[:len(got)-8] + want[len(want)-8:] // the time
				}

				if err != nil || got != want {
					t.Fatalf("write %q, %v; want %q", buf[:n], err, want)
				}
			}

			_ = c.Close()
			eventually(t, "the end", func() bool { return len(p.Subscribers()) == 0 })
		})
	}
}

// A PING follows each reply, small or big, in the same way.
func TestPingAfterReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := newPipes()
		r, err := ListenRouter(context.Background(), ln,
			RouterConfig{Handler: func(_ context.Context, _ Peer, b []byte) ([]byte, bool) {
				if string(b) == "big" {
					return make([]byte, freeSize), true
				}
				return []byte("small"), true
			}, Listen: Listen{Heartbeat: Heartbeat{Interval: hour, Timeout: 3 * hour, TTL: 12 * time.Second}}})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()

		b := appendReady(greeting(), "REQ", "")
		for _, m := range []string{"big", "small"} {
			b = appendMessage(b, nil, []byte(m))
		}

		c, frames := ln.dial(b)
		time.Sleep(time.Second)
		synctest.Wait()
		want := []int{0, freeSize, 8, 0, 5, 8} // READY first
		<-frames

		for i, size := range want {
			f := ""
			select {
			case f = <-frames:
			default:
			}

			if len(f) != size || size == 8 && f != "/\x04PING\x00\x78" {
				t.Fatalf("frame %d: %d bytes %.20q", i, len(f), f)
			}
		}

		_ = c.Close()
		old := greeting()
		old[11] = 0 // knows no PING
		c, frames = ln.dial(appendMessage(appendReady(old, "REQ", ""), nil, []byte("small")))
		time.Sleep(time.Second)
		synctest.Wait()

		if len(frames) != 3 {
			t.Errorf("%d frames to a peer of version 3.0", len(frames))
		}

		_ = c.Close()
	})
}

// However many connections there are, and while their number rises and falls, none waits longer
// than an interval for its PING.
func TestHeartbeatOfFewAndMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := newPipes()
		p := ListenPub(context.Background(), ln, PubConfig{})
		var readers sync.WaitGroup
		defer readers.Wait()

		defer p.Close()
		var mu sync.Mutex
		var longest time.Duration
		pings := 0
		shake := appendReady(greeting(), "SUB", "")
		dial := func() net.Conn {
			c, frames := ln.dial(shake)
			last := time.Now()
			readers.Go(func() {
				for f := range frames {
					if f != pingSeen {
						continue
					}

					mu.Lock()
					longest = max(longest, time.Since(last))
					pings++
					mu.Unlock()

					last = time.Now()
					_, _ = c.Write(appendCommand(nil, "PONG", nil))
				}
			})

			return c
		}

		var conns []net.Conn
		for i := range 2 * fewConns { // one a second: few, then many
			conns = append(conns, dial())
			time.Sleep(time.Second + time.Duration(i)*time.Millisecond)
		}

		for _, c := range conns[:fewConns+fewConns/2] { // and few again
			_ = c.Close()
			time.Sleep(time.Second)
		}

		time.Sleep(time.Minute)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()

		if interval := (Heartbeat{}).withDefaults().Interval; longest > interval || pings < 10*fewConns {
			t.Errorf("%d PINGs, one after %s, with an interval of %s", pings, longest, interval)
		}
	})
}
