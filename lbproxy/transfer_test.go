package lbproxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"saltern/internal/proxyproto"
	"saltern/test/await"
)

// desk is a master that notes what it is asked and said, and does what a test says.
type desk struct {
	*fake
	mu    sync.Mutex
	asked []string
	subs  []string
	act   func(d *desk, c net.Conn, body []byte) bool // false closes
}

func newDesk(t testing.TB, kind string, act func(d *desk, c net.Conn, body []byte) bool) *desk {
	d := &desk{act: act}
	d.fake = newFake(t, "127.0.0.1:0", func(c net.Conn) { d.talk(c, kind) })
	return d
}

func (d *desk) talk(c net.Conn, kind string) {
	r, err := hello(c, kind)
	if err != nil {
		return
	}

	for {
		body, err := readReply(c, r)
		if err != nil {
			return
		}

		d.mu.Lock()
		if kind == "PUB" {
			d.subs = append(d.subs, string(body))
		} else {
			d.asked = append(d.asked, string(body))
		}

		act := d.act
		d.mu.Unlock()
		if !act(d, c, body) {
			return
		}
	}
}

func (d *desk) list() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(append(append([]string(nil), d.asked...), d.subs...), "|")
}

func reply(c net.Conn, body []byte) bool {
	_, err := c.Write(appendFrame(appendFrame(nil, flagMore, nil), 0, body))
	return err == nil
}

func answers(_ *desk, c net.Conn, body []byte) bool { return reply(c, append([]byte("to "), body...)) }

// says publishes a job for each subscription.
func says(_ *desk, c net.Conn, body []byte) bool {
	_, err := c.Write(appendFrame(nil, 0, append([]byte("job for "), body...)))
	return err == nil
}

func ends(*desk, net.Conn, []byte) bool { return false }

func request(body string) []byte {
	return appendFrame(appendFrame(nil, flagMore, nil), 0, []byte(body))
}

const sealed = "\x82\xa3enc\xa3aes\xa4load\xc4\x04"

// asking is a client of the request port behind its handshake.
func asking(t testing.TB, addr string) (*net.TCPConn, *bufio.Reader) {
	t.Helper()
	c := dial(t, addr)
	r, err := hello(c, "REQ")
	if err != nil {
		t.Fatal(err)
	}
	return c, r
}

// subscribed is a client of the publish port that a desk which says has given a job.
func subscribed(t testing.TB, addr string) (*net.TCPConn, *bufio.Reader) {
	t.Helper()
	c := dial(t, addr)
	r, err := hello(c, "SUB")
	if err == nil {
		_, err = c.Write(appendFrame(nil, 0, []byte("\x01one")))
	}
	if err != nil {
		t.Fatal(err)
	}
	gets(t, c, r, "job for \x01one")
	return c, r
}

func gets(t testing.TB, c net.Conn, r *bufio.Reader, want string) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	body, err := readReply(c, r)
	if err != nil || string(body) != want {
		t.Fatalf("%q, not %.80q: %v", body, want, err)
	}
}

func closes(t testing.TB, c net.Conn, r *bufio.Reader) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	if body, err := readReply(c, r); err == nil {
		t.Fatalf("answered: %q", body)
	} else if ne, ok := err.(net.Error); ok && ne.Timeout() {
		t.Fatal("neither answered nor closed")
	}
}

// two starts a proxy in front of a, which gets the first session, and b.
func two(t testing.TB, mode Mode, a, b *desk, change ...func(*Config)) (*Proxy, string) {
	cfg := testConfig(mode, a.fake, b.fake)
	cfg.Backends[1].Weight = 1
	cfg.Backends[0].Weight = 1000
	for _, f := range change {
		f(&cfg)
	}
	p, addr := start(t, cfg)
	upPorts(t, p, 2)
	return p, addr
}

