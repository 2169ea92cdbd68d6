//go:build attack

package attack

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"saltern/master/crypt"
	"saltern/test/minion"
)

// orders say what the stranger does.
type orders struct {
	Shapes  []string // connection i has the shape i modulo their number
	Sources []string // his addresses, likewise
	Host    string   // of the node
	Conns   int
	Time    time.Duration
	Open    int // connections opened a second at most; 0: 4,000
	Line    int // bytes a second at most, all connections together; 0: lineRate
	// An accepted minion, for what only those can do.
	ID, Key, Master string
}

// lineRate is the stranger's line: 1 Gbit/s. Between two namespaces of one
// machine many times as much passes, paid for by the processors of the node.
const lineRate = 125 << 20

// effort is what he did, printed as JSON once a second and at the end.
type effort struct {
	Dialled  atomic64 // connections made
	Refused  atomic64 // connections that were not made
	Cut      atomic64 // connections that the node ended
	Messages atomic64
	Bytes    atomic64
	Read     atomic64
	Held     atomic64 // now
	MostHeld atomic64
	Oldest   atomic64 // longest life of a connection, milliseconds
}

type atomic64 struct{ atomic.Int64 }

func (a *atomic64) MarshalJSON() ([]byte, error) { return json.Marshal(a.Load()) }
func (a *atomic64) UnmarshalJSON(b []byte) error {
	var n int64
	err := json.Unmarshal(b, &n)
	a.Store(n)
	return err
}

// greeting and ready are ZMTP 3 with the NULL mechanism (RFC 37).
func greeting(minor byte) []byte {
	g := make([]byte, 64)
	g[0] = 0xff
	g[9] = 0x7f
	g[10] = 3
	g[11] = minor
	copy(g[12:], "NULL")
	return g
}

var (
	readyReq = []byte("\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03REQ")
	readySub = []byte("\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03SUB")
)

// stranger is one run of orders.
type stranger struct {
	orders
	done    effort
	ctx     context.Context
	begun   time.Time
	tickets chan struct{}
	line    struct {
		sync.Mutex
		free time.Time // when the next byte may go
	}
}

func strangerMain(text string) int {
	s := &stranger{begun: time.Now()}
	if err := json.Unmarshal([]byte(text), &s.orders); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}

	prefer(19)
	lim := syscall.Rlimit{Cur: 200000, Max: 200000}
	_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &lim)
	_ = os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte("1024 65000"), 0) // in his own namespace
	var cancel context.CancelFunc
	s.ctx, cancel = signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()

	s.ctx, cancel = context.WithTimeout(s.ctx, s.Time)
	defer cancel()
	s.pace(cmpOr(s.Open, 4000))
	var shapes []shape
	for _, name := range s.Shapes {
		shapes = append(shapes, shapeOf(s, name))
	}

	fmt.Println("ready")
	out := json.NewEncoder(os.Stdout)
	var wg sync.WaitGroup
	for i := range s.Conns {
		wg.Go(func() {
			for n := 0; s.ctx.Err() == nil; n++ {
				s.connection(shapes[i%len(shapes)], s.Sources[i%len(s.Sources)], i, n)
				s.pause(250 * time.Millisecond)
			}
		})
	}

	for s.pause(time.Second) {
		_ = out.Encode(&s.done)
	}

	end := time.AfterFunc(3*time.Second, func() { _ = out.Encode(&s.done); os.Exit(0) })
	defer end.Stop()
	wg.Wait()
	_ = out.Encode(&s.done)

	return 0
}

func cmpOr(a, b int) int {
	if a != 0 {
		return a
	}
	return b
}

func (s *stranger) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-s.ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// pace gives out the right to connect.
func (s *stranger) pace(rate int) {
	s.tickets = make(chan struct{}, 64)
	go func() {
		for t := time.NewTicker(5 * time.Millisecond); ; <-t.C {
			for range max(1, rate/200) {
				select {
				case s.tickets <- struct{}{}:
				case <-s.ctx.Done():
					return
				}
			}
		}
	}()
}

// wait takes n bytes' time on the line.
func (s *stranger) wait(n int) bool {
	s.line.Lock()
	now := time.Now()
	if s.line.free.Before(now.Add(-10 * time.Millisecond)) { // nothing is saved up
		s.line.free = now.Add(-10 * time.Millisecond)
	}
	s.line.free = s.line.free.Add(time.Duration(n) * time.Second / time.Duration(cmpOr(s.Line, lineRate)))
	d := s.line.free.Sub(now)
	s.line.Unlock()
	return d <= time.Millisecond || s.pause(d)
}

// shape is one way to misuse a connection.
type shape struct {
	port   string
	buffer int // receive buffer; 0: the system's
	use    func(c *strangerConn)
}

