package virtualaddress

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// A node may have the virtual address while it serves, is set up and not about
// to go, and its status is new.
func TestFit(t *testing.T) {
	good := status.Document{Time: now, ServingSince: &now, Setup: status.SetupReady}
	if err := checkStatus(good, now.Add(2*time.Second)); err != nil {
		t.Error(err)
	}

	for want, change := range map[string]func(*status.Document){
		"does not serve": func(d *status.Document) { d.ServingSince = nil },
		"is draining":    func(d *status.Document) { d.Setup = status.SetupDraining },
		"is joining":     func(d *status.Document) { d.Setup = status.SetupJoining },
		"is removed":     func(d *status.Document) { d.Setup = status.SetupRemoved },
		"is 1m0s old":    func(d *status.Document) { d.Time = now.Add(-58 * time.Second) },
	} {
		d := good
		change(&d)
		if err := checkStatus(d, now.Add(2*time.Second)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// Minions that use the address must be heard by the load balancer.
func TestListens(t *testing.T) {
	for _, c := range []struct {
		front, address string
		want           bool
	}{
		{"0.0.0.0", "10.0.0.20", true},
		{"::", "10.0.0.20", true},
		{"::", "fd00::20", true},
		{"0.0.0.0", "fd00::20", false},
		{"10.0.0.1", "10.0.0.20", false},
	} {
		cfg := settings.Default("n1")
		cfg.Front.Addresses = []string{c.front}
		if err := checkListening(&cfg, netip.MustParseAddr(c.address)); (err == nil) != c.want {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
