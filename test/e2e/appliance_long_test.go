//go:build e2e && appliance

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"saltern/supervisor/nodeapi"
	"saltern/test/lab"
)

// TestApplianceTenTimes forms a cluster of three from nothing, all started at
// once in any order, ten times in a row. A minion answers from each node.
func TestApplianceTenTimes(t *testing.T) {
	for i := range 10 {
		t.Run(fmt.Sprint(i+1), func(t *testing.T) {
			nodes := threeNodes(t, lab.NewNetwork(t, "sup", "10.70"))
			order := rand.Perm(3)
			began := time.Now()
			for _, k := range order {
				nodes[k].Launch(t)
				time.Sleep(time.Duration(rand.IntN(1500)) * time.Millisecond)
			}

			for _, n := range nodes {
				n.WaitReady(t, 3)
			}

			t.Logf("order %v: ready after %s", order, time.Since(began).Round(10*time.Millisecond))
			nodes[rand.IntN(3)].StartMinion(t, "m1", lab.Newest)
			for _, n := range nodes {
				n.Ping(t, 90*time.Second, "m1")
			}
		})
	}
}

// TestAppliancePowerCuts cuts the power of all three nodes at once, after each
// step of the first node's set-up and after each of the second's, and again
// while they go on. Nobody is stuck.
func TestAppliancePowerCuts(t *testing.T) {
	for who, steps := range []int{7, 8} {
		for step := range steps {
			t.Run(fmt.Sprintf("node %d step %d", who+1, step), func(t *testing.T) {
				nodes := threeNodes(t, lab.NewNetwork(t, "sup", "10.70"))
				for _, k := range rand.Perm(3) {
					nodes[k].Launch(t)
				}

				reached := waitStep(t, nodes[who], step)
				for _, n := range nodes {
					n.Kill()
				}

				for _, k := range rand.Perm(3) {
					nodes[k].Launch(t)
				}

				time.Sleep(time.Duration(rand.IntN(4000)) * time.Millisecond)
				for _, n := range nodes {
					n.Kill()
				}

				began := time.Now()
				for _, k := range rand.Perm(3) {
					nodes[k].Launch(t)
				}

				for _, n := range nodes {
					retryUnproven(t, n)
				}

				for _, n := range nodes {
					n.WaitReady(t, 3)
				}

				t.Logf("power cut when %s had done %v: ready %s after the second", nodes[who].Name, reached,
					time.Since(began).Round(10*time.Millisecond))
			})
		}
	}
}

// retryUnproven does what the set-up asks of a person where the cut hit a node at the
// moment when it had to prove that it is the cluster: whoever joins does not try that
// again by itself (decision 1).
func retryUnproven(t *testing.T, n *lab.Appliance) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(n.Dir, "data/setup/state.json"))
	if err != nil || !bytes.Contains(b, []byte(nodeapi.ErrUnproven.Error())) {
		return
	}
	t.Logf("%s had heard no proof and waits for somebody: setup retry", n.Name)
	lab.Eventually(t, time.Minute, "setup retry of "+n.Name, func() error {
		if r := n.Applianced(t, "setup", "retry"); r.Code != 0 {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})
}

// waitStep waits until so many steps are done.
func waitStep(t *testing.T, n *lab.Appliance, count int) (done []string) {
	t.Helper()
	path := filepath.Join(n.Dir, "data/setup/state.json")
	for end := time.Now().Add(lab.Limit(60 * time.Second)); time.Now().Before(end); time.Sleep(time.Millisecond) {
		var s struct {
			Phase string
			Done  []string
		}

		b, err := os.ReadFile(path)
		if err == nil && json.Unmarshal(b, &s) == nil && (len(s.Done) >= count || s.Phase == "ready") {
			return s.Done
		}
	}

	t.Fatalf("%s never did %d steps", n.Name, count)
	return nil
}