// TestPendingRequest: what becomes of a request whose master ends without an answer.
func TestPendingRequest(t *testing.T) {
	t.Parallel()
	halfAnswer := func(_ *desk, c net.Conn, _ []byte) bool {
		b := request("half of this")
		_, _ = c.Write(b[:len(b)-4])
		time.Sleep(50 * time.Millisecond)
		return false
	}

	for _, c := range []struct {
		name, body string
		first      func(*desk, net.Conn, []byte) bool
		change     func(*Config)
		again      bool
	}{
		{"sealed", sealed + "1234", ends, nil, true},
		{"sealed, strings as bytes", "\x82\xc4\x03enc\xc4\x03aes\xc4\x04load", ends, nil, true},
		{"a sign-in", "\x82\xa3enc\xa5clear\xa4load\x82\xa3cmd\xa5_auth\xa2id\xa2m1", ends, nil, true},
		{"a tool's job",
			"\x82\xa3enc\xa5clear\xa4load\x82\xa3cmd\xa7publish\xa3fun\xa8test.arg\xa3arg\x91\xaa\xa3cmd\xa5_auth",
			ends, nil, false},
		{"a tool's wheel", "\x82\xa3enc\xa5clear\xa4load\x81\xa3cmd\xa5wheel", ends, nil, false},
		{"no request of Salt", "abc", ends, nil, false},
		{"half an answer", sealed + "1234", halfAnswer, nil, false},
		{"too large to keep", sealed + strings.Repeat("x", 1<<20), ends, nil, false},
		{"just small enough", sealed + strings.Repeat("x", 15_000), ends, nil, true},
		{"turned off", sealed + "1234", ends, func(c *Config) { c.Move.Off = true }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a, b := newDesk(t, "ROUTER", answers), newDesk(t, "ROUTER", answers)
			if c.change == nil {
				c.change = func(*Config) {}
			}

			p, addr := two(t, Request, a, b, c.change)
			conn, r := asking(t, addr)
			if _, err := conn.Write(request("first")); err != nil {
				t.Fatal(err)
			}

			gets(t, conn, r, "to first")
			a.mu.Lock()
			a.act = c.first
			a.mu.Unlock()

			if _, err := conn.Write(request(c.body)); err != nil {
				t.Fatal(err)
			}

			if !c.again {
				closes(t, conn, r)
				if b.list() != "" {
					t.Errorf("the other one was asked %.80q", b.list())
				}
			} else {
				gets(t, conn, r, "to "+c.body)
				if _, err := conn.Write(request("and more")); err != nil {
					t.Fatal(err)
				}

				gets(t, conn, r, "to and more")
				if b.list() != c.body+"|and more" || a.list() != "first|"+c.body {
					t.Errorf("asked: %.80q, %.80q", a.list(), b.list())
				}
			}

			conn.Close()
			eventually(t, "nothing is kept", func() bool { return p.Status().Kept == 0 && p.Status().Sessions == 0 })
		})
	}
}

// TestHalfRequest: a request that has half arrived when its master ends goes on
// to the other one, whatever it is: nobody has seen it whole.
func TestHalfRequest(t *testing.T) {
	t.Parallel()
	a, b := newDesk(t, "ROUTER", answers), newDesk(t, "ROUTER", answers)
	p, addr := two(t, Request, a, b)
	conn, r := asking(t, addr)
	msg := request("publish this")
	if _, err := conn.Write(msg[:7]); err != nil {
		t.Fatal(err)
	}

	eventually(t, "it is on its way", func() bool { return p.Status().Kept > 0 })
	a.stop()
	eventually(t, "moved", func() bool { return p.Status().Given == 1 })
	if _, err := conn.Write(msg[7:]); err != nil {
		t.Fatal(err)
	}

	gets(t, conn, r, "to publish this")
}

// TestPoisonRequest: a request at which masters end is not carried from one to
// the next for ever.
func TestPoisonRequest(t *testing.T) {
	t.Parallel()
	a, b := newDesk(t, "ROUTER", ends), newDesk(t, "ROUTER", ends)
	_, addr := two(t, Request, a, b)
	conn, r := asking(t, addr)
	if _, err := conn.Write(request(sealed)); err != nil {
		t.Fatal(err)
	}
	closes(t, conn, r)
	if a.list() != sealed || b.list() != sealed {
		t.Errorf("asked: %q, %q", a.list(), b.list())
	}
}

