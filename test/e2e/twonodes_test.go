//go:build e2e && appliance

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"saltern/test/lab"
)

// answers waits until these minions answer one job of a node; others, which may be
// away, are not asked.
func answers(t *testing.T, n *lab.Appliance, ids ...string) {
	t.Helper()
	began := time.Now()
	lab.Eventually(t, 120*time.Second, fmt.Sprintf("%q answer %s", ids, n.Name), func() error {
		r := n.Tool(t, "salt", "--out", "json", "--static", "-t", "10", "-L", strings.Join(ids, ","), "test.ping")
		var m map[string]any
		if err := json.Unmarshal([]byte(r.Out), &m); err != nil {
			return fmt.Errorf("%w: %s%s", err, r.Out, r.Err)
		}

		for _, id := range ids {
			if m[id] != true {
				return fmt.Errorf("%s gave %v", id, m[id])
			}
		}

		return nil
	})

	t.Logf("%q answer %s after %.0f s", ids, n.Name, time.Since(began).Seconds())
}

// TestTwoNodesOnADirectory holds the table "Two nodes" of docs/storage.md for a
// directory of the administrator's own: either node may be lost, and the one that is
// left may restart; minions that are known answer, and new ones are taken in.
func TestTwoNodesOnADirectory(t *testing.T) {
	t.Parallel()
	net, shared := lab.NewNetwork(t, "two", "10.72"), lab.Dir(t)
	first := lab.NewAppliance(t, net, 1, shared, map[string]any{"mode": "form", "secret": lab.ApplianceSecret})
	second := lab.NewAppliance(t, net, 2, shared,
		map[string]any{"mode": "join", "peers": []string{first.Addr}, "secret": lab.ApplianceSecret})
	first.Launch(t)
	first.WaitReady(t, 1)
	second.Launch(t)

	for _, n := range []*lab.Appliance{first, second} {
		n.WaitReady(t, 2)
		n.StartMinion(t, "known-"+n.Name, lab.Newest)
	}

	answers(t, first, "known-n1", "known-n2")
	for _, q := range [][2]*lab.Appliance{{first, second}, {second, first}} {
		lost, stays := q[0], q[1]
		lost.Kill()
		answers(t, stays, "known-"+stays.Name)
		stays.StartMinion(t, "new-without-"+lost.Name, lab.Newest)
		answers(t, stays, "known-"+stays.Name, "new-without-"+lost.Name)
		stays.Kill()
		stays.Launch(t)
		answers(t, stays, "known-"+stays.Name, "new-without-"+lost.Name)
		lost.Launch(t)

		for _, n := range q {
			n.WaitReady(t, 2)
		}
	}
}
