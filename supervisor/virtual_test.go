package supervisor

import (
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"saltern/supervisor/api"
	"saltern/supervisor/settings"
	"saltern/supervisor/setup"
	"saltern/supervisor/status"
)

// A node may have the virtual address while it serves, is set up and not about
// to go, and its status is new.
func TestFit(t *testing.T) {
	good := status.Document{Time: now, ServingSince: &now, Setup: status.SetupReady}
	if err := fit(good, now.Add(2*time.Second)); err != nil {
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
		if err := fit(d, now.Add(2*time.Second)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// Minions that use the address must be heard by the load balancer.
func TestListens(t *testing.T) {
	for _, c := range []struct {
		front, address string
		want           bool
	}{{"0.0.0.0", "10.0.0.20", true}, {"::", "10.0.0.20", true}, {"::", "fd00::20", true}, {"0.0.0.0", "fd00::20", false}, {"10.0.0.1", "10.0.0.20", false}} {
		cfg := settings.Default("n1")
		cfg.Front.Addresses = []string{c.front}
		if err := listens(&cfg, netip.MustParseAddr(c.address)); (err == nil) != c.want {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// The address is none of the node's own in the status, whoever has it, and the
// service is not shown where there is no address.
func TestStatusOfVirtualAddress(t *testing.T) {
	cfg := settings.Default("n1")
	for _, v := range []*virtualFacts{nil, {address: "10.0.0.20"}} {
		f := healthyFacts(&cfg)
		f.services = append(f.services, f.services[1])
		f.services[2].Name = vipService
		f.virtual = v
		f.blocked[vipService] = []status.Finding{{Code: status.VirtualUnable, Subject: "10.0.0.20"}}
		if found := findings(&cfg, f); (len(found) > 0) != (v != nil) {
			t.Errorf("%+v", found)
		}
		n := &node{opt: Options{Now: func() time.Time { return now }}, cfg: &cfg, board: status.NewBoard()}
		cfg.Front.Addresses = []string{"10.0.0.1", "10.0.0.20"}
		d := n.compose(f)
		if shown := len(d.Services) == 3; shown != (v != nil) {
			t.Errorf("%+v", d.Services)
		}
		if own := strings.Join(d.Front.Addresses, " "); (v != nil) != (own == "10.0.0.1") || (v != nil) != (d.Virtual != nil) {
			t.Errorf("%s %+v", own, d.Virtual)
		}
	}
}

// A change of the network cannot be kept that takes away the address by which
// the other nodes know this one.
func TestNetworkKeepsTheNodesAddress(t *testing.T) {
	cfg := settings.Default("n1")
	s := New(Options{Log: slog.New(slog.DiscardHandler), Base: setup.Base{DataDir: t.TempDir(), RuntimeDir: t.TempDir()}})
	s.node = &node{cfg: &cfg, member: &member{}}
	s.node.member.n = s.node
	for address, want := range map[string]string{"192.0.2.77": "would lose 192.0.2.77", "127.0.0.1": "nothing is being tried"} {
		cfg.Peering.Address = address
		if _, err := s.SetupNetwork(t.Context(), "", "confirm", setup.Network{}); !errors.Is(err, api.ErrState) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", address, err)
		}
	}
}
