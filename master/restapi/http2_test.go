package restapi

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"saltern/test/address"
	"saltern/test/authority"
	"saltern/test/await"
)

// secureServer runs salt-api with TLS, for which there is no master.
func secureServer(t *testing.T) (s *Server, addr string) {
	t.Helper()
	dir := t.TempDir()
	authority.New(t).Sign(dir, "127.0.0.1", time.Now().Add(time.Hour))
	certs, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(certs) == 0 {
		t.Fatal(certs, err)
	}

	port := address.Free(t, "127.0.0.1").Port()
	o, _, err := read(t,
		fmt.Sprintf("{port: %d, host: 127.0.0.1, ssl_crt: %s, ssl_key: %s}", port,
			filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")))
	if err != nil {
		t.Fatal(err, certs)
	}

	return serving(t, o, dir)
}

// TestHTTP2 (F3): clients that support HTTP/2 use it, with one connection for all their requests.
// Other clients are served as before.
func TestHTTP2(t *testing.T) {
	s, addr := secureServer(t)
	for proto, tr := range map[int]*http.Transport{2: {ForceAttemptHTTP2: true}, 1: {}} {
		tr.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
		c := &http.Client{Transport: tr, Timeout: 20 * time.Second}
		ask := func(method, path string, body io.Reader) {
			r, err := http.NewRequest(method, "https://"+addr+path, body)
			if err != nil {
				t.Error(err)
				return
			}

			r.Header.Set("Content-Type", "application/json")
			res, err := c.Do(r)
			if err != nil {
				t.Error(err)
				return
			}

			_, _ = io.Copy(io.Discard, res.Body)
			res.Body.Close()
			if res.ProtoMajor != proto {
				t.Errorf("%s by HTTP/%d, not %d", path, res.ProtoMajor, proto)
			}
		}

		ask("GET", "/", nil)
		var wg sync.WaitGroup
		for range 30 {
			wg.Go(func() { ask("GET", "/", nil) })
			wg.Go(func() { ask("POST", "/", bytes.NewReader(make([]byte, 100_000))) }) // refused, and not read
		}

		wg.Wait()
		if n, _ := s.places.Counted(); proto == 2 && n != 1 {
			t.Errorf("%d connections", n)
		}

		tr.CloseIdleConnections()
		await.That(t, "the connections being forgotten", func() bool { n, _ := s.places.Counted(); return n == 0 })
	}
}

// TestHTTP2Floods: a client that resets streams as fast as it opens them, or sends headers without
// end, delays no other client and causes no more handlers than one connection may have.
func TestHTTP2Floods(t *testing.T) {
	_, addr := secureServer(t)
	frame := func(kind, flags byte, stream uint32, payload []byte) []byte {
		b := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
		return append(binary.BigEndian.AppendUint32(b, stream), payload...)
	}

	const headers, reset, settings, continuation = 1, 3, 4, 9
	get := []byte("\x82\x87\x84\x41\x01x") // GET https / of x, by RFC 7541
	floods := map[string]func(w io.Writer) error{
		"resets": func(w io.Writer) error {
			var b bytes.Buffer
			for i := range uint32(20_000) {
				b.Write(frame(headers, 5, 2*i+1, get))
				b.Write(frame(reset, 0, 2*i+1, []byte{0, 0, 0, 8}))
			}
			_, err := w.Write(b.Bytes())
			return err
		},
		"headers": func(w io.Writer) error {
			_, err := w.Write(frame(headers, 1, 1, get))
			field := append([]byte("\x00\x01a\x7f\x81\x7e"), bytes.Repeat([]byte("x"), 16_000)...)
			for i := 0; i < 10_000 && err == nil; i++ {
				_, err = w.Write(frame(continuation, 0, 1, field[:min(len(field), 16_000)]))
			}
			return err
		},
	}

	var wg sync.WaitGroup
	for _, flood := range floods {
		for range 8 {
			wg.Go(func() {
				c, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()

				_ = c.SetDeadline(time.Now().Add(20 * time.Second))
				go func() { _, _ = io.Copy(io.Discard, c) }()
				_, err = c.Write(append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frame(settings, 0, 0, nil)...))
				if err == nil {
					err = flood(c)
				}

				var late net.Error
				if late, _ = err.(net.Error); late != nil && late.Timeout() {
					t.Errorf("a flood is neither taken nor ended: %v", err)
				}
			})
		}
	}

	c := &http.Client{
		Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
		Timeout:   10 * time.Second,
	}
	defer c.CloseIdleConnections()

	most := 0
	for range 50 {
		res, err := c.Get("https://" + addr + "/")
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		most = max(most, runtime.NumGoroutine())
	}

	wg.Wait()
	if most > 2000 {
		t.Errorf("%d goroutines", most)
	}
}
