//go:build e2e && appliance

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/supervisor/status"
	"saltern/test/lab"
)

// TestLeaveBesideAHungMaster: the master of the first node that is asked hangs while
// another node leaves. Leave says so only when it is true: the master of that node is
// out, and earlier join strings are void. A further try, and a removal, say what is.
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
			if r := nodes[2].Applianced(t, "leave", "--yes"); r.Code != 0 &&
				!strings.Contains(r.Err, "removed already") {
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

	if r := nodes[0].Applianced(t, "remove", "--yes", "--force", nodes[2].Name); r.Code == 0 ||
		!strings.Contains(r.Err, "there is no node") {
		t.Errorf("remove: %+v", r)
	}
}

// TestRemovalStopsHalfWay: the node that removes another one is lost when that one's
// master is out and the table of nodes cannot be written yet. The third node tells of
// it until the storage takes writes, and finishes; the first one finds all done when
// it is back.
func TestRemovalStopsHalfWay(t *testing.T) {
	t.Parallel()
	ns := threeOrdinary(t, lab.NewNetwork(t, "half", "10.73"))
	before := strings.TrimSpace(must(t, ns[1].Applianced(t, "join-string")))
	ns[2].Kill()
	table := filepath.Join(ns[0].Shared, "nodes")
	fixed(t, table, true)
	t.Cleanup(func() { fixed(t, table, false) })

	if r := ns[0].Applianced(t, "remove", "--yes", "--force", "n3"); r.Code == 0 ||
		!strings.Contains(r.Err, "its master is out already") {
		t.Fatalf("the removal did not stop between: %+v", r)
	}

	ns[0].Kill()
	lab.Eventually(t, 60*time.Second, "the third node tells of it", func() error {
		d, err := ns[1].Status(t)
		if err != nil {
			return err
		}

		for _, p := range d.Problems {
			if p.Code == status.RemovalHalf && p.Subject == "n3" {
				t.Logf("%s: %s", p.Title, p.Cause)
				return nil
			}
		}

		return fmt.Errorf("%+v", d.Problems)
	})

	fixed(t, table, false)
	began := time.Now()
	finished := func(n *lab.Appliance) func() error {
		return func() error {
			d, err := n.Status(t)
			if err != nil {
				return err
			}

			for _, o := range d.Nodes {
				if o.Name == "n3" {
					return fmt.Errorf("n3 is %s", o.State)
				}
			}

			for _, p := range d.Problems {
				if p.Code == status.RemovalHalf {
					return fmt.Errorf("%+v", p)
				}
			}

			return nil
		}
	}

	lab.Eventually(t, 30*time.Second, "the third node finishes", finished(ns[1]))
	t.Logf("finished %s after the storage took writes", time.Since(began).Round(100*time.Millisecond))
	if now := strings.TrimSpace(must(t, ns[1].Applianced(t, "join-string"))); now == before {
		t.Error("the join string of before is good")
	}

	ns[0].Launch(t)
	ns[0].WaitReady(t, 2)
	lab.Eventually(t, 30*time.Second, "the first node knows", finished(ns[0]))
	ns[2].Launch(t)
	lab.Eventually(t, 60*time.Second, "the removed node hears of it", func() error {
		d, err := ns[2].Status(t)
		if err == nil && !slices.ContainsFunc(d.Problems,
			func(p status.Problem) bool { return p.Code == status.NodeRemoved }) {
			err = fmt.Errorf("%+v", d.Problems)
		}
		return err
	})
}

// fixed makes a folder one in which nothing can be made or replaced, or ends that.
func fixed(t *testing.T, dir string, on bool) {
	t.Helper()
	flag := "-i"
	if on {
		flag = "+i"
	}
	if out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "chattr", flag, dir).CombinedOutput(); err != nil {
		t.Fatalf("chattr %s %s: %v: %s", flag, dir, err, out)
	}
}
