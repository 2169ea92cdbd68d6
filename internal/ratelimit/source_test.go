package ratelimit

import (
	"net/netip"
	"testing"
)

func TestSource(t *testing.T) {
	for in, want := range map[string]string{
		"10.0.0.1:4506": "10.0.0.1", "[::ffff:10.0.0.1]:1": "10.0.0.1", "[2001:db8:1:2:3:4:5:6]:1": "2001:db8:1:2::",
		"[2001:db8:1:2::9]:2": "2001:db8:1:2::", "[fe80::1%eth0]:1": "fe80::", "@": "invalid IP", "": "invalid IP",
	} {
		if got := SourceOf(in).String(); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
	if got := Source(netip.Addr{}); got.IsValid() {
		t.Errorf("no address: %s", got)
	}
}
