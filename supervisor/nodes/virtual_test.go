package nodes

import (
	"errors"
	"strings"
	"testing"
)

// The virtual address belongs to no node, neither in a table that another node
// sends nor for a machine that asks to join.
func TestVirtualAddressIsNobodys(t *testing.T) {
	hash := strings.Repeat("ab", 32)
	table := func(virtual string) Table {
		return Table{Version: 1, Cluster: "c", KeyHash: hash, Virtual: virtual, Nodes: []Node{
			{
				Name:        "n1",
				Address:     "10.0.0.1",
				State:       Member,
				Certificate: hash,
			}, {Name: "n2", Address: "10.0.0.2", State: Removed, Certificate: strings.Repeat("cd", 32)}}}
	}

	for _, v := range []string{"", "10.0.0.20", "10.0.0.2", "fd00::20"} {
		x := table(v)
		if err := x.Check(); err != nil {
			t.Errorf("%q: %v", v, err)
		}
	}

	for _, v := range []string{"x", "10.0.0.1", "010.0.0.3", "0.0.0.0", "127.0.0.1", "fe80::1%eth0",
		"FD00::20", "10.0.0.20\n", "224.0.0.18"} {
		x := table(v)
		if err := x.Check(); err == nil || !strings.Contains(err.Error(), "virtual address") {
			t.Errorf("%q: %v", v, err)
		}
	}

	x := table("10.0.0.20")
	if err := Admit(&x,
		Node{
			Name:        "n3",
			Address:     "10.0.0.20",
			State:       Joining,
			Certificate: strings.Repeat("ef", 32),
		}); !errors.Is(err, ErrTaken) || !strings.Contains(err.Error(), "virtual") {
		t.Error(err)
	}
}
