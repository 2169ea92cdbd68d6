//go:build e2e

package e2e

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"saltern/supervisor/setup"
	"saltern/supervisor/status"
	"saltern/test/lab"
)

// threeNodes are the answers for three nodes of a cluster: the first forms it.
func threeNodes(t *testing.T, net *lab.Network) []*lab.Appliance {
	t.Helper()
	shared := lab.Dir(t)
	first := lab.NewAppliance(t, net, 1, shared, map[string]any{"mode": "form", "secret": lab.ApplianceSecret})
	out := []*lab.Appliance{first}
	for i := 2; i <= 3; i++ {
		out = append(out, lab.NewAppliance(t, net, i, shared, map[string]any{"mode": "join", "peers": []string{first.Addr}, "secret": lab.ApplianceSecret}))
	}
	return out
}

// TestAppliance takes three machines from nothing to a serving cluster, all
// started at once, without anybody who answers questions. Minions of three
// releases of Salt each know one node and answer jobs from every other. Then
// power fails, machines that do not fit are turned away, and nodes go.
func TestAppliance(t *testing.T) {
	t.Parallel()
	net := lab.NewNetwork(t, "sup", "10.70")
	nodes := threeNodes(t, net)
	for _, i := range rand.Perm(3) {
		nodes[i].Launch(t)
	}
	for _, n := range nodes {
		n.WaitReady(t, 3)
	}
	var ids []string
	for i, v := range lab.Versions() {
		ids = append(ids, "m"+strings.ReplaceAll(v, ".", "-"))
		nodes[i].StartMinion(t, ids[i], v)
	}
	for _, n := range nodes {
		n.Ping(t, 90*time.Second, ids...)
	}

	t.Run("power cut", func(t *testing.T) {
		nodes[2].Kill()
		nodes[2].Launch(t)
		nodes[2].WaitReady(t, 3)
		nodes[2].Ping(t, 90*time.Second, ids...)
	})
	t.Run("join string", func(t *testing.T) {
		r := nodes[1].Applianced(t, "join-string")
		line := strings.TrimSpace(r.Out)
		j, err := setup.ParseJoin(line)
		if err != nil || len(j.Peers) != 3 || j.Secret != lab.ApplianceSecret {
			t.Fatalf("join-string gave %q %s: %v", line, r.Err, err)
		}
		n4 := lab.NewAppliance(t, net, 4, "", map[string]any{"join": line})
		n4.Launch(t)
		n4.WaitReady(t, 4)
		n4.Ping(t, 90*time.Second, ids...)
	})
	t.Run("turned away", func(t *testing.T) {
		for number, c := range map[int]struct {
			answers map[string]any
			want    string
		}{
			11: {map[string]any{"mode": "join", "peers": []string{nodes[0].Addr}, "secret": "not-the-secret-of-it"}, "the secret is not that of the cluster"},
			12: {map[string]any{"mode": "join", "peers": []string{nodes[0].Addr}, "secret": lab.ApplianceSecret, "node": "n2"}, "name n2 is taken"},
			13: {map[string]any{"mode": "join", "peers": []string{nodes[0].Addr}, "secret": lab.ApplianceSecret, "cluster_id": "other"}, "another cluster"},
		} {
			a := lab.NewAppliance(t, net, number, "", c.answers)
			a.Launch(t)
			lab.Eventually(t, 60*time.Second, "a machine is turned away", func() error {
				d, err := a.Status(t)
				if err != nil {
					return err
				}
				if d.Setup != status.SetupFailed || len(d.Problems) == 0 || !strings.Contains(d.Problems[0].Cause, c.want) || !strings.Contains(d.Problems[0].Cause, "check:") {
					return fmt.Errorf("set-up %s: %+v", d.Setup, d.Problems)
				}
				return nil
			})
			a.Kill()
		}
	})
}
