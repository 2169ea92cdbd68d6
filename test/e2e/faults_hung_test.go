//go:build e2e && appliance

package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/supervisor/status"
	"saltern/test/lab"
)

// TestFaultsOfAHungMaster: of three nodes one has a master that is stopped by
// SIGSTOP. All three say so soon, none begins 'serving since' anew, minions are
// served, and the master is another one after a while.
func TestFaultsOfAHungMaster(t *testing.T) {
	t.Parallel()
	net := lab.NewNetwork(t, "hng", "10.75")
	nodes := threeNodes(t, net)
	for _, n := range nodes {
		n.Launch(t)
	}

	for _, n := range nodes {
		n.WaitReady(t, 3)
	}

	nodes[0].StartMinion(t, "m1", lab.Newest)
	nodes[0].Ping(t, 150*time.Second, "m1")
	since := make([]time.Time, len(nodes))
	for i, n := range nodes {
		d, err := n.Status(t)
		if err != nil || d.ServingSince == nil {
			t.Fatalf("%s: %v, %+v", n.Name, err, d)
		}
		since[i] = *d.ServingSince
	}

	strike(t, nodes[1], "master", syscall.SIGSTOP)
	struck := time.Now()
	told := make([]time.Duration, len(nodes))
	lab.Eventually(t, 90*time.Second, "n2 has another master", func() error {
		healed := false
		for i, n := range nodes {
			d, err := n.Status(t)
			if err != nil {
				return err
			}

			if d.ServingSince == nil || !d.ServingSince.Equal(since[i]) {
				t.Errorf("%s after %s: serving since %v, not %v; %s", n.Name, time.Since(struck),
					d.ServingSince, since[i], d.Health)
				since[i] = time.Time{}
				if d.ServingSince != nil {
					since[i] = *d.ServingSince
				}
			}

			for _, row := range d.Nodes {
				if row.Name != "n2" && row.Master != "ok" {
					t.Errorf("%s says of %s: master %s", n.Name, row.Name, row.Master)
				}
				if row.Name == "n2" && row.Master == "failing" && told[i] == 0 {
					told[i] = time.Since(struck)
				}
			}

			if n.Name == "n2" {
				healed = strings.HasPrefix(d.Services[0].LastExit, "did not answer") && d.Services[0].State == "running"
			}
		}

		if !healed {
			return fmt.Errorf("told after %v", told)
		}

		return nil
	})

	t.Logf("told after %v, another master after %s", told, time.Since(struck))
	for i, d := range told {
		if d == 0 || d > 15*time.Second {
			t.Errorf("%s said it after %s", nodes[i].Name, d)
		}
	}

	for _, n := range nodes {
		mendedAll(t, n, status.MasterSilent, status.MasterDown, status.NodeMasterDown)
	}

	nodes[1].Ping(t, 60*time.Second, "m1")
}
