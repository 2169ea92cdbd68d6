package zmtp

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"saltern/internal/proxyproto"
)

func longHeader(flags byte, size uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{flags | flagLong}, size)
}

// Attack row 20 (and the frames of row 19): whatever bytes a peer sends, the listener closes the
// peer's connection, serves other peers, and allocates no memory for bytes that were only
// announced.
func TestAttack20HostileBytes(t *testing.T) {
	ready := appendReady(greeting(), "REQ", "")
	readyCommand := ready[greetingSize:]
	after := func(b ...[]byte) []byte { return append(bytes.Clone(ready), bytes.Join(b, nil)...) }
	hello := func(b ...[]byte) []byte { return append(greeting(), bytes.Join(b, nil)...) }
	mechanism := func(name string) []byte {
		g := greeting()
		copy(g[12:32], make([]byte, 20))
		copy(g[12:], name)
		return append(g, readyCommand...)
	}

	version := func(v byte) []byte { g := greeting(); g[10] = v; return append(g, readyCommand...) }
	cases := map[string][]byte{
		"http":      []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"tls hello": {0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3},
		"proxy v1":  []byte("PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n"),
		"proxy v2 not allowed": []byte(proxyproto.Signature +
			"\x21\x11\x00\x0c\x01\x02\x03\x04\x05\x06\x07\x08\x00\x01\x00\x02"),
		"zmtp 2":                  version(1),
		"zmtp 1":                  append([]byte{0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7e}, make([]byte, 54)...),
		"unknown mechanism":       mechanism("FOO"),
		"plain":                   mechanism("PLAIN"),
		"message first":           hello([]byte{0, 1, 'x'}),
		"other command first":     hello(appendCommand(nil, "PING", []byte{0, 0})),
		"error first":             hello(appendCommand(nil, "ERROR", []byte("\x03no!"))),
		"error without reason":    hello(appendCommand(nil, "ERROR", nil)),
		"no socket type":          hello(appendCommand(nil, "READY", nil)),
		"wrong socket type":       hello(appendReady(nil, "SUB", "")),
		"cut property":            hello(appendCommand(nil, "READY", []byte("\x0bSocket-Type\x00\x00"))),
		"long property":           hello(appendCommand(nil, "READY", []byte("\x01a\xff\xff\xff\xffx"))),
		"huge ready":              hello(longHeader(flagCommand, maxCommand+1), make([]byte, maxCommand+1)),
		"ready of 2^63-1":         hello(longHeader(flagCommand, 1<<63-1)),
		"message of 2^63-1 first": hello(longHeader(0, 1<<63-1)),
		"huge identity":           hello(appendReady(nil, "REQ", strings.Repeat("i", 300))),
		"reserved flag first":     hello([]byte{0x0c, 1, 'x'}),
		"second ready":            after(readyCommand),
		"error later":             after(appendCommand(nil, "ERROR", []byte("\x00"))),
		"subscribe to a router":   after(appendCommand(nil, "SUBSCRIBE", nil)),
		"unknown command":         after(appendCommand(nil, "FOO", nil)),
		"empty command":           after([]byte{flagCommand, 0}),
		"command name cut":        after([]byte{flagCommand, 2, 9, 'x'}),
		"command with more":       after([]byte{flagCommand | flagMore, 1, 'x'}),
		"huge command":            after(longHeader(flagCommand, 1<<62)),
		"ping without ttl":        after(appendCommand(nil, "PING", []byte{0})),
		"ping with long context":  after(appendCommand(nil, "PING", make([]byte, 2+17))),
		"frame of 2^63-1":         after(longHeader(0, 1<<63-1)),
		"frame of 2^63":           after(longHeader(0, 1<<63)),
		"frame of 8 GiB":          after([]byte{flagMore, 0}, longHeader(0, 8<<30)),
		"one byte too many":       after([]byte{flagMore, 0}, longHeader(0, 1<<20+1)),
		"sum too big": after([]byte{flagMore, 0}, longHeader(flagMore, 600<<10),
			make([]byte, 600<<10), longHeader(0, 600<<10)),
		"endless more":   after(bytes.Repeat([]byte{flagMore, 0}, 100_000)),
		"reserved flags": after([]byte{0x10, 0}),
		"no delimiter":   after([]byte{0, 1, 'x'}),
		"empty only":     after([]byte{0, 0}),
		"two payloads":   after([]byte{flagMore, 0, flagMore, 0, 0, 0}),
	}

	handled := 0
	r := router(t, RouterConfig{Listen: Listen{Limits: Limits{MaxMessage: 1 << 20}}, Concurrency: 1,
		Handler: func(_ context.Context, _ Peer, b []byte) ([]byte, bool) { handled++; return b, true }})
	good := dialReq(t, r.Addr())
	var before, now runtime.MemStats
	runtime.ReadMemStats(&before)

	for name, b := range cases {
		t.Run(name, func(t *testing.T) {
			c := dialRaw(t, r.Addr())
			_, _ = c.Write(b) // the server may have hung up in the middle
			c.wantClosed()
		})
	}

	runtime.ReadMemStats(&now)
	if grown := now.TotalAlloc - before.TotalAlloc; grown > 64<<20 {
		t.Errorf("%d bytes allocated for %d bad peers", grown, len(cases))
	}

	wantEcho(t, good, "still there")
	if handled != 1 {
		t.Errorf("%d requests reached the handler", handled)
	}

	eventually(t, "counted", func() bool { return r.Stats().BadPeers == uint64(len(cases)) })
	eventually(t, "closed", func() bool { return r.Stats().Conns == 1 })
}

