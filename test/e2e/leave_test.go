//go:build e2e && appliance

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/test/lab"
)

// TestLeaveBesideAHungMaster: the master of the first node that is asked hangs while
// another node leaves. Leave says so only when it is true: the master of that node is
// out, and join strings of before are void. A further try, and a removal, say what is.
func TestLeaveBesideAHungMaster(t *testing.T) {
	t.Parallel()
	nodes := threeOrdinary(t, lab.NewNetwork(t, "lvh", "10.72"))
	before := strings.TrimSpace(must(t, nodes[1].Applianced(t, "join-string")))
	strike(t, nodes[0], "master", syscall.SIGSTOP)
	began := time.Now()
	r := nodes[2].Applianced(t, "leave", "--yes")
	t.Logf("leave ended after %s with %d: %s%s", time.Since(began).Round(time.Second), r.Code, r.Out, r.Err)
	if r.Code != 0 {
		lab.Eventually(t, 60*time.Second, "a further try", func() error {
			if r := nodes[2].Applianced(t, "leave", "--yes"); r.Code != 0 && !strings.Contains(r.Err, "removed already") {
				return fmt.Errorf("%+v", r)
			}
			return nil
		})
	}
	// What leave says holds at once on the node that was asked last, and on the other
	// one when its master is back.
	lab.Eventually(t, 90*time.Second, "the master is out of the record everywhere", func() error {
		for _, n := range nodes[:2] {
			var v struct{ Peers map[string]any }
			r := n.Tool(t, "salt-run", "cluster.members", "--out", "json")
			if err := json.Unmarshal([]byte(r.Out), &v); err != nil {
				return fmt.Errorf("%s: %w: %+v", n.Name, err, r)
			}
			if _, in := v.Peers[nodes[2].Addr]; in || len(v.Peers) != 1 {
				return fmt.Errorf("%s: its peers are %v", n.Name, v.Peers)
			}
			if now := strings.TrimSpace(must(t, n.Applianced(t, "join-string"))); now == before {
				return fmt.Errorf("%s: the join string of before is good", n.Name)
			}
		}
		return nil
	})
	if r := nodes[0].Applianced(t, "remove", "--yes", "--force", nodes[2].Name); r.Code == 0 || !strings.Contains(r.Err, "there is no node") {
		t.Errorf("remove: %+v", r)
	}
}
