package lbproxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"saltern/internal/proxyproto"
)

// web is a salt-api: it says who asked, and whether it is ready.
type web struct {
	*httptest.Server
	code atomic.Int64 // of /readyz
}

// headed takes the PROXY header off each connection.
type headed struct{ net.Listener }

type told struct {
	net.Conn
	addr net.Addr
}

func (f told) RemoteAddr() net.Addr { return f.addr }

func (h headed) Accept() (net.Conn, error) {
	for {
		c, err := h.Listener.Accept()
		if err != nil {
			return nil, err
		}

		ap, err := proxyproto.Read(c)
		switch {
		case err != nil:
			c.Close()
		case !ap.IsValid():
			return c, nil
		default:
			return told{c, net.TCPAddrFromAddrPort(ap)}, nil
		}
	}
}

func newWeb(t *testing.T, name string, secure, header bool) *web {
	w := &web{}
	w.code.Store(http.StatusOK)
	w.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			rw.WriteHeader(int(w.code.Load()))
			fmt.Fprintln(rw, "the disk is full")
			return
		}
		fmt.Fprint(rw, name, " ", r.RemoteAddr)
	}))

	w.Config.ErrorLog = nil
	if header {
		w.Listener = headed{w.Listener}
	}

	if secure {
		w.StartTLS()
	} else {
		w.Start()
	}

	t.Cleanup(w.Close)
	return w
}

func (w *web) port() int { return w.Listener.Addr().(*net.TCPAddr).Port }

// apiConfig is a front of the API with these behind it.
func apiConfig(webs ...*web) Config {
	cfg := testConfig(API)
	cfg.Frontends[0].Balance, cfg.Frontends[0].ProxyV2 = bySource, true
	cfg.Health.Check = CheckPing
	for i, w := range webs {
		cfg.Backends = append(cfg.Backends, Backend{Name: fmt.Sprint("b", i), Address: "127.0.0.1", APIPort: w.port()})
	}
	return cfg
}

