package lbproxy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// master is a ZMTP peer that behaves like a Salt master to a check.
func master(answer []byte) func(net.Conn) {
	return func(c net.Conn) {
		// As libzmq does: ten bytes first, the rest of the greeting later.
		g := greeting()
		c.Write(g[:10])
		if _, err := io.ReadFull(c, make([]byte, greetingLen)); err != nil {
			return
		}

		c.Write(g[10:])
		c.Write(appendFrame(nil, flagCommand, appendReady(nil, "ROUTER")))
		ready := make([]byte, 2+len(appendReady(nil, "REQ")))
		if _, err := io.ReadFull(c, ready); err != nil {
			return
		}

		c.Write(appendFrame(nil, flagCommand, []byte("\x04PING\x00\x00ctx")))
		want := appendFrame(appendFrame(nil, flagMore, nil), 0, pingRequest())
		got := make([]byte, len(want))
		if _, err := io.ReadFull(c, got); err == nil && bytes.Equal(got, want) {
			c.Write(appendFrame(appendFrame(nil, flagMore, nil), 0, answer))
			pong := make([]byte, 10)
			if _, err := io.ReadFull(c, pong); err == nil && string(pong) != "\x04\x08\x04PONGctx" {
				c.Write([]byte("bad pong"))
			}
		}

		io.Copy(io.Discard, c)
	}
}

const (
	// What a 3008 master answers to the check: the load comes back.
	pong      = "\x81\xa3cmd\xa4ping"
	pongEnv   = "\x82\xa3enc\xa5clear\xa4load\x81\xa3cmd\xa4ping"
	unwell    = "\x83\xa3ret\xc2\xadcluster_retry\xc3\xadsaltern_fault\xd9\x33this master cannot keep jobs: input/output error\n\x00\x1b"
	notReady  = "\x82\xa3enc\xa5clear\xa4load\x82\xa3ret\xc2\xadcluster_retry\xc3"
	badLoad   = "\xa8bad load"
	routingER = "\x81\xa5error\xadRouting error"
)

