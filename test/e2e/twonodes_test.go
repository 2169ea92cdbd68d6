//go:build e2e && appliance

package e2e

import (
	"testing"
	"time"

	"saltern/test/lab"
)

// TestTwoNodesOnADirectory holds the table "Two nodes" of docs/storage.md for a
// directory of the administrator's own: either node may be lost, and the one that is
// left may restart; minions that are known answer, and new ones are taken in.
func TestTwoNodesOnADirectory(t *testing.T) {
	t.Parallel()
	net, shared := lab.NewNetwork(t, "two", "10.72"), lab.Dir(t)
	first := lab.NewAppliance(t, net, 1, shared, map[string]any{"mode": "form", "secret": lab.ApplianceSecret})
	second := lab.NewAppliance(t, net, 2, shared, map[string]any{"mode": "join", "peers": []string{first.Addr}, "secret": lab.ApplianceSecret})
	first.Launch(t)
	first.WaitReady(t, 1)
	second.Launch(t)
	for _, n := range []*lab.Appliance{first, second} {
		n.WaitReady(t, 2)
		n.StartMinion(t, "known-"+n.Name, lab.Newest)
	}
	first.Ping(t, 120*time.Second, "known-n1", "known-n2")
	for _, q := range [][2]*lab.Appliance{{first, second}, {second, first}} {
		lost, stays := q[0], q[1]
		lost.Kill()
		stays.Ping(t, 60*time.Second, "known-"+stays.Name)
		stays.StartMinion(t, "new-without-"+lost.Name, lab.Newest)
		stays.Ping(t, 120*time.Second, "known-"+stays.Name, "new-without-"+lost.Name)
		stays.Kill()
		stays.Launch(t)
		stays.Ping(t, 120*time.Second, "known-"+stays.Name, "new-without-"+lost.Name)
		lost.Launch(t)
		for _, n := range q {
			n.WaitReady(t, 2)
		}
	}
}