// getFrom asks a front over TLS from an address of this machine.
func getFrom(addr, source string) (string, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
	c := &http.Client{
		Timeout: 10 * time.Second,
		Transport: &http.Transport{DialContext: d.DialContext, DisableKeepAlives: true,
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	}
	res, err := c.Get("https://" + addr + "/")
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return string(b), err
}

// TestAPISource: TLS passes as bytes, servers learn the client's address, a source
// stays at its server while that is up, and goes on at another when it is not.
func TestAPISource(t *testing.T) {
	webs := []*web{newWeb(t, "a", true, true), newWeb(t, "b", true, true), newWeb(t, "c", true, true)}
	p, addr := start(t, apiConfig(webs...))
	upPorts(t, p, 3)
	at := map[string]byte{} // who serves a source
	for i := range 24 {
		source := fmt.Sprint("127.0.1.", i+1)
		for range 3 {
			said, err := getFrom(addr, source)
			if err != nil {
				t.Fatal(err)
			}

			if host, _, _ := net.SplitHostPort(said[2:]); host != source {
				t.Fatalf("%s is %q at the server", source, said)
			}
			if at[source] != 0 && at[source] != said[0] {
				t.Fatalf("%s went from %c to %c", source, at[source], said[0])
			}

			at[source] = said[0]
		}
	}

	gone := at["127.0.1.1"]
	webs[gone-'a'].Close()
	moved := map[byte]int{}
	for source, before := range at {
		said, err := getFrom(addr, source)
		if err != nil || said[0] == gone || before != gone && said[0] != before {
			t.Errorf("%s, at %c before: %q %v", source, before, said, err)
			continue
		}
		moved[said[0]]++
	}

	if len(moved) != 2 {
		t.Errorf("the others have %v", moved)
	}

	if err := p.Drain(fmt.Sprint("b", at["127.0.1.1"]-'a')); err != nil {
		t.Fatal(err)
	}
}

// TestAPIDrain: a server that is drained gets nobody new.
func TestAPIDrain(t *testing.T) {
	p, addr := start(t, apiConfig(newWeb(t, "a", true, true), newWeb(t, "b", true, true)))
	upPorts(t, p, 2)
	said, err := getFrom(addr, "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Drain(fmt.Sprint("b", said[0]-'a')); err != nil {
		t.Fatal(err)
	}
	if now, err := getFrom(addr, "127.0.0.1"); err != nil || now[0] == said[0] {
		t.Errorf("%q, then %q %v", said, now, err)
	}
}

// TestAPIBesideMaster: the API of a node whose master is away gets nobody while
// there is another.
func TestAPIBesideMaster(t *testing.T) {
	cfg := apiConfig(newWeb(t, "a", true, true), newWeb(t, "b", true, true))
	cfg.Frontends = append(cfg.Frontends, Frontend{Name: "request", Mode: Request, Bind: []string{"127.0.0.1:0"}})
	masters := []*salt{newSalt(t), newSalt(t)}
	for i, m := range masters {
		cfg.Backends[i].RequestPort = m.req.addr.Port
	}

	p, addr := start(t, cfg)
	upPorts(t, p, 4)
	said, err := getFrom(addr, "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}

	masters[said[0]-'a'].req.stop()
	upPorts(t, p, 3)
	if now, err := getFrom(addr, "127.0.0.1"); err != nil || now[0] == said[0] {
		t.Errorf("%q, then %q %v", said, now, err)
	}
}

// TestAPIPortTaken: minions are served while another program has the API's port,
// which is taken when it is free.
func TestAPIPortTaken(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()

	a := newWeb(t, "a", true, true)
	cfg := apiConfig(a)
	cfg.Frontends[0].Name, cfg.Frontends[0].Bind = "api", []string{other.Addr().String()}
	cfg.Frontends = append(cfg.Frontends, Frontend{Name: "front", Mode: Request, Bind: []string{"127.0.0.1:0"}})
	cfg.Backends[0].RequestPort = newSalt(t).req.addr.Port
	p, _ := start(t, cfg)
	upPorts(t, p, 2)

	if n := len(p.Status().Frontends[0].Listen); n != 0 {
		t.Errorf("the API listens on %d addresses", n)
	}

	addr := other.Addr().String()
	other.Close()
	eventually(t, "the API's port is taken", func() bool {
		_, err := getFrom(addr, "127.0.0.1")
		return err == nil
	})
}

// TestWebProbe: what the answers of /readyz mean, why salt-api is not ready, and that TLS may come and go.
func TestWebProbe(t *testing.T) {
	for _, secure := range []bool{true, false} {
		for _, header := range []bool{true, false} {
			w := newWeb(t, "a", secure, header)
			var d net.Dialer
			pr := newWebProbe(w.Listener.Addr().String(), header,
				func(ctx context.Context, addr string) (net.Conn, error) { return d.DialContext(ctx, "tcp", addr) })
			defer pr.close()

			for code, want := range map[int]grade{200: gradeUp, 503: gradeJoining, 404: gradeSilent} {
				w.code.Store(int64(code))
				for range 2 * readyzStays {
					err := pr.probe(t.Context())
					if gradeOf(err) != want {
						t.Errorf("TLS %t, header %t, %d: %v", secure, header, code, err)
					}
					if code == 503 && err.Error() != "salt-api is not ready: the disk is full" {
						t.Errorf("TLS %t, header %t: the cause is %q", secure, header, err)
					}
				}
			}

			pr.plain = !pr.plain // as if the other had been spoken before
			w.code.Store(200)
			pr.transport.CloseIdleConnections()
			if err := pr.probe(t.Context()); err != nil {
				t.Errorf("TLS %t, header %t, guessed wrongly: %v", secure, header, err)
			}

			w.Close()
			if err := pr.probe(t.Context()); gradeOf(err) != gradeGone {
				t.Errorf("TLS %t, header %t, gone: %v", secure, header, err)
			}
		}
	}
}

// TestWebProbeSilent: who accepts and says nothing is not waited for.
func TestWebProbeSilent(t *testing.T) {
	f := newFake(t, "127.0.0.1:0", func(c net.Conn) { io.Copy(io.Discard, c) })
	var d net.Dialer
	pr := newWebProbe(f.addr.String(), true,
		func(ctx context.Context, addr string) (net.Conn, error) { return d.DialContext(ctx, "tcp", addr) })
	defer pr.close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := pr.probe(ctx); !errors.Is(err, errSilent) {
		t.Errorf("%v", err)
	}
}

// TestAffinity: sources are shared out by weight, and a backend that goes moves
// nobody else's; all addresses of an IPv6 network are one source.
func TestAffinity(t *testing.T) {
	names, weights := []string{"n1", "n2", "n3"}, []int64{100, 100, 200}
	best := func(source uint64, without int) int {
		at, most := -1, 0.0
		for i, n := range names {
			if v := affinity(source, seedOf(n), weights[i]); i != without && (at < 0 || v > most) {
				at, most = i, v
			}
		}
		return at
	}

	const sources = 8192
	var have [3]int
	for i := range sources {
		h := sourceHash(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}))
		all := best(h, -1)
		have[all]++
		if left := best(h, 0); all != 0 && left != all {
			t.Fatalf("source %d moved from %d to %d", i, all, left)
		}
	}

	for i, w := range weights {
		if want := float64(sources) * float64(w) / 400; math.Abs(float64(have[i])-want) > want/8 {
			t.Errorf("%s has %d sources of %v", names[i], have[i], want)
		}
	}

	a, b := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::ffff:1")
	if sourceHash(a) != sourceHash(b) || sourceHash(a) == sourceHash(netip.MustParseAddr("2001:db8:0:1::1")) {
		t.Error("a network of IPv6 is not one source")
	}
}
