package restapi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"saltern/internal/ratelimit"
	"saltern/master/internal/ratelog"
	"saltern/master/value"
)

// hostile are bodies that are larger in memory than they look, by content type.
func hostile(n int) map[string][]string {
	list := func(e string) string { return "[" + strings.TrimSuffix(strings.Repeat(e+",", n), ",") + "]" }
	var fields, lines strings.Builder
	for i := range n {
		fmt.Fprintf(&fields, "%x=1&", i)
		fmt.Fprintf(&lines, "%x: 1\n", i)
	}

	json := []string{list("[]"), list("{}"), list("1"), list(`""`), list(`{"a":1}`), list("[[]]"),
		list("1.5"), list("null"), `"` + strings.Repeat(`\u4e00`, n) + `"`,
		"{" + strings.ReplaceAll(strings.TrimSuffix(fields.String(), "&"), "=1&", `":1,"`)[:0] + `"a":` +
			list(`{"b":[]}`) + "}"}

	yaml := append([]string{lines.String(), strings.Repeat("- x\n", n), strings.Repeat("-\n", n),
		strings.Repeat("- - - 1\n", n/3), list("{a: 1}"),
		"a: &a [" + strings.Repeat("1,", n/10) + "]\nb: [" + strings.Repeat("*a,", n/10) +
			"]", "? a\n" + strings.Repeat("? b\n", n)}, json...)

	form := []string{fields.String(), strings.Repeat("a=b&", n),
		strings.Repeat("arg=[1,2]&", min(n, maxFields-1)), "arg=" + list("[]"),
		"arg=[%26a [1,1,1],*a,*a,*a]&arg=" + strings.Repeat("*", n)}
	return map[string][]string{
		"application/json":                  json,
		"text/plain":                        json,
		"application/x-yaml":                yaml,
		"application/x-www-form-urlencoded": form,
	}
}

// TestBodyCost: the computed memory of a body is at least what the body takes, for bodies designed
// against the computation and for random ones.
func TestBodyCost(t *testing.T) {
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}

	measure := func(media string, body []byte) {
		before := heap()
		v, err := bodyKinds()[media].decode(body)
		took := heap() - before
		if cost := bodyKinds()[media].memoryCost(body); took > cost+4096 {
			t.Errorf("%s: %d bytes of %.40q… take %d, said were %d (%v)", media, len(body), body, took, cost, err)
		}
		runtime.KeepAlive(v)
	}

	for media, bodies := range hostile(8000) {
		for _, b := range bodies {
			measure(media, []byte(b))
		}
	}

	r := rand.New(rand.NewPCG(1, 2))
	pieces := []string{"[", "]", "{", "}", ",", ":", `"a"`, "1", "- ", "\n", "&x ", "*x", "a: ", "null", `"`,
		"=", "&", "? ", "|\n"}
	for range 40 {
		var b strings.Builder
		for range 1 + r.IntN(3000) {
			b.WriteString(pieces[r.IntN(len(pieces))])
		}

		for media := range bodyKinds() {
			if _, err := bodyKinds()[media].decode([]byte(b.String())); err == nil {
				measure(media, []byte(b.String()))
			}
		}
	}
}

// postFrom sends a body as a client at an address behind the load balancer, and returns the status.
// 0 means that there was no answer.
func postFrom(addr, client, path, body string) int {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.2")}}
	c, err := d.Dial("tcp", addr)
	if err != nil {
		return 0
	}
	defer c.Close()

	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	go func() {
		_, _ = fmt.Fprintf(c,
			"%sPOST %s HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
			headerOf(client), path, len(body), body)
	}()

	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0
	}
	defer res.Body.Close()

	return res.StatusCode
}

// TestMemoryOfBodies (second audit, 7): bodies of strangers that are much larger in memory than on
// the wire use only the strangers' part of the memory, and are answered.
func TestMemoryOfBodies(t *testing.T) {
	s, addr, file := behindServer(t)
	s.opts.IPs = nil
	name(t, file, "127.0.0.2/32")
	body := "[" + strings.Repeat("[],", 195_000) + "[]]"
	var most atomic.Uint64
	ended := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most.Store(max(most.Load(), m.HeapAlloc))
			select {
			case <-ended:
				return
			case <-time.After(5 * time.Millisecond): // a reading of the heap
			}
		}
	})

	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			for range 3 {
				if code := postFrom(addr, fmt.Sprintf("203.0.113.%d:4711", 1+
					i%4), "/run", body); code != http.StatusRequestEntityTooLarge &&
					code != http.StatusForbidden && code != http.StatusServiceUnavailable && code != http.StatusBadRequest {
					t.Errorf("%d", code)
				}
			}
		})
	}

	wg.Wait()
	close(ended)
	watch.Wait()
	if n := most.Load(); n > 160<<20 {
		t.Errorf("the heap grew to %d MiB", n>>20)
	}
}