// strangerConn is one connection of his.
type strangerConn struct {
	*stranger
	net.Conn
	source   string
	number   int
	round    int
	slow     bool // reads at most some 60 KB/s
	closing  chan struct{}
	closeOne sync.Once
}

func (s *stranger) connection(sh shape, source string, number, round int) {
	select {
	case <-s.tickets:
	case <-s.ctx.Done():
		return
	}

	d := s.dialer(source)
	if sh.buffer > 0 {
		d.Control = func(_, _ string, raw syscall.RawConn) error {
			return raw.Control(func(fd uintptr) {
				_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, sh.buffer)
			})
		}
	}

	conn, err := d.DialContext(s.ctx, "tcp", net.JoinHostPort(s.Host, sh.port))
	if err != nil {
		s.done.Refused.Add(1)
		s.pause(time.Second)
		return
	}

	s.done.Dialled.Add(1)
	began := time.Now()
	stop := context.AfterFunc(s.ctx, func() { _ = conn.Close() })
	held := s.done.Held.Add(1)
	for m := s.done.MostHeld.Load(); held > m && !s.done.MostHeld.CompareAndSwap(m, held); m = s.done.MostHeld.Load() {
	}
	c := &strangerConn{
		stranger: s,
		Conn:     conn,
		source:   source,
		number:   number,
		round:    round,
		closing:  make(chan struct{}),
	}

	sh.use(c)
	if stop() {
		s.done.Cut.Add(1)
	}

	_ = conn.Close()
	s.done.Held.Add(-1)
	age := time.Since(began).Milliseconds()
	for m := s.done.Oldest.Load(); age > m && !s.done.Oldest.CompareAndSwap(m, age); m = s.done.Oldest.Load() {
	}
}

func (s *stranger) dialer(source string) net.Dialer {
	return net.Dialer{Timeout: 10 * time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
}

// send writes all of b, as long as it takes.
func (c *strangerConn) send(b []byte) bool {
	for len(b) > 0 {
		select {
		case <-c.closing:
			return false
		default:
		}

		part := b[:min(len(b), 64<<10)]
		if !c.wait(len(part)) {
			return false
		}

		n, err := c.Write(part)
		c.done.Bytes.Add(int64(n))
		b = b[n:]
		if err != nil {
			return false
		}
	}

	return true
}

// message sends one and counts it.
func (c *strangerConn) message(b []byte) bool {
	if !c.send(b) {
		return false
	}
	c.done.Messages.Add(1)
	return true
}

// handshake makes the connection one of ZMTP 3.minor and reads on in the
// background, everything, or slowly.
func (c *strangerConn) handshake(minor byte) bool {
	if !c.send(greeting(minor)) {
		return false
	}
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.ReadFull(c, make([]byte, 64)); err != nil {
		return false
	}
	_ = c.SetReadDeadline(time.Time{})
	if !c.send(readyReq) {
		return false
	}
	go c.drain()
	return true
}

func (c *strangerConn) drain() {
	defer c.closeOne.Do(func() { close(c.closing); _ = c.Close() })
	b := make([]byte, 6<<10)
	for {
		n, err := c.Read(b)
		c.done.Read.Add(int64(n))
		if err != nil || c.slow && !c.pause(100*time.Millisecond) {
			return
		}
	}
}

// hold waits until the node hangs up, d at most.
func (c *strangerConn) hold(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-c.closing:
	case <-c.ctx.Done():
	case <-t.C:
	}
}

// asMinion signs in as the accepted minion of the orders.
func (s *stranger) asMinion(source string) (*minion.Minion, error) {
	key, err := crypt.LoadPrivate(s.Key, "")
	if err != nil {
		return nil, err
	}

	text, err := os.ReadFile(s.Master)
	if err != nil {
		return nil, err
	}

	master, err := crypt.ParsePublic(text)
	if err != nil {
		return nil, err
	}

	m, err := minion.New(minion.Config{
		ID:      s.ID,
		Key:     key,
		Master:  master,
		Request: net.JoinHostPort(s.Host, "4506"),
		Dialer:  s.dialer(source),
	})
	if err != nil {
		return nil, err
	}

	if err := m.SignIn(s.ctx); err != nil {
		m.Close()
		return nil, err
	}

	return m, nil
}

// newKey is a public key that looks like one and that nobody has the other half of.
func newKey() string {
	b := make([]byte, 256)
	_, _ = rand.Read(b)
	b[0] |= 0xc0
	b[255] |= 1
	pem, err := crypt.PublicPEM(&rsa.PublicKey{N: new(big.Int).SetBytes(b), E: 65537})
	if err != nil {
		panic(err)
	}
	return pem
}

var errUnknownShape = errors.New("unknown shape")
