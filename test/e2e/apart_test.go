//go:build e2e

package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/supervisor/status"
	"saltern/test/lab"
)

// poolPort is where masters of a cluster listen for each other.
const poolPort = 4520

// TestMastersApart closes the masters' port between two of three nodes, which
// see each other otherwise. Jobs reach all minions all the same, through the
// third; status names the two and the port. With the third closed as well, it
// says what that means.
func TestMastersApart(t *testing.T) {
	t.Parallel()
	net := lab.NewNetwork(t, "apt", "10.71")
	nodes := threeNodes(t, net)
	for _, n := range nodes {
		n.Launch(t)
	}

	for _, n := range nodes {
		n.WaitReady(t, 3)
	}

	var ids []string
	for i, v := range lab.Versions() {
		ids = append(ids, fmt.Sprintf("m%d", i+1))
		nodes[i].StartMinion(t, ids[i], v)
	}

	for _, n := range nodes {
		n.Ping(t, 150*time.Second, ids...)
	}

	// Whatever the load balancers have decided: n2's master has most minions.
	served := func(n *lab.Appliance) int {
		s, err := control.ReadStatus(filepath.Join(n.Dir, "data", "cache", control.StatusFile))
		if err != nil {
			t.Fatal(err)
		}
		return s.Connected
	}

	time.Sleep(3 * time.Second) // it is written every two seconds
	slices.SortFunc(nodes, func(a, b *lab.Appliance) int { return served(b) - served(a) })
	n2, n1, n3 := nodes[0], nodes[1], nodes[2]
	t.Logf("%s has %d minions, %s %d, %s %d", n2.Name, served(n2), n1.Name, served(n1), n3.Name, served(n3))
	tells := func(n *lab.Appliance, of *lab.Appliance, cause string) {
		t.Helper()
		lab.Eventually(t, 60*time.Second, n.Name+" tells of "+of.Name, func() error {
			d, err := n.Status(t)
			if err != nil {
				return err
			}
			if !slices.ContainsFunc(d.Problems, func(p status.Problem) bool {
				return p.Code == status.MastersApart && p.Subject == of.Name &&
					strings.Contains(p.Cause, fmt.Sprint(of.Addr, ":", poolPort)) && strings.Contains(p.Cause, cause)
			}) {
				return fmt.Errorf("%+v", d.Problems)
			}

			return nil
		})
	}

	began := time.Now()
	net.Bar(t, n1.Addr, n2.Addr, poolPort)
	for _, n := range nodes {
		n.Ping(t, 60*time.Second, ids...)
		t.Logf("all answer %s %.1f s after the port was closed", n.Name, time.Since(began).Seconds())
	}

	tells(n1, n2, "through "+n3.Name)
	tells(n2, n1, "through "+n3.Name)
	began = time.Now()
	for range 3 {
		for _, n := range nodes { // at the first try, from now on
			if r := n.Tool(t, "salt", "--out", "json", "--static", "-t", "15", "*", "test.ping"); strings.Count(r.Out, "true") != len(ids) {
				t.Errorf("%s: %+v", n.Name, r)
			}
		}
	}

	t.Logf("nine jobs took %.1f s", time.Since(began).Seconds())

	net.Bar(t, n1.Addr, n3.Addr, poolPort)
	tells(n1, n2, "do not reach the minions")
	tells(n1, n3, "do not reach the minions")
	tells(n3, n1, "do not reach the minions")
	net.Unbar(t, n1.Addr)

	for _, n := range nodes {
		n.Ping(t, 60*time.Second, ids...)
		lab.Eventually(t, 60*time.Second, n.Name+" has nothing to tell", func() error {
			d, err := n.Status(t)
			if err == nil && slices.ContainsFunc(d.Problems,
				func(p status.Problem) bool { return p.Code == status.MastersApart }) {
				err = fmt.Errorf("%+v", d.Problems)
			}
			return err
		})
	}
}