// The same attack on the publish port.
func TestAttack20HostileSubscribers(t *testing.T) {
	p := publisher(t, PubConfig{})
	var many []byte
	for i := range maxTopics + 1 {
		many = appendCommand(many, "SUBSCRIBE", binary.BigEndian.AppendUint16([]byte("t"), uint16(i)))
	}

	for name, b := range map[string][]byte{
		"data":            {0, 1, 'x'},
		"empty message":   {0, 0},
		"two frames":      {flagMore, 1, 1, 0, 1, 1},
		"long topic":      appendCommand(nil, "SUBSCRIBE", make([]byte, maxTopic+1)),
		"long topic, old": appendMessage(nil, append([]byte{1}, make([]byte, maxTopic+1)...)),
		"many topics":     many,
		"big message":     longHeader(0, 4097),
		"unknown command": appendCommand(nil, "JOIN", []byte("x")),
	} {
		t.Run(name, func(t *testing.T) {
			c := shake(t, p.Addr(), "SUB")
			_, _ = c.Write(b)
			c.wantClosed()
		})
	}
}

// Attack row 20: the listener closes peers that send nothing, or send very slowly, at the
// handshake's deadline, and no other peer waits for them.
func TestAttack20SlowGreeting(t *testing.T) {
	const deadline = 300 * time.Millisecond
	r := router(t, RouterConfig{Listen: Listen{Limits: Limits{Handshake: deadline}}})
	start := time.Now()
	silent := dialRaw(t, r.Addr())
	loris := dialRaw(t, r.Addr())
	go func() {
		for _, b := range appendReady(greeting(), "REQ", "") {
			if _, err := loris.Write([]byte{b}); err != nil {
				return
			}
			time.Sleep(deadline / 20)
		}
	}()

	wantEcho(t, dialReq(t, r.Addr()), "at once")
	if d := time.Since(start); d > deadline*2/3 {
		t.Logf("slow machine: good peer waited %v", d)
	}

	silent.wantClosed()
	loris.wantClosed()
	eventually(t, "counted", func() bool { return r.Stats().LateShakes == 2 })
}

