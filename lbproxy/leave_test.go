package lbproxy

import (
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"testing"
)

// Sessions to an address that has left the machine are cut; those to another
// one go on.
func TestCutLocal(t *testing.T) {
	b := newFake(t, "127.0.0.1:0", echo)
	cfg := testConfig(Publish, b)
	cfg.Frontends[0].Bind = []string{"0.0.0.0:0"}
	cfg.Admin.Socket = filepath.Join(t.TempDir(), "lb.sock")
	p, addr := start(t, cfg)
	upPorts(t, p, 1)
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	stays, goes := dial(t, net.JoinHostPort("127.0.0.1", port)), dial(t, net.JoinHostPort("127.0.0.2", port))
	ask(t, stays, "x")
	ask(t, goes, "x")
	c := NewClient(cfg.Admin.Socket)
	if n, err := c.CutLocal(t.Context(), netip.MustParseAddr("127.0.0.2")); n != 1 || err != nil {
		t.Errorf("cut %d, %v", n, err)
	}
	if _, err := io.ReadAll(goes); err != nil {
		t.Errorf("the session that was cut: %v", err)
	}
	ask(t, stays, "x")
	if n, err := c.CutLocal(t.Context(), netip.MustParseAddr("127.0.0.3")); n != 0 || err != nil {
		t.Errorf("cut %d, %v", n, err)
	}
}
