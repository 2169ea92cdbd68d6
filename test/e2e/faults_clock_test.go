//go:build e2e && appliance

package e2e

import (
	"os"
	"strings"
	"testing"
	"time"

	"saltern/supervisor/status"
	"saltern/test/lab"
)

// TestFaultsOfClocksAndVersions: a machine whose clock is nine minutes off and
// one of another version do not get into a cluster, and say why. A node whose
// clock goes wrong later is named by the others, as it names them, while minions
// are served by all: it is off by less than request_server_ttl, ten minutes.
func TestFaultsOfClocksAndVersions(t *testing.T) {
	t.Parallel()
	net := lab.NewNetwork(t, "clk", "10.76")
	late := lab.Altered(t, lab.ClockAhead("540"))
	other := lab.Altered(t,
		lab.Alteration{
			File: "supervisor/nodeapi/messages.go",
			Old:  "const protocol = 2\n",
			New:  "const protocol = 9\n",
		})

	nodes := threeNodes(t, net)
	for _, n := range nodes {
		n.Launch(t)
	}

	for _, n := range nodes {
		n.WaitReady(t, 3)
	}

	n1, n3 := nodes[0], nodes[2]
	n1.StartMinion(t, "m1", lab.Newest)
	n1.Ping(t, 150*time.Second, "m1")

	join := map[string]any{"mode": "join", "peers": []string{n1.Addr}, "secret": lab.ApplianceSecret}
	for i, c := range []struct {
		name, programs string
		says           []string
		wizard         []string
	}{
		{"a joiner's clock", late,
			[]string{"clock, compared with " + n1.Addr, "9m0s", "ahead", "set the clock (chronyc makestep)"},
			[]string{"clock, compared with", "9m0s", "-> set the clock"}},
		{"a joiner of another version", other,
			[]string{"version, compared with " + n1.Addr, "by an older protocol",
				"upgrade the nodes of the cluster first"},
			[]string{"version, compared with", "upgrade the nodes of the cluster first"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := lab.NewAppliance(t, net, 11+2*i, "", join)
			a.Programs = c.programs
			a.Launch(t)
			turnedAway(t, a, c.says[0])
			r := a.Applianced(t, "status")
			for _, want := range c.says {
				if !strings.Contains(r.Out, want) {
					t.Errorf("no %q in\n%s", want, r.Out)
				}
			}

			if !strings.HasPrefix(r.Out, "NOT SERVING") ||
				!strings.Contains(r.Out, string(status.SetupStopped)) || r.Code != status.ExitNotServing {
				t.Errorf("exit %d\n%s", r.Code, r.Out)
			}

			a.Kill()
			w := lab.NewAppliance(t, net, 12+2*i, "", nil)
			w.Programs = c.programs
			if err := os.Remove(w.Answers()); err != nil {
				t.Fatal(err)
			}

			w.Launch(t)
			wizardStops(t, w, "n9", "lab", n1.Addr, lab.ApplianceSecret, n1.Shared, c.wizard...)
			w.Kill()
		})
	}

	all := t
	t.Run("a node's clock", func(t *testing.T) {
		n3.Kill()
		n3.Programs = late
		n3.Launch(all)
		next := tells(t, n1,
			clusterFault{"DEGRADED  cluster lab", status.ExitDegraded, status.ClockSkew,
				"the clocks of this node and of n3 differ", "the clock of n3 is 9m0s ahead of ours"})
		if r := typed(t, n1, next, "ping n3"); !strings.Contains(r.Out, "differ by 9m0s") {
			t.Errorf("%+v", r)
		}

		tells(t, n3,
			clusterFault{"DEGRADED  cluster lab", status.ExitDegraded, status.ClockSkew,
				"the clocks of this node and of n1 differ", "the clock of n1 is 9m0s behind ours"})
		for _, n := range nodes {
			n.Ping(t, 120*time.Second, "m1")
		}

		n3.Kill()
		n3.Programs = ""
		n3.Launch(all)
		for _, n := range nodes {
			mendedAll(t, n, status.ClockSkew)
		}

		n3.Ping(t, 120*time.Second, "m1")
	})
}
