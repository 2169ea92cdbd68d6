package systemd

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What is sent is what systemd reads: one datagram with KEY=value lines; the
// watchdog only when the unit asked this process for it.
func TestUnit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "n")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	read := func() string {
		_ = c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		b := make([]byte, 4096)
		n, err := c.Read(b)
		if err != nil {
			return ""
		}
		return string(b[:n])
	}

	NewUnit().Notify("READY=1") // nobody is there
	t.Setenv("NOTIFY_SOCKET", path)
	s := NewUnit()
	s.Notify("READY=1\nSTATUS=fine")

	if got := read(); got != "READY=1\nSTATUS=fine" {
		t.Errorf("got %q", got)
	}

	s.Notify("WATCHDOG=1")
	if got := read(); got != "" {
		t.Errorf("watchdog fed although nobody asked: %q", got)
	}

	t.Setenv("WATCHDOG_USEC", "10000000")
	NewUnit().Notify("WATCHDOG=1")
	if got := read(); got != "WATCHDOG=1" {
		t.Errorf("watchdog not fed: %q", got)
	}

	if got := Status("a\nb\t c" + strings.Repeat("x", 300)); len(got) != 207 || strings.ContainsAny(got, "\n\t") {
		t.Errorf("%q", got)
	}
}