func TestProbeGrades(t *testing.T) {
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	dead.Close()
	silent := newFake(t, "127.0.0.1:0", func(c net.Conn) { io.Copy(io.Discard, c) })
	for _, c := range []struct {
		name  string
		serve func(net.Conn)
		addr  string
		check Check
		want  grade
	}{
		{"pong", master([]byte(pong)), "", CheckPing, gradeUp},
		{"pong in an envelope", master([]byte(pongEnv)), "", CheckPing, gradeUp},
		{"not ready", master([]byte(notReady)), "", CheckPing, gradeJoining},
		{"unwell", master([]byte(unwell)), "", CheckPing, gradeUnwell},
		{"bad load", master([]byte(badLoad)), "", CheckPing, gradeSilent},
		{"routing error", master([]byte(routingER)), "", CheckPing, gradeSilent},
		{"not msgpack", master([]byte("\xc1")), "", CheckPing, gradeSilent},
		{"ready only", master(nil), "", CheckReady, gradeUp},
		{"refused", nil, dead.Addr().String(), CheckPing, gradeGone},
		{"silent", nil, silent.addr.String(), CheckPing, gradeSilent},
		{"silent, port only", nil, silent.addr.String(), CheckTCP, gradeUp},
		{"echo is not a master", echo, "", CheckReady, gradeSilent},
		{"closes", func(c net.Conn) {}, "", CheckReady, gradeSilent},
		{"huge frame", func(c net.Conn) {
			c.Write(greeting())
			c.Write([]byte{flagCommand | flagLong, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
			io.Copy(io.Discard, c)
		}, "", CheckReady, gradeSilent},
		{"endless commands", func(c net.Conn) {
			c.Write(greeting())
			for {
				if _, err := c.Write(appendFrame(nil, flagCommand, appendReady(nil, "ROUTER"))); err != nil {
					return
				}
			}
		}, "", CheckPing, gradeSilent},
	} {
		t.Run(c.name, func(t *testing.T) {
			addr := c.addr
			if c.serve != nil {
				addr = newFake(t, "127.0.0.1:0", c.serve).addr.String()
			}

			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			var d net.Dialer
			pr := &prober{
				check: c.check,
				dial:  func(ctx context.Context, a string) (net.Conn, error) { return d.DialContext(ctx, "tcp", a) },
			}

			err := pr.probe(ctx, addr, Request)
			if g := gradeOf(err); g != c.want {
				t.Errorf("grade %d, want %d: %v", g, c.want, err)
			}
		})
	}
}

// TestProbeDoesNotPipeline: libzmq drops a peer that sends greeting, READY and
// a message in one segment.
func TestProbeDoesNotPipeline(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	done := make(chan error, 1)
	go func() { done <- zmtpProbe(a, bufio.NewReader(a), Request, true) }()
	hello := greetingLen + 2 + len(appendReady(nil, "REQ"))
	buf := make([]byte, 1024)
	if n, err := b.Read(buf); err != nil || n != hello {
		t.Fatalf("first write %d bytes, want %d, %v", n, hello, err)
	}

	b.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := b.Read(buf); err == nil {
		t.Fatalf("%d bytes before READY was answered", n)
	}

	b.Close()
	if err := <-done; !errors.Is(err, io.EOF) {
		t.Errorf("probe: %v", err)
	}
}

func FuzzProbe(f *testing.F) {
	ready := appendFrame(greeting(), flagCommand, appendReady(nil, "ROUTER"))
	for _, answer := range []string{pong, pongEnv, notReady, unwell, badLoad} {
		f.Add(appendFrame(appendFrame(bytes.Clone(ready), flagMore, nil), 0, []byte(answer)))
	}

	f.Add(append(bytes.Clone(ready), flagLong, 255, 255, 255, 255, 255, 255, 255, 255))
	f.Fuzz(func(t *testing.T, b []byte) {
		var out bytes.Buffer
		_ = zmtpProbe(&out, bufio.NewReader(bytes.NewReader(b)), Request, true)
		_ = askPong(&out, bufio.NewReader(bytes.NewReader(b)))
		if out.Len() > 2*len(b)+1024 {
			t.Fatalf("%d bytes sent for %d", out.Len(), len(b))
		}
		_ = pingAnswer(b)
	})
}

func TestFrameRoundTrip(t *testing.T) {
	for _, n := range []int{0, 1, 255, 256, maxProbeFrame} {
		b := appendFrame(nil, flagMore, make([]byte, n))
		if n > 255 && binary.BigEndian.Uint64(b[1:]) != uint64(n) {
			t.Errorf("length of %d", n)
		}
		var tr tracker
		tr.feed(greeting())
		tr.feed(b)
		if tr.state != trackFlags || !tr.marks.has(markMore) {
			t.Errorf("%d: %+v", n, tr)
		}
	}
}

// TestProbeReuses: checks of a master that is well share connections; one that
// says nothing any more, or goes away, is seen by the next check.
func TestProbeReuses(t *testing.T) {
	for _, mode := range []Mode{Request, Publish} {
		t.Run(string(mode), func(t *testing.T) {
			s := newSalt(t)
			f := map[Mode]*fake{Request: s.req, Publish: s.pub}[mode]
			var dials int
			var last net.Conn
			var d net.Dialer
			pr := &prober{check: CheckPing, dial: func(ctx context.Context, a string) (c net.Conn, err error) {
				dials++
				last, err = d.DialContext(ctx, "tcp", a)
				return last, err
			}}
			defer pr.reuse.close()

			check := func(limit time.Duration) error {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				return pr.probe(ctx, f.addr.String(), mode)
			}

			for i := range 20 {
				if err := check(20 * time.Second); err != nil {
					t.Fatalf("check %d: %v", i, err)
				}
			}

			if dials > 7 {
				t.Errorf("%d connections for 20 checks", dials)
			}

			for pr.reuse.conn == nil {
				if err := check(20 * time.Second); err != nil {
					t.Fatal(err)
				}
			}

			last.Close() // as a master that was started anew
			before := dials
			if err := check(20 * time.Second); err != nil || dials != before+1 {
				t.Errorf("after the connection ended: %v, %d connections more", err, dials-before)
			}

			for pr.reuse.conn == nil {
				if err := check(20 * time.Second); err != nil {
					t.Fatal(err)
				}
			}

			own, other := net.Pipe() // nobody answers
			defer other.Close()
			go io.Copy(io.Discard, other) // ends with the pipe
			_ = pr.reuse.conn.Close()
			pr.reuse.conn, pr.reuse.reader = own, bufio.NewReader(own)

			if g := gradeOf(check(100 * time.Millisecond)); g != gradeSilent {
				t.Errorf("grade %d of a master that is silent", g)
			}

			if pr.reuse.off {
				t.Error("it has answered before")
			}
		})
	}
}

// TestProbeReuseNotWanted: who leaves a PING unanswered is asked anew each time.
func TestProbeReuseNotWanted(t *testing.T) {
	mute := newFake(t, "127.0.0.1:0", func(c net.Conn) {
		if _, err := hello(c, "PUB"); err == nil {
			io.Copy(io.Discard, c)
		}
	})

	var d net.Dialer
	pr := &prober{
		check: CheckReady,
		dial:  func(ctx context.Context, a string) (net.Conn, error) { return d.DialContext(ctx, "tcp", a) },
	}

	bad := 0
	for range 12 {
		limit := 20 * time.Second
		if pr.reuse.conn != nil {
			limit = 100 * time.Millisecond
		}

		ctx, cancel := context.WithTimeout(t.Context(), limit)
		if pr.probe(ctx, mute.addr.String(), Publish) != nil {
			bad++
		}

		cancel()
	}

	if bad != 1 {
		t.Errorf("%d checks failed, want one", bad)
	}
}
