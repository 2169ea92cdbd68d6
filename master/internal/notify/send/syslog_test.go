package send

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/master/internal/notify/rules"
	"saltern/master/saltlog"
	"saltern/test/check"
)

func syslogAt(t *testing.T, url string) Sender {
	t.Helper()
	a, err := saltlog.ParseAddress(url)
	check.Must(t, err)
	return New(&rules.Destination{Name: "ops/1", Syslog: a})
}

func TestSyslogPackets(t *testing.T) {
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	check.Must(t, err)
	defer udp.Close()
	path := filepath.Join(t.TempDir(), "log")
	unix, err := net.ListenPacket("unixgram", path)
	check.Must(t, err)
	defer unix.Close()

	for url, socket := range map[string]net.PacketConn{
		"udp://" + udp.LocalAddr().String() + "/LOG_LOCAL0": udp,
		"file://" + path + "/LOG_LOCAL0":                    unix,
	} {
		check.Must(t, syslogAt(t, url).Send(t.Context(), testMessage()))
		check.Must(t, socket.SetReadDeadline(time.Now().Add(5*time.Second)))
		b := make([]byte, 4096)
		n, _, err := socket.ReadFrom(b)
		check.Must(t, err)
		if got := string(b[:n]); !strings.HasPrefix(got, "<134>") || !strings.Contains(got, "test of the rule ops") {
			t.Errorf("%s: %q", url, got)
		}
	}
}

func TestSyslogByTCP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check.Must(t, err)
	defer l.Close()
	check.Must(t, syslogAt(t, "tcp://"+l.Addr().String()).Send(t.Context(), testMessage()))
	c, err := l.Accept()
	check.Must(t, err)
	defer c.Close()
	b := make([]byte, 4096)
	n, err := c.Read(b)
	check.Must(t, err)
	if got := string(b[:n]); !strings.Contains(got, " <14>1 ") || !strings.Contains(got, testMessage().ID) {
		t.Errorf("%q", got)
	}
}

// A message to a syslog that nobody runs does not count as sent.
func TestSyslogAway(t *testing.T) {
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	check.Must(t, err)
	address := udp.LocalAddr().String()
	check.Must(t, udp.Close())
	for _, url := range []string{"udp://" + address, "tcp://" + address, "file://" + filepath.Join(t.TempDir(), "log")} {
		if err := syslogAt(t, url).Send(t.Context(), testMessage()); err == nil {
			t.Error(url, "took a message, and is not there")
		}
	}
}