// TestSubscriberMoves: the next master is told the subscriptions that hold now,
// and the client hears nothing of the change.
func TestSubscriberMoves(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"lost", "drained"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			a, b := newDesk(t, "PUB", says), newDesk(t, "PUB", says)
			p, addr := two(t, Publish, a, b,
				func(c *Config) { c.Rebalance = Rebalance{Off: true, Rate: 1, Quiet: 20 * time.Millisecond} })
			c := dial(t, addr)
			r, err := hello(c, "SUB")
			if err != nil {
				t.Fatal(err)
			}

			for _, f := range [][]byte{appendFrame(nil, 0, []byte("\x01one")),
				appendFrame(nil, flagCommand, []byte("\x04PONG")),
				appendFrame(nil, 0, []byte("\x01two"))} {
				if _, err := c.Write(f); err != nil {
					t.Fatal(err)
				}
			}

			gets(t, c, r, "job for \x01one")
			gets(t, c, r, "job for \x01two")
			if how == "lost" {
				a.stop()
			} else if err := p.Drain("b0"); err != nil {
				t.Fatal(err)
			}

			gets(t, c, r, "job for \x01one")
			gets(t, c, r, "job for \x01two")
			if b.list() != "\x01one|\x01two" {
				t.Errorf("%q", b.list())
			}

			if st := p.Status(); st.Given != 1 || len(st.Frontends[0].Ended) != 0 {
				t.Errorf("%d moved, ended: %v", st.Given, st.Frontends[0].Ended)
			}
		})
	}
}

// tells gives a publisher that passes on what the headers of its sessions say: whether a
// session was moved, what it may lack for at least so long, and how old it is.
func tells(t *testing.T, least time.Duration, told chan<- string) *desk {
	d := &desk{act: says}
	d.fake = newFake(t, "127.0.0.1:0", func(c net.Conn) {
		var b bytes.Buffer
		src, err := proxyproto.Read(io.TeeReader(c, &b))
		if err != nil {
			return
		}
		if src.IsValid() {
			m, moved := proxyproto.Moved(b.Bytes())
			within := func(d time.Duration) bool { return d >= least && d < least+20*time.Second }
			told <- fmt.Sprintf("moved %t, silent %t, aged %t", moved, within(m.Silent), within(m.Age))
		}
		d.talk(c, "PUB")
	})
	return d
}

// TestMovedIsTold: the next master is told for how long the last one had said nothing, and how
// old the session is, a master with which a session begins nothing of the kind.
func TestMovedIsTold(t *testing.T) {
	t.Parallel()
	const silent = 300 * time.Millisecond
	told := make(chan string, 8)
	a, b := tells(t, silent, told), tells(t, silent, told)
	_, addr := two(t, Publish, a, b, func(c *Config) { c.Frontends[0].ProxyV2 = true })
	c, r := subscribed(t, addr)
	await.Holds(t, silent, "no word of the move", func() bool { return len(told) == 1 })
	a.stop()
	gets(t, c, r, "job for \x01one")

	for _, want := range []string{"moved false, silent false, aged false", "moved true, silent true, aged true"} {
		if got := <-told; got != want {
			t.Errorf("told %q, not %q", got, want)
		}
	}
}

// TestMovedTwiceIsTold: what a session may lack from before a move it may lack still when the
// master to which it was moved ends at once: that one may not have given it yet.
func TestMovedTwiceIsTold(t *testing.T) {
	t.Parallel()
	const silent = 300 * time.Millisecond
	told := make(chan string, 8)
	a, b := tells(t, silent, told), tells(t, silent, told)
	p, addr := two(t, Publish, a, b, func(c *Config) {
		c.Frontends[0].ProxyV2 = true
		c.Rebalance = Rebalance{Off: true, Rate: 1, Quiet: 20 * time.Millisecond}
	})
	c, r := subscribed(t, addr)
	await.Holds(t, silent, "no word of the move", func() bool { return len(told) == 1 })
	for _, from := range []string{"b0", "b1"} {
		if err := p.Drain(from); err != nil {
			t.Fatal(err)
		}
		gets(t, c, r, "job for \x01one")
		if err := p.Undrain(from); err != nil {
			t.Fatal(err)
		}
	}
	<-told // it began
	for _, to := range []string{"b1", "b0"} {
		if got := <-told; got != "moved true, silent true, aged true" {
			t.Errorf("%s was told %q", to, got)
		}
	}
}

