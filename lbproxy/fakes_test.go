package lbproxy

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// salt is a fake master: both ports answer ZMTP, the request port answers the
// ping, the publish port sends what a test tells it to.
type salt struct {
	pub, req *fake
	answer   atomic.Pointer[string] // to a ping
	stalled  atomic.Bool            // accepts and says nothing
	slow     atomic.Int64           // slow requests that came
	mu       sync.Mutex
	subs     map[net.Conn]bool
}

func newSalt(t testing.TB) *salt {
	s := &salt{subs: map[net.Conn]bool{}}
	ok := pong
	s.answer.Store(&ok)
	s.req = newFake(t, "127.0.0.1:0", s.request)
	s.pub = newFake(t, "127.0.0.1:0", s.publish)
	return s
}

func (s *salt) backend(name string) Backend {
	return Backend{Name: name, Address: "127.0.0.1", PublishPort: s.pub.addr.Port, RequestPort: s.req.addr.Port}
}

// hello is the peer's side of a ZMTP handshake.
func hello(c net.Conn, kind string) (*bufio.Reader, error) {
	if _, err := c.Write(appendFrame(greeting(), flagCommand, appendReady(nil, kind))); err != nil {
		return nil, err
	}
	r := bufio.NewReader(c)
	if err := readGreeting(r); err != nil {
		return nil, err
	}
	_, _, err := readFrame(r)
	return r, err
}

func (s *salt) request(c net.Conn) {
	if s.stalled.Load() {
		io.Copy(io.Discard, c)
		return
	}

	r, err := hello(c, "ROUTER")
	if err != nil {
		return
	}

	for {
		body, err := readReply(c, r)
		if err != nil {
			return
		}

		switch string(body) {
		case "slow":
			s.slow.Add(1)
			time.Sleep(600 * time.Millisecond)
		case "big":
			body = make([]byte, 1<<20)
		case "sealed": // what an accepted minion gets
			body = append([]byte{0xda, 0, 96}, bytes.Repeat([]byte{0x9d, 'a', 0x11}, 32)...)
		default:
			body = []byte(*s.answer.Load())
		}

		if _, err := c.Write(appendFrame(appendFrame(nil, flagMore, nil), 0, body)); err != nil {
			return
		}
	}
}

func (s *salt) publish(c net.Conn) {
	if s.stalled.Load() {
		io.Copy(io.Discard, c)
		return
	}

	r, err := hello(c, "PUB")
	if err != nil {
		return
	}

	s.mu.Lock()
	s.subs[c] = true
	s.mu.Unlock()

	for err == nil {
		_, err = readReply(c, r) // answers PINGs
	}

	s.mu.Lock()
	delete(s.subs, c)
	s.mu.Unlock()
}

// cast sends raw bytes to all subscribers.
func (s *salt) cast(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.subs {
		c.Write(b)
	}
}

// castPieces sends one message in two pieces, to the same subscribers.
func (s *salt) castPieces(a, b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.subs {
		c.Write(a)
	}
	time.Sleep(5 * time.Millisecond)
	for c := range s.subs {
		c.Write(b)
	}
}

// minion holds a publish connection and redials when it is cut.
type minion struct {
	cuts    atomic.Int64
	broken  atomic.Int64 // cut inside a frame
	msgs    atomic.Int64
	greeted atomic.Bool // a master has answered
}

// herd starts n minions that hold publish connections until the test ends. It
// returns when masters have answered them all.
func herd(t testing.TB, addr string, n int) []*minion {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	t.Cleanup(func() { close(stop); wg.Wait() })
	var ms []*minion
	for range n {
		m := &minion{}
		ms = append(ms, m)
		wg.Go(func() {
			for {
				m.hold(addr, stop)
				select {
				case <-stop:
					return
				case <-time.After(10 * time.Millisecond):
					m.cuts.Add(1)
				}
			}
		})
	}

	eventually(t, "minions greeted", func() bool {
		return !slices.ContainsFunc(ms, func(m *minion) bool { return !m.greeted.Load() })
	})
	return ms
}

func (m *minion) hold(addr string, stop chan struct{}) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer c.Close()

	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-stop:
			c.Close()
		case <-done:
		}
	}()

	r, err := hello(c, "SUB")
	if err != nil {
		return
	}

	m.greeted.Store(true)
	for {
		if _, err := r.ReadByte(); err != nil {
			return
		}

		r.UnreadByte()
		flags, _, err := readFrame(r)
		if err != nil {
			m.broken.Add(1)
			return
		}

		if flags&flagCommand == 0 {
			m.msgs.Add(1)
		}
	}
}
