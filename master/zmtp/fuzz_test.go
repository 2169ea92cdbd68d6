package zmtp

import (
	"bytes"
	"context"
	"io"
	"net"
	"testing"
	"time"
)

func seeds(f *testing.F) {
	for _, name := range []string{"zmtp_req_min6_c2s.bin", "zmtp_req_min8_c2s.bin", "zmtp_sub_c2s.bin"} {
		f.Add(vector(f, name))
	}
	req := appendReady(greeting(), "REQ", "id")
	sub := appendReady(greeting(), "SUB", "")
	f.Add(appendMessage(bytes.Clone(req), nil, vector(f, "ping_req.bin")))
	f.Add(appendMessage(appendCommand(bytes.Clone(req), "PING", []byte{0, 0, 'x'}), []byte("a"), []byte("b"),
		nil, []byte("c")))
	f.Add(appendMessage(bytes.Clone(sub), []byte("\x01topic")))
	f.Add(append(bytes.Clone(req), longHeader(0, 1<<63-1)...))
	f.Add(append(proxyHeader(1, 0x11, proxyAddrs(proxyV4, proxyTo4, "")), req...))
}

// FuzzParse feeds the parsers: they do not panic, and the sizes that they return fit the input.
func FuzzParse(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= greetingSize {
			_, _ = parseGreeting(b[:greetingSize])
		}

		if h, n, err := parseHeader(b); err == nil && n > 0 {
			var flags byte
			if h.more {
				flags = flagMore
			}

			if h.command {
				flags = flagCommand
			}

			again, _, err := parseHeader(appendHeader(nil, flags, int(h.size)))
			if err != nil || again != h {
				t.Fatalf("%+v became %+v, %v", h, again, err)
			}
		}

		if name, body, err := parseCommand(b); err == nil && len(name)+len(body)+1 != len(b) {
			t.Fatal("command lost bytes")
		}

		if m, err := parseMetadata(b); err == nil && len(m.socketType)+len(m.identity) > len(b) {
			t.Fatal("metadata grew")
		}
	})
}

// script is a connection that delivers given bytes in pieces of a given size, and accepts
// everything that is written.
type script struct {
	net.Conn
	in    []byte
	piece int
}

func (s *script) Read(b []byte) (int, error) {
	if len(s.in) == 0 {
		return 0, io.EOF
	}
	n := copy(b, s.in[:min(len(s.in), s.piece)])
	s.in = s.in[n:]
	return n, nil
}

func (s *script) Write(b []byte) (int, error)      { return len(b), nil }
func (s *script) Close() error                     { return nil }
func (s *script) SetReadDeadline(time.Time) error  { return nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }
func (s *script) RemoteAddr() net.Addr             { return &net.UnixAddr{} }

// FuzzConnection feeds whole connections: both listeners end, release all memory, and handle the
// same messages however the bytes are split.
func FuzzConnection(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		var first []byte
		for i, piece := range []int{1 << 20, 1, 7} {
			var seen []byte
			ln := newPipes()
			r, err := ListenRouter(context.Background(), ln, RouterConfig{
				Listen: Listen{ProxyUnix: true, Linger: -1, Limits: Limits{MaxMessage: 1 << 16}},
				Handler: func(_ context.Context, _ Peer, b []byte) ([]byte, bool) {
					seen = append(append(seen, b...), '|')
					return nil, true
				}})
			if err != nil {
				t.Fatal(err)
			}

			ln.conns <- &script{in: bytes.Clone(b), piece: piece}
			for r.Stats().Accepted == 0 || r.Stats().Conns > 0 {
				time.Sleep(50 * time.Microsecond)
			}

			r.Close()
			if used := r.hub.memory.inUse(); used != 0 {
				t.Fatalf("%d bytes of the budget are lost", used)
			}

			if i == 0 {
				first = seen
			} else if !bytes.Equal(first, seen) {
				t.Fatalf("in pieces of %d bytes: %q, not %q", piece, seen, first)
			}
		}
	})
}
