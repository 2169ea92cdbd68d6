package localsock_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
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
