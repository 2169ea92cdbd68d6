package setup

import (
	"slices"
	"strings"
	"testing"

	"saltern/supervisor/nodeapi"
	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
)

// TestPortsThatOpenLater: what the nodes' own firewalls open when a machine is admitted
// is one line, and no warning; the node port has to be open now (M4).
// 255.255.255.255 is no machine, and says so at once.
func TestPortsThatOpenLater(t *testing.T) {
	const nobody, here = "255.255.255.255", "127.0.0.1"
	s := settings.Default("n1")
	node := s.Peering.NodePort
	met := func(errors map[int]string) *nodeapi.Met {
		m := &nodeapi.Met{Storage: nodeapi.Storage{Kind: settings.VolumeStorage}}
		for _, port := range append([]int{node}, masterPorts(&s)...) {
			m.Reach = append(m.Reach, nodeapi.Reach{Port: port, Error: errors[port]})
		}
		return m
	}

	all := map[int]string{}
	for _, port := range masterPorts(&s) {
		all[port] = "no answer in 3s"
	}

	for _, c := range []struct {
		name, via string
		errors    map[int]string
		node      Result
		later     Result
	}{
		{name: "open", via: here, node: Pass, later: Pass},
		{name: "two images", via: nobody, errors: all, node: Pass, later: Later},
		{name: "one way", via: here, errors: all, node: Pass, later: Later},
		{name: "node port", via: here, errors: map[int]string{node: "no answer in 3s"}, node: Fail, later: Pass},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := (&Preflight{}).checkPorts(t.Context(), c.via, &s, met(c.errors))
			if len(got) != 2 || got[0].Result != c.node || got[1].Result != c.later ||
				slices.ContainsFunc(got, func(c Check) bool { return c.Result == Warn }) {
				t.Errorf("%+v", got)
			}
		})
	}

	table := nodes.Table{Nodes: []nodes.Node{
		{Name: "n1", Address: nobody, State: nodes.Member, Brick: "x"},
		{Name: "n2", Address: here, State: nodes.Member, Brick: "x"},
		{Name: "n3", Address: nobody, State: nodes.Member, Brick: "x"},
		{Name: "arbiter", Address: nobody, State: nodes.Member, Brick: "x", Storage: nodes.ArbiterStorage},
		{Name: "gone", Address: nobody, State: nodes.Removed, Brick: "x"},
	}}

	shut := shutPorts(t.Context(), table, "n1", []int{14505})
	if len(shut) != 3 || !strings.HasPrefix(shut[0], "14505/tcp of "+nobody) ||
		!strings.HasPrefix(shut[2], "24007/tcp of ") {
		t.Errorf("%q", shut)
	}
}
