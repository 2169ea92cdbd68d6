package setup

import (
	"slices"
	"strings"
	"testing"

	"saltern/supervisor/nodes"
)

// TestFixedAddressFaultsAtOnce: address and gateway are judged each as far as that goes
// without the other. (m3)
func TestFixedAddressFaultsAtOnce(t *testing.T) {
	f := Facts{Managed: true}
	for _, x := range []struct {
		address, gateway string
		fields           string
	}{
		{"10.66.0.5/24", "10.66.0.1", ""},
		{"10.66.0.5/24", "", ""},
		{"", "10.66.0.300/24", "network.address network.gateway"},
		{"", "10.66.0.1", "network.address"},
		{"224.0.0.1/24", "x", "network.address network.gateway"},
		{"10.66.0.5/24", "10.67.0.1", "network.gateway"},
		{"10.66.0.5/24", "10.66.0.5", "network.gateway"},
	} {
		var fields []string
		for _, fault := range ValidateNetwork(Network{Method: "static", Address: x.address, Gateway: x.gateway}, f) {
			fields = append(fields, fault.Field)
		}
		if got := strings.Join(fields, " "); got != x.fields {
			t.Errorf("%q, %q: faults of %q, not %q", x.address, x.gateway, got, x.fields)
		}
	}
}

// TestAddressesAreNamedOnce: an address that two interfaces have, or the present network
// and the one asked for, is told once. (m4)
func TestAddressesAreNamedOnce(t *testing.T) {
	f := Facts{Managed: true, Interfaces: []Interface{
		{Name: "e0", Addresses: []string{"10.66.0.11/24", "fe80::1/64"}, Default: true},
		{Name: "e1", Addresses: []string{"10.66.0.11/24", "10.67.0.1/24"}},
	}}

	a := Answers{
		Mode:    Form,
		Node:    "n1",
		Address: "192.0.2.9",
		Network: Network{Method: "static", Interface: "e0", Address: "10.66.0.11/24"},
	}

	faults := ValidateHere(a, f, Base{DataDir: "/var/lib/saltern", RuntimeDir: "/run/saltern"}).Faults
	i := slices.IndexFunc(faults, func(f Fault) bool { return f.Field == "address" })
	if i < 0 || !strings.HasSuffix(faults[i].Message, "it has 10.66.0.11, 10.67.0.1") {
		t.Errorf("%+v", faults)
	}
}

// TestAddressesForMinions: the last page of the set-up names the addresses that the
// minions' lines have, each once: the virtual one, or those of all nodes. (m7)
func TestAddressesForMinions(t *testing.T) {
	two := nodes.Table{Nodes: []nodes.Node{
		{Name: "n1", Front: []string{"10.66.0.11", "fd00::11"}},
		{Name: "n2", Front: []string{"10.66.0.12", "10.66.0.11"}},
	}}

	virtual := two
	virtual.Virtual = "10.66.0.20"
	for name, x := range map[string]struct {
		look NodeLook
		want string
	}{
		"alone":   {NodeLook{Addresses: []string{"10.66.0.11", "10.66.0.11"}}, "10.66.0.11"},
		"two":     {NodeLook{Addresses: []string{"10.66.0.12"}, Table: two}, "10.66.0.11 fd00::11 10.66.0.12"},
		"virtual": {NodeLook{Addresses: []string{"10.66.0.12", "10.66.0.20"}, Table: virtual}, "10.66.0.20"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(forMinions(x.look), " "); got != x.want {
				t.Errorf("%s, not %s", got, x.want)
			}
		})
	}
}
