//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/test/lab"
)

// TestNoJobTwice: two minions do a job and return it; then the node that has the
// virtual address is lost, and the minions start anew, as when they are booted in
// that moment. They are not given the job again.
func TestNoJobTwice(t *testing.T) {
	t.Parallel()
	net := lab.NewNetwork(t, "sjt", "10.58")
	c := lab.StartCluster(t, lab.ClusterConfig{Network: net, Options: map[string]any{"auto_accept": true}})
	net.Move(t, c.Members[0].Addr)
	file := filepath.Join(lab.Dir(t), "done")
	var minions []*lab.Minion
	ids := []string{"a", "b"}
	for i, v := range []string{lab.Versions()[0], lab.Newest} {
		minions = append(minions, c.StartMinion(t, ids[i], v, net.Virtual(), nil))
	}

	answer := func(m *lab.Member) {
		t.Helper()
		lab.Eventually(t, 120*time.Second, "the minions answer", func() error {
			got, err := m.JSON(t, "-t", "5", "-L", strings.Join(ids, ","), "test.ping")
			if err == nil && (got["a"] != true || got["b"] != true) {
				err = fmt.Errorf("%v", got)
			}
			return err
		})
	}

	for i, victim := range c.Members {
		survivor := c.Members[(i+1)%len(c.Members)]
		answer(survivor)
		if r, err := survivor.JSON(t, "-t", "15", "-L", strings.Join(ids, ","), "cmd.run",
			fmt.Sprintf("echo job %d of $PPID >> %s", i, file)); err != nil || len(r) != len(ids) {
			t.Fatal(r, err)
		}

		time.Sleep(time.Second)
		net.Cut(t, victim.Addr) // no reset tells the minions, so they do not come back before they are ended
		time.Sleep(time.Second)
		for _, m := range minions {
			m.Kill()
		}

		net.Move(t, survivor.Addr)
		time.Sleep(5 * time.Second) // the node is known to be lost
		for _, m := range minions {
			m.Launch(t)
		}

		answer(survivor) // they have signed in, subscribed, and been given what they missed
		time.Sleep(3 * time.Second)
		net.Mend(t, victim.Addr)
		c.WaitWhole(t)
		b, err := os.ReadFile(file)
		if lines := strings.Split(strings.TrimSpace(string(b)), "\n"); err != nil || len(lines) != len(ids)*(i+1) {
			t.Fatalf("the jobs that were done: %q, %v", lines, err)
		}
	}
}