// TestMovesAtOnce: a subscriber that was given to a master to relieve another one moves
// again when that master ends right afterwards.
func TestMovesAtOnce(t *testing.T) {
	t.Parallel()
	a, b := newDesk(t, "PUB", says), newDesk(t, "PUB", says)
	p, addr := two(t, Publish, a, b,
		func(c *Config) { c.Rebalance = Rebalance{Off: true, Rate: 1, Quiet: 20 * time.Millisecond} })
	c, r := subscribed(t, addr)

	if err := p.Drain("b0"); err != nil {
		t.Fatal(err)
	}

	gets(t, c, r, "job for \x01one")
	if err := p.Undrain("b0"); err != nil {
		t.Fatal(err)
	}

	b.stop()
	gets(t, c, r, "job for \x01one")
	if st := p.Status(); st.Given != 2 || a.list() != "\x01one|\x01one" {
		t.Errorf("%d moved; %q", st.Given, a.list())
	}
}

// TestUnheard: a client whose master ends before it has said a word begins with another
// one, wherever in its own beginning it is.
func TestUnheard(t *testing.T) {
	t.Parallel()
	whole := appendFrame(greeting(), flagCommand, appendReady(nil, "REQ"))
	for _, said := range []int{0, 10, 64, 70, len(whole)} {
		for _, reset := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d bytes said, reset %v", said, reset), func(t *testing.T) {
				t.Parallel()
				var mute atomic.Bool
				a, b := &desk{act: answers}, newDesk(t, "ROUTER", answers)
				a.fake = newFake(t, "127.0.0.1:0", func(c net.Conn) {
					if !mute.Load() {
						a.talk(c, "ROUTER")
						return
					}

					_, _ = io.CopyN(io.Discard, c, int64(said))
					if reset {
						_ = c.(*net.TCPConn).SetLinger(0)
					}
				})

				p, addr := two(t, Request, a, b)
				mute.Store(true)
				c := dial(t, addr)
				if _, err := c.Write(whole[:said]); err != nil {
					t.Fatal(err)
				}

				r := bufio.NewReader(c)
				_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
				if err := readGreeting(r); err != nil {
					t.Fatal(err)
				}

				if _, err := c.Write(slices.Concat(whole[said:], request(sealed+"1234"))); err != nil {
					t.Fatal(err)
				}

				if _, _, err := readFrame(r); err != nil {
					t.Fatal(err)
				}

				gets(t, c, r, "to "+sealed+"1234")

				// A reset at once may be seen as that of the dial.
				if st := p.Status(); (st.Given != 1 && said > 0) || len(st.Frontends[0].Ended) != 0 {
					t.Errorf("%d moved, ended: %v", st.Given, st.Frontends[0].Ended)
				}

				// From now on it is a session like any other.
				mute.Store(false)
				lastly(t, c, r, p, b)
			})
		}
	}
}

// lastly has a session whose master ends answered by the other one.
func lastly(t *testing.T, c net.Conn, r *bufio.Reader, p *Proxy, holder *desk) {
	t.Helper()
	upPorts(t, p, 2)
	holder.stop()
	if _, err := c.Write(request(sealed + "5678")); err != nil {
		t.Fatal(err)
	}
	gets(t, c, r, "to "+sealed+"5678")
}

// TestOtherVersion: a client is not carried to a master to which it would have
// spoken differently.
func TestOtherVersion(t *testing.T) {
	t.Parallel()
	a := newDesk(t, "ROUTER", answers)
	b := &desk{fake: newFake(t, "127.0.0.1:0", func(c net.Conn) {
		g := greeting()
		g[11] ^= 1
		_, _ = c.Write(appendFrame(g, flagCommand, appendReady(nil, "ROUTER")))
		_, _ = io.Copy(io.Discard, c)
	})}

	p, addr := two(t, Request, a, b)
	conn, r := asking(t, addr)
	if _, err := conn.Write(request("first")); err != nil {
		t.Fatal(err)
	}

	gets(t, conn, r, "to first")
	a.stop()
	closes(t, conn, r)
	if n := p.Status().Given; n != 0 {
		t.Errorf("%d moved", n)
	}
}

