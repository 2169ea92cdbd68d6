//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"saltern/test/lab"
)

// TestClusterOfThree: three nodes; a key accepted on one is good on all, jobs
// of each node reach minions of three releases.
func TestClusterOfThree(t *testing.T) {
	t.Parallel()
	c := lab.StartCluster(t, lab.ClusterConfig{Network: lab.NewNetwork(t, "scl", "10.50")})
	var ids []string
	for i, v := range lab.Versions() {
		id := "m" + strings.ReplaceAll(v, ".", "-")
		ids = append(ids, id)
		c.StartMinion(t, id, v, c.Members[i].Addr, nil)
	}
	lab.Eventually(t, 60*time.Second, "keys are asked for", func() error {
		r := c.Members[0].Key(t, "-l", "pre")
		for _, id := range ids {
			if !strings.Contains(r.Out, id) {
				return fmt.Errorf("%s", r.Out)
			}
		}
		return nil
	})
	if r := c.Members[1].Key(t, "-y", "-A"); r.Code != 0 {
		t.Fatalf("salt-key -A: %+v", r)
	}
	for _, m := range c.Members {
		lab.Eventually(t, 60*time.Second, "test.ping from "+m.Addr, func() error {
			got, err := m.JSON(t, "-t", "5", "*", "test.ping")
			for _, id := range ids {
				if err == nil && got[id] != true {
					err = fmt.Errorf("%s gave %v", id, got[id])
				}
			}
			return err
		})
	}
}
