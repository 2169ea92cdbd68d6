package localsock_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"saltern/internal/localsock"
)

func TestListen(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "sock")
	if err := localsock.Free(path); err != nil {
		t.Fatal(err)
	}

	ln, err := localsock.Listen(path, 0o640, os.Getegid())
	if err != nil {
		t.Fatal(err)
	}

	if st, err := os.Lstat(path); err != nil || st.Mode() != os.ModeSocket|0o640 {
		t.Errorf("%v, %v", st.Mode(), err)
	}

	if err := localsock.Free(path); !errors.Is(err, localsock.ErrInUse) || !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a socket in use: %v", err)
	}

	again, err := localsock.Listen(path, 0o600, -1) // a successor takes the name
	if err != nil {
		t.Fatal(err)
	}

	ln.Close()
	if err := localsock.Free(path); !errors.Is(err, localsock.ErrInUse) {
		t.Errorf("the successor is gone with its predecessor: %v", err)
	}

	again.Close()
	if err := localsock.Free(path); err != nil {
		t.Errorf("a leftover: %v", err)
	}

	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left over: %v", left)
	}

	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}

	if err := localsock.Free(filepath.Join(dir, "file")); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("a file: %v", err)
	}
}

func TestLimitAndPeer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sock")
	raw, err := localsock.Listen(path, 0o600, -1)
	if err != nil {
		t.Fatal(err)
	}

	asked := 0
	ln := localsock.Limit(raw, 1, func(c net.Conn) bool { asked++; return asked != 1 })
	defer ln.Close()

	accepted := make(chan net.Conn)
	go func() {
		defer close(accepted)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()

	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}

	closed := func(c net.Conn) bool { n, err := c.Read(make([]byte, 1)); return n == 0 && err != nil }
	if !closed(dial()) {
		t.Error("one that is not admitted stays")
	}

	dial()
	first := <-accepted
	if !closed(dial()) {
		t.Error("there is room for two")
	}

	if cred, err := localsock.Peer(first); err != nil || int(cred.Uid) != os.Geteuid() || int(cred.Pid) != os.Getpid() {
		t.Errorf("%+v, %v", cred, err)
	}

	first.Close()
	first.Close() // gives its room back once
	dial()
	second := <-accepted
	defer second.Close()

	if !closed(dial()) {
		t.Error("closing twice made room for two")
	}

	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()

	if _, err := localsock.Peer(a); err == nil {
		t.Error("credentials without a socket")
	}
}

// TestQueueKeepsCallersWaiting: callers above the bound wait for their turn, and one that has given
// up meanwhile is not served.
func TestQueueKeepsCallersWaiting(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sock")
	raw, err := localsock.Listen(path, 0o600, -1)
	if err != nil {
		t.Fatal(err)
	}
	ln := localsock.Queue(raw, 1, nil)

	dial := func(name string) net.Conn {
		t.Helper()
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if _, err := io.WriteString(c, name); err != nil {
			t.Fatal(err)
		}
		return c
	}
	accept := func(want string) net.Conn {
		t.Helper()
		c, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 1)
		if _, err := io.ReadFull(c, b); err != nil || string(b) != want {
			t.Errorf("%q %v, not %s", b, err, want)
		}
		return c
	}

	dial("1")
	first := accept("1")
	gone := dial("2")
	half := dial("3")
	dial("4")
	gone.Close()
	if err := half.(*net.UnixConn).CloseWrite(); err != nil { // it waits for its answer
		t.Fatal(err)
	}

	first.Close()
	first.Close() // gives its room back once
	second := accept("3")
	ended := make(chan error, 1)
	go func() {
		_, err := ln.Accept() // waits for room
		ended <- err
	}()
	ln.Close()
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("an Accept that waits: %v", err)
	}
	second.Close()
}

// TestQueueServesACrowd: each of many callers at once is answered.
func TestQueueServesACrowd(t *testing.T) {
	const callers, most = 500, 4
	path := filepath.Join(t.TempDir(), "sock")
	raw, err := localsock.Listen(path, 0o600, -1)
	if err != nil {
		t.Fatal(err)
	}

	var now, peak atomic.Int32
	srv := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		peak.Store(max(peak.Load(), now.Add(1)))
		runtime.Gosched()
		now.Add(-1)
	})}
	srv.SetKeepAlivesEnabled(false)
	var served, all sync.WaitGroup
	served.Go(func() { _ = srv.Serve(localsock.Queue(raw, most, nil)) })

	client := http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		},
	}}
	var failed atomic.Int32
	for range callers {
		all.Go(func() {
			resp, err := client.Get("http://crowd/")
			if err != nil {
				failed.Add(1)
				t.Log(err)
				return
			}
			resp.Body.Close()
		})
	}

	all.Wait()
	srv.Close()
	served.Wait()
	if failed.Load() > 0 || peak.Load() > most {
		t.Errorf("%d of %d callers were not answered; %d at once", failed.Load(), callers, peak.Load())
	}
}
