package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fakeMaster answers one connection with the bytes given after the greeting.
func fakeMaster(t *testing.T, afterReady ...string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	done := make(chan struct{})
	t.Cleanup(func() { _ = ln.Close(); <-done })
	go func() {
		defer close(done)
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()

		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		var g [64]byte
		g[0] = 0xff
		g[9] = 0x7f
		g[10] = 3
		g[11] = 1
		copy(g[12:], "NULL")
		_, _ = c.Write(g[:])

		if _, err := io.ReadFull(c, g[:]); err != nil {
			return
		}
		if len(afterReady) == 0 {
			_, _ = io.Copy(io.Discard, c)
			return
		}

		for _, s := range afterReady {
			_, _ = io.WriteString(c, s)
		}

		_, _ = io.Copy(io.Discard, c)
	}()

	return ln.Addr().String()
}

const (
	readyFrame = "\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06ROUTER"
	pingFrame  = "\x04\x07\x04PING\x00\x00"
	echo       = "\x82\xa3enc\xa5clear\xa4load\x81\xa3cmd\xa4ping"
)

func reply(body string) string { return "\x01\x00\x00" + string(rune(len(body))) + body }

func TestPing(t *testing.T) {
	for _, c := range []struct {
		name   string
		frames []string
		want   string
	}{
		{"echo", []string{readyFrame, reply(echo)}, ""},
		{"heartbeat before the echo", []string{readyFrame, pingFrame, reply(echo)}, ""},
		{"unwell", []string{readyFrame, reply("\x82\xadcluster_retry\xc3\xadsaltern_fault\xa6no\x1bdis")}, "nois"},
		{"joining", []string{readyFrame, reply("\x81\xadcluster_retry\xc3")}, errJoining.Error()},
		{"refusal", []string{readyFrame, reply("\xa8bad load")}, "not an echo"},
		{"no READY", []string{"\x04\x06\x05ERROR"}, "refused the handshake"},
		{"long frame", []string{readyFrame, "\x02\x7f\xff\xff\xff\xff\xff\xff\xff"}, "bad frame"},
		{"reserved flags", []string{readyFrame, "\x80\x00"}, "bad frame"},
		{"heartbeats only", []string{readyFrame, strings.Repeat(pingFrame, maxFrames)}, "only other frames"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := Ping(t.Context(), fakeMaster(t, c.frames...))
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}

	if err := Subscribable(t.Context(), fakeMaster(t, readyFrame)); err != nil {
		t.Errorf("publish port: %v", err)
	}
}

func TestPingSilentAndAbsent(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	if err := Ping(ctx, fakeMaster(t)); err == nil || time.Since(began) > 2*time.Second {
		t.Errorf("silent master: %v after %s", err, time.Since(began))
	}
	if err := Ping(t.Context(), "127.0.0.1:1"); err == nil || err.Error() != "connection refused" {
		t.Errorf("absent master: %v", err)
	}
}

// FuzzReadFrame: no byte sequence makes the probe allocate more than its limit.
func FuzzReadFrame(f *testing.F) {
	for _, s := range []string{readyFrame, pingFrame, reply(echo), "\x02\x00\x00\x00\x00\x00\x01\x00\x00"} {
		f.Add([]byte(s))
	}

	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		for {
			_, body, err := readFrame(r)
			if len(body) > maxFrame {
				t.Fatalf("%d bytes", len(body))
			}
			if err != nil {
				return
			}

			_ = judgeReply(body)
		}
	})
}

func TestCountKeys(t *testing.T) {
	pki := t.TempDir()
	for path, n := range map[string]int{"minions": 3, "minions_pre": 2, "minions_denied": 1} {
		if err := os.MkdirAll(filepath.Join(pki, path), 0o700); err != nil {
			t.Fatal(err)
		}

		for i := range n {
			if err := os.WriteFile(filepath.Join(pki, path, fmt.Sprint("m", i)), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}

	if err := os.WriteFile(filepath.Join(pki, "minions", ".key_cache"), nil, 0o600); err != nil {
		t.Fatal(err)
	}

	got, err := CountKeys(pki)
	if want := (Keys{Accepted: 3, Pending: 2, Denied: 1}); got != want || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestPortFreeNamesTheHolder(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	err = PortFree(ln.Addr().String())
	if !errors.Is(err, errPortInUse) || !strings.Contains(err.Error(), fmt.Sprintf("pid %d", os.Getpid())) {
		t.Errorf("held: %v", err)
	}

	_ = ln.Close()
	if err := PortFree(ln.Addr().String()); err != nil {
		t.Errorf("free: %v", err)
	}

	if err := PortFree("192.0.2.1:4505"); err == nil || errors.Is(err, errPortInUse) {
		t.Errorf("not our address: %v", err)
	}
}

// TestHolderIsThatOfTheAddress: another program may listen on the same port of
// another address.
func TestHolderIsThatOfTheAddress(t *testing.T) {
	for _, c := range []struct {
		proc, want string
		ok         bool
	}{
		{"0100007F:119A", "127.0.0.1:4506", true},
		{"0200007F:119A", "127.0.0.2:4506", true},
		{"00000000:0016", "0.0.0.0:22", true},
		{"00000000000000000000000000000000:119A", "[::]:4506", true},
		{"00000000000000000000000001000000:119A", "[::1]:4506", true},
		{"0000000000000000FFFF00000100007F:119A", "127.0.0.1:4506", true},
		{"0100007F", "", false},
		{"0100:119A", "", false},
		{"0100007F:11119A", "", false},
		{"zz00007F:119A", "", false},
		{"", "", false},
	} {
		got, ok := procAddress(c.proc)
		if ok != c.ok || ok && got.String() != c.want {
			t.Errorf("%s: %v %v, want %s", c.proc, got, ok, c.want)
		}
	}

	at := netip.MustParseAddrPort
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"127.0.0.1:1", "127.0.0.1:1", true},
		{"127.0.0.1:1", "127.0.0.2:1", false},
		{"127.0.0.1:1", "127.0.0.1:2", false},
		{"127.0.0.1:1", "0.0.0.0:1", true},
		{"[::]:1", "127.0.0.1:1", true},
	} {
		if cannotShare(at(c.a), at(c.b)) != c.want {
			t.Errorf("clash of %s and %s is not %v", c.a, c.b, c.want)
		}
	}
}

func TestHost(t *testing.T) {
	d, err := StatDisk(t.TempDir())
	if err != nil || d.Total == 0 || d.FreePercent < 0 || d.FreePercent > 100 || d.ReadOnly {
		t.Errorf("%+v %v", d, err)
	}
	if _, err := StatDisk("/no/such/dir"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
}