// TestMastersComeAndGo: clients ask without a pause while masters end at any
// moment; each request has its own answer, or the connection ends. Interrupted
// and shortened system calls are no excuse.
func TestMastersComeAndGo(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 7))
			desks := []*desk{newDesk(t, "ROUTER", answers), newDesk(t, "ROUTER", answers),
				newDesk(t, "ROUTER", answers)}
			cfg := testConfig(Request, desks[0].fake, desks[1].fake, desks[2].fake)
			p, addr := start(t, cfg, func(p *Proxy) {
				p.kernel = &rough{kernel: linux{}, rng: rand.New(rand.NewPCG(seed, 2))}
			})
			upPorts(t, p, 3)
			var clients sync.WaitGroup
			stop := make(chan struct{})
			var done, broken int
			var mu sync.Mutex
			for i := range 8 {
				clients.Go(func() {
					for n := 0; ; {
						conn, err := net.Dial("tcp", addr)
						if err != nil {
							t.Error(err)
							return
						}

						r, err := hello(conn, "REQ")
						for err == nil {
							n++
							text := fmt.Sprintf("%s%d %d %s", sealed, i, n, strings.Repeat("z", n%5*3_500))
							if _, err = conn.Write(request(text)); err != nil {
								break
							}

							_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
							var body []byte
							if body, err = readReply(conn, r); err == nil && string(body) != "to "+text {
								t.Errorf("request %d of %d: got %.60q", n, i, body)
								conn.Close()
								return
							}

							if ne, ok := err.(net.Error); ok && ne.Timeout() {
								t.Errorf("request %d of %d: no answer", n, i)
							}

							mu.Lock()
							done++
							mu.Unlock()

							select {
							case <-stop:
								conn.Close()
								return
							default:
							}
						}

						conn.Close()
						mu.Lock()
						broken++
						mu.Unlock()

						select {
						case <-stop:
							return
						case <-time.After(5 * time.Millisecond):
						}
					}
				})
			}

			for range 10 {
				d := desks[rng.IntN(3)]
				at := d.addr.String()
				d.stop()
				time.Sleep(time.Duration(50+rng.IntN(150)) * time.Millisecond)

				if err := d.start(at); err != nil {
					t.Fatal(err)
				}

				upPorts(t, p, 3)
			}

			close(stop)
			clients.Wait()
			given := p.Status().Given
			t.Logf("%d answers, %d moved, %d connections ended", done, given, broken)

			if given == 0 {
				t.Error("no session was moved")
			}

			eventually(t, "nothing is kept", func() bool { return p.Status().Kept == 0 && p.Status().Sessions == 0 })
		})
	}
}

// FuzzPrelude: a prelude is found the same in pieces as in one, and never
// beyond what there is.
func FuzzPrelude(f *testing.F) {
	whole := appendFrame(greeting(), flagCommand, appendReady(nil, "SUB"))
	f.Add(append(whole, appendFrame(nil, 0, []byte{1})...))
	f.Add(whole[:70])
	f.Add(bytes.Repeat([]byte{0xff}, 80))
	f.Add(append(greeting(), 0, 0, '0')) // a frame that is no READY
	f.Fuzz(func(t *testing.T, b []byte) {
		n, ok := preludeLen(b)
		if n < 0 || n > len(b) || n > 0 && n < greetingLen {
			t.Fatalf("%d of %d", n, len(b))
		}

		for i := range b {
			m, fine := preludeLen(b[:i])
			if m > 0 && (m != n || !ok) || !fine && ok {
				t.Fatalf("%d bytes: %d %v; all: %d %v", i, m, fine, n, ok)
			}
		}

		if want, fine := helloRest(b); fine && want < 0 {
			t.Fatalf("%d to come", want)
		}
	})
}