// TestSlowBodies (second audit, 5): salt-api refuses a body that arrives below the minimum rate, in
// whatever way it is slowed down.
func TestSlowBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := bare(t)
		here, there := net.Pipe()
		srv := &http.Server{Handler: s}
		var done sync.WaitGroup
		done.Go(func() { _ = srv.Serve(newOne(here)) })
		defer done.Wait()

		defer there.Close()
		defer srv.Close()
		began := time.Now()
		done.Go(func() {
			_, _ = io.WriteString(there,
				"POST /login HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 30000\r\n\r\n")
			for {
				time.Sleep(time.Second)
				if _, err := io.WriteString(there, "[[[[[[[["); err != nil {
					return
				}
			}
		})

		res, err := http.ReadResponse(bufio.NewReader(there), nil)
		if took := time.Since(began); err != nil || res.StatusCode != http.StatusBadRequest || took > 15*time.Second {
			t.Errorf("after %s: %v %v", took, res, err)
		}
	})
}

// one is a listener with one connection.
type one struct {
	conns  chan net.Conn
	closed chan struct{}
	end    func()
}

func newOne(c net.Conn) *one {
	l := &one{conns: make(chan net.Conn, 1), closed: make(chan struct{})}
	l.end = sync.OnceFunc(func() { close(l.closed) })
	l.conns <- c
	return l
}

func (l *one) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}
func (l *one) Close() error   { l.end(); return nil }
func (l *one) Addr() net.Addr { return &net.TCPAddr{} }

// bare is a server that nobody has started.
func bare(t *testing.T) *Server {
	t.Helper()
	s := &Server{
		guard: newGuard(),
		now:   time.Now,
		log:   slog.New(slog.DiscardHandler),
		opts:  Options{RootPrefix: "/", MaxBody: 1 << 20, Workers: 10, Queue: 10},
	}
	s.quiet, s.pools, s.routes = s.log, newPools(s.opts), routes(s.opts)
	s.life = newLife(func(context.Context) error { return nil }, time.Now)
	s.sessions = watchSessions(t.TempDir(), "n1", slog.New(slog.DiscardHandler))
	return s
}

// TestFaultsAreQuiet (second audit, 9): faults that requests cause are logged at most a few times a
// second.
func TestFaultsAreQuiet(t *testing.T) {
	s := bare(t)
	var lines strings.Builder
	s.quiet = slog.New(ratelog.New(slog.NewTextHandler(&lines, nil), time.Now))
	s.log = slog.New(slog.NewTextHandler(&lines, nil))
	for range 10_000 {
		r := httptest.NewRequest("POST", "/run", strings.NewReader("[1]"))
		s.sendError(&request{http: r, w: httptest.NewRecorder()}, errors.New("something of the stranger's choice"))
		s.sendAnswer(&request{http: r, w: httptest.NewRecorder(), format: typeYAML}, 200, value.NewMap("x", make(chan int)))
	}
	if n := strings.Count(lines.String(), "\n"); n > 250 {
		t.Errorf("10,000 requests are %d lines", n)
	}
}

// TestAccessLog: strangers cannot fill the disk with the lines that they cause, and the lines of
// other clients are all written.
func TestAccessLog(t *testing.T) {
	s := bare(t)
	path := filepath.Join(t.TempDir(), "access")
	var err error
	if s.access, err = openAccessLog(path); err != nil {
		t.Fatal(err)
	}
	defer s.access.file.Close()

	r := httptest.NewRequest("GET", "/", nil)
	for range 10_000 {
		s.logAccess(&request{http: r})
	}

	for range 100 {
		s.logAccess(&request{http: r, class: ratelimit.Proven})
	}

	b, err := os.ReadFile(path)
	if n := strings.Count(string(b), "\n"); err != nil || n < 2100 || n > 2400 ||
		uint64(n)+s.count.unlogged.Load() != 10_100 {
		t.Errorf("%d lines, %d left out, %v", n, s.count.unlogged.Load(), err)
	}
}

// TestLife: however many callers ask whether the master answers, it gets one request a second, and
// no caller waits longer than its context lasts.
func TestLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, takes, answer := 0, time.Second, error(nil)
		l := newLife(func(ctx context.Context) error {
			asked++
			select {
			case <-time.After(takes):
				return answer
			case <-ctx.Done():
				return ctx.Err()
			}
		}, time.Now)
		defer l.stop()

		probes := func(want error) {
			t.Helper()
			var wg sync.WaitGroup
			for range 1000 {
				wg.Go(func() {
					if err := l.awaitSign(t.Context()); !errors.Is(err, want) {
						t.Errorf("%v, want %v", err, want)
					}
				})
			}

			wg.Wait()
		}

		probes(nil)
		time.Sleep(signValidFor - time.Millisecond)
		probes(nil)
		if asked != 1 {
			t.Errorf("%d questions", asked)
		}

		time.Sleep(time.Second)
		answer = io.ErrUnexpectedEOF
		probes(io.ErrUnexpectedEOF)
		time.Sleep(time.Second)
		takes = time.Hour
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()

		if err := l.awaitSign(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("who waits a second: %v", err)
		}

		began := time.Now()
		probes(context.DeadlineExceeded)
		if took := time.Since(began); took > signTimeout || asked != 3 {
			t.Errorf("%d questions, the last took %s", asked, took)
		}
	})
}