// Attack row 20: ten thousand half-open connections (fewer under -short) cost a bounded amount of
// memory each, and the listener serves a good peer meanwhile.
func TestAttack20HalfOpen(t *testing.T) {
	n := connections(t, 2000)
	r := router(t, RouterConfig{Listen: Listen{Limits: Limits{Handshake: time.Minute}}})
	before := memory()
	for range n {
		c, err := net.Dial("tcp", r.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()

		if _, err := c.Write(greeting()[:30]); err != nil {
			t.Fatal(err)
		}
	}

	eventually(t, "all in handshake", func() bool { return r.Stats().Handshakes == int64(n) })
	each := (memory() - before) / uint64(n)
	t.Logf("%d half-open connections, %d bytes each (their clients included)", n, each)
	if each > 20<<10 && !raceBuild {
		t.Errorf("%d bytes per half-open connection", each)
	}

	wantEcho(t, dialReq(t, r.Addr()), "served")
}

// Attack row 20: a message that stops in the middle, or arrives very slowly.
func TestAttack20StuckMessage(t *testing.T) {
	r := router(t, RouterConfig{Listen: Listen{Limits: Limits{MessageTime: 100 * time.Millisecond, MinRate: 1 << 20}}})
	for name, start := range map[string][]byte{
		"header":  {flagLong, 0, 0},
		"payload": append([]byte{flagMore, 0}, longHeader(0, 1<<20)...),
		"more":    {flagMore, 0},
		"command": {flagCommand, 200, 4, 'P'},
	} {
		t.Run(name, func(t *testing.T) {
			c := shake(t, r.Addr(), "REQ")
			c.send(start)
			c.wantClosed()
		})
	}

	t.Run("trickle", func(t *testing.T) {
		c := shake(t, r.Addr(), "REQ")
		c.send(append([]byte{flagMore, 0}, longHeader(0, 1<<20)...))
		go func() {
			for {
				if _, err := c.Write([]byte{1}); err != nil {
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
		}()

		c.wantClosed()
	})

	t.Run("commands in between", func(t *testing.T) {
		c := shake(t, r.Addr(), "REQ")
		c.send([]byte{flagMore, 0})
		go func() {
			for {
				if _, err := c.Write(appendCommand(nil, "PONG", nil)); err != nil {
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
		}()

		c.wantClosed()
	})

	wantEcho(t, dialReq(t, r.Addr()), "fine")
}

// Attack row 20: big messages share a memory budget. The listener closes a connection that exceeds
// it, continues to answer small requests, and gets all memory back.
func TestAttack20Inflight(t *testing.T) {
	r := router(t, RouterConfig{Listen: Listen{Limits: Limits{MaxMessage: 1 << 20, MaxInflight: 2 << 20}}})
	big := append([]byte{flagMore, 0}, longHeader(0, 1<<20)...)
	big = append(big, make([]byte, 1<<20-1)...)
	a, b := shake(t, r.Addr(), "REQ"), shake(t, r.Addr(), "REQ")
	a.send(big)
	b.send(big)
	eventually(t, "budget used", func() bool { return r.hub.memory.inUse() == 2<<20 })
	c := shake(t, r.Addr(), "REQ")
	_, _ = c.Write(big)
	c.wantClosed()
	wantEcho(t, dialReq(t, r.Addr()), "small")
	_ = a.Close()
	b.send([]byte{1})
	b.frame()

	if _, got := b.frame(); len(got) != 1<<20 {
		t.Errorf("answer of %d bytes", len(got))
	}

	eventually(t, "budget free", func() bool { return r.hub.memory.inUse() == 0 })
}

// Attack row 20: the limits on connections.
func TestAttack20TooManyConnections(t *testing.T) {
	r := router(t, RouterConfig{Listen: Listen{Limits: Limits{MaxConns: 3}}})
	var good []*Req
	for range 3 {
		good = append(good, dialReq(t, r.Addr()))
	}

	wantRefused(t, r.Addr())
	good[0].Close()
	eventually(t, "room", func() bool { return r.Stats().Conns == 2 })
	wantEcho(t, dialReq(t, r.Addr()), "room again")

	r = router(t, RouterConfig{Listen: Listen{Limits: Limits{MaxPerSource: 2}}})
	a := dialReq(t, r.Addr())
	dialReq(t, r.Addr())
	wantRefused(t, r.Addr())
	a.Close()
	eventually(t, "room", func() bool { return r.Stats().Conns == 1 })
	wantEcho(t, dialReq(t, r.Addr()), "room again")

	if s := r.Stats(); s.Refused != 1 {
		t.Errorf("stats %+v", s)
	}
}

// A DEALER that requests much and never reads does not delay others, and the listener closes its
// connection.
func TestAttack24DealerThatNeverReads(t *testing.T) {
	answer := make([]byte, 8<<20)
	r := router(t,
		RouterConfig{
			Concurrency: 2,
			WriteStall:  300 * time.Millisecond,
			Handler: func(_ context.Context, _ Peer, b []byte) ([]byte, bool) {
				if string(b) == "much" {
					return answer, true
				}
				return b, true
			},
		})

	var stuck []*raw
	for range 5 {
		d := shake(t, r.Addr(), "DEALER")
		d.send(bytes.Repeat(appendMessage(nil, nil, []byte("much")), 100))
		stuck = append(stuck, d)
	}

	good := dialReq(t, r.Addr())
	for range 100 {
		wantEcho(t, good, "quick")
	}

	eventually(t, "cut off", func() bool { return r.Stats().Stalled == 5 })
	for _, d := range stuck {
		d.wantClosed()
	}

	if n := r.Stats().Requests; n > 100+5*3 {
		t.Errorf("%d requests handled although nobody read the answers", n)
	}
}

// Attack row 24: messages for a subscriber that does not read wait in a bounded queue, then they
// are dropped, then its connection is closed. All other subscribers get every message.
func TestAttack24StalledSubscriber(t *testing.T) {
	p := publisher(t, PubConfig{MaxQueue: 50, WriteStall: 4 * time.Second})
	stuck := shake(t, p.Addr(), "SUB")
	_ = stuck.Conn.(*net.TCPConn).SetReadBuffer(4096)
	stuck.send(appendCommand(nil, "SUBSCRIBE", nil))
	var good []*Sub
	for range 3 {
		good = append(good, dialSub(t, p.Addr(), ""))
	}

	subscribed(t, p, 4)
	body := strings.Repeat("x", 100<<10)
	for n := 0; p.Stats().Dropped == 0; n += 10 {
		if n > 5000 {
			t.Fatalf("nothing dropped: %+v", p.Stats())
		}

		for range 10 {
			publish(t, p, body)
		}

		for _, s := range good {
			for range 10 {
				wantNext(t, s, body)
			}
		}
	}

	eventually(t, "cut off", func() bool { return p.Stats().Stalled == 1 && p.Stats().Conns == 3 })
	stuck.wantClosed()
}

// The bytes of a queue are bounded, too. The messages that a subscriber gets after drops are
// complete and in order.
func TestAttack24QueueBytes(t *testing.T) {
	const size = 256 << 10
	p := publisher(t, PubConfig{MaxQueueBytes: 2 << 20})
	slow := shake(t, p.Addr(), "SUB")
	slow.send(appendCommand(nil, "SUBSCRIBE", nil))
	subscribed(t, p, 1)

	for i := range 100 {
		publish(t, p, strings.Repeat(string(rune('A'+i%26)), size)+string(rune(i)))
	}

	if err := p.Flush(withTimeout(t)); err != nil {
		t.Fatal(err)
	}

	s := p.Stats()
	if s.Slow != 1 || s.Queued > 2<<20+size+16 || s.Dropped == 0 {
		t.Fatalf("stats %+v", s)
	}

	last := -1
	for range s.Sent {
		_, b := slow.frame()
		if len(b) != size+1 || int(b[size]) <= last || b[0] != 'A'+b[size]%26 || b[size-1] != b[0] {
			t.Fatalf("torn message of %d bytes after number %d", len(b), last)
		}
		last = int(b[size])
	}

	eventually(t, "queue empty", func() bool { return p.Stats().Queued == 0 && p.Stats().Slow == 0 })
	publish(t, p, "fresh")
	if _, b := slow.frame(); string(b) != "fresh" {
		t.Errorf("after the queue: %.20q", b)
	}
}

// If a peer floods the listener with PINGs and does not read the PONGs, the listener drops the
// PONGs and does not store them.
func TestAttack24PingFlood(t *testing.T) {
	// With so small a window the kernel may stop the flood for good. Then the heartbeat ends the
	// connection.
	p := publisher(t, PubConfig{WriteStall: 300 * time.Millisecond,
		Listen: Listen{Heartbeat: Heartbeat{Interval: 100 * time.Millisecond, Timeout: 500 * time.Millisecond}}})
	c := shake(t, p.Addr(), "SUB")
	_ = c.Conn.(*net.TCPConn).SetReadBuffer(4096)
	b := bytes.Repeat(appendCommand(nil, "PING", make([]byte, 2+16)), 10_000)
	end := time.Now().Add(patience)
	_ = c.SetWriteDeadline(end)

	for {
		if _, err := c.Write(b); err != nil {
			break // cut off, since it takes nothing
		}
		if s := p.Stats(); s.Queued > 4096 {
			t.Fatalf("%d bytes of PONGs are queued", s.Queued)
		}
	}

	if !time.Now().Before(end) {
		t.Fatal("never cut off")
	}
}

// Attack row 23 in this package: no number of bad packets leaves connections or memory behind.
func TestAttack23ManyBadPackets(t *testing.T) {
	r := router(t, RouterConfig{Concurrency: 4})
	for range 300 {
		c := dialRaw(t, r.Addr())
		_, _ = c.Write(append(appendReady(greeting(), "REQ", ""), 0x80, 0x80))
		_, _ = io.Copy(io.Discard, c)
	}
	wantEcho(t, dialReq(t, r.Addr()), "fine")
	eventually(t, "closed", func() bool { return r.Stats().Conns == 1 })
}
