//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"saltern/supervisor/status"
	"saltern/test/lab"
)

// tellsOf waits until a node tells of a problem with these words in its cause. first: no other
// problem stands before it.
func tellsOf(t *testing.T, n *lab.Appliance, code status.Code, words string, first bool) {
	t.Helper()
	lab.Eventually(t, 60*time.Second, n.Name+" tells of "+string(code), func() error {
		d, err := n.Status(t)
		if err != nil {
			return err
		}
		for i, p := range d.Problems {
			if p.Code == code && strings.Contains(p.Cause, words) && (i == 0 || !first) {
				return nil
			}
		}
		return fmt.Errorf("%+v", d.Problems)
	})
}

// silentAbout waits until a node does not tell of a problem any more.
func silentAbout(t *testing.T, n *lab.Appliance, code status.Code) {
	t.Helper()
	lab.Eventually(t, 120*time.Second, n.Name+" does not tell of "+string(code), func() error {
		d, err := n.Status(t)
		if err != nil {
			return err
		}
		for _, p := range d.Problems {
			if p.Code == code {
				return fmt.Errorf("%+v", p)
			}
		}
		return nil
	})
}

// refuses tries on a copy what would change its cluster.
func refuses(t *testing.T, clone *lab.Appliance) {
	t.Helper()
	for _, args := range [][]string{
		{"leave", "--yes"},
		{"drain", "n3"},
		{"drain", "n1"},
		{"remove", "--yes", "--force", "n2"},
		{"secret", "rotate"},
	} {
		if r := clone.Applianced(t, args...); r.Code == 0 || !strings.Contains(r.Err, "applianced reset --yes") {
			t.Errorf("%v on the copy: %+v", args, r)
		}
	}
}

// cloneElsewhere: a copy of n3 runs beside it with another address. All nodes name both, the
// copy says first what it is, and changes nothing; a reset makes it new and harms nobody (F5).
func cloneElsewhere(t *testing.T, nodes []*lab.Appliance, clone *lab.Appliance) {
	t.Helper()
	began := time.Now()
	both := "two machines use the key of n3: " + nodes[2].Addr + " and " + clone.Addr
	tellsOf(t, clone, status.NotTheNode, "this machine does not have that address", true)
	refuses(t, clone)

	for _, n := range nodes {
		tellsOf(t, n, status.KeyTwice, both, false)
	}

	t.Logf("all nodes name both machines after %s", time.Since(began).Round(time.Second))
	for _, n := range nodes {
		n.WaitReady(t, 3)
	}

	if r := clone.Applianced(t, "reset"); !strings.Contains(r.Err,
		"this machine is not the node whose key it has") || strings.Contains(r.Err, "leave") {
		t.Errorf("what a reset of the copy would do: %+v", r)
	}

	if r := clone.Applianced(t, "reset", "--yes"); r.Code != 0 ||
		!strings.Contains(r.Out, "this machine is new") || strings.Contains(r.Out, "applianced remove") {
		t.Errorf("reset of the copy: %+v", r)
	}

	clone.Kill()
	for _, n := range nodes {
		n.WaitReady(t, 3)
	}
}
