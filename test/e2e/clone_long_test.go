//go:build e2e && appliance

package e2e

import (
	"errors"
	"strings"
	"testing"
	"time"

	"saltern/supervisor/status"
	"saltern/test/await"
	"saltern/test/lab"
)

// TestCloneOfANode starts copies of a node in every form: beside it with another address and
// with its own, while it is off, and in its place, as a restore does. The node is the one
// that the others know, and no copy takes it out (F5).
func TestCloneOfANode(t *testing.T) {
	t.Parallel()
	nodes := threeOrdinary(t, lab.NewNetwork(t, "cln", "10.76"))
	whole := func() {
		for _, n := range nodes {
			n.WaitReady(t, 3)
		}
	}

	all := t
	nodes[2].Kill()
	off := time.Now()
	copies := map[string]*lab.Appliance{}
	for i, name := range []string{"beside", "off", "one address", "restored"} {
		copies[name] = nodes[2].Clone(t, 33+i)
	}

	t.Run("off, with another address", func(t *testing.T) {
		clone := copies["off"]
		lab.Eventually(t, 60*time.Second, "nobody remembers that n3 ran", func() error {
			if time.Since(off) < 25*time.Second {
				return errors.New("not yet")
			}
			return nil
		})

		clone.Launch(all)
		for _, n := range nodes[:2] {
			tellsOf(t, n, status.KeyTwice,
				"a machine at "+clone.Addr+" uses the key of n3, which has the address "+nodes[2].Addr,
				false)
		}

		// its hardware is that of n3 here
		tellsOf(t, clone, status.AddressMissing, "this machine has "+clone.Addr, false)
		refuses(t, clone)
		nodes[2].Launch(all) // an hour later, say
		whole()
		tellsOf(t, clone, status.NotTheNode, "another machine answers with the same key", true)
		tellsOf(t, nodes[2], status.KeyTwice, "two machines use the key of n3", false)
		clone.Kill()
	})

	t.Run("beside, with another address", func(t *testing.T) {
		copies["beside"].Launch(all)
		cloneElsewhere(t, nodes, copies["beside"])
		for _, n := range nodes {
			silentAbout(t, n, status.KeyTwice)
		}
	})

	t.Run("beside, with its address", func(t *testing.T) {
		clone := copies["one address"]
		clone.TakeAddress(t, nodes[2])
		clone.Launch(all)
		began := time.Now()

		for _, n := range nodes[:2] {
			tellsOf(t, n, status.KeyTwice, "two machines at "+nodes[2].Addr+" use the key of n3", false)
		}

		t.Logf("noticed after %s", time.Since(began).Round(time.Second))
		for _, n := range []*lab.Appliance{nodes[2], clone} {
			tellsOf(t, n, status.KeyTwice, "which one is the copy cannot be told", false)
		}

		if r := clone.Applianced(t, "leave", "--yes"); r.Code == 0 {
			t.Errorf("the copy has left: %+v", r)
		}

		clone.Kill()
		for _, n := range nodes {
			silentAbout(t, n, status.KeyTwice)
		}

		whole()
	})

	t.Run("in its place", func(t *testing.T) {
		nodes[2].Kill()
		restored := copies["restored"]
		restored.TakeAddress(t, nodes[2])
		restored.Launch(all)

		for _, n := range []*lab.Appliance{nodes[0], nodes[1], restored} {
			n.WaitReady(t, 3)
		}

		await.Holds(t, 20*time.Second, "nobody takes it for a copy", func() bool {
			for _, n := range []*lab.Appliance{nodes[0], nodes[1], restored} {
				d, err := n.Status(t)
				for _, p := range d.Problems {
					if err == nil && (p.Code == status.KeyTwice || p.Code == status.NotTheNode) {
						t.Logf("%s: %+v", n.Name, p)
						return false
					}
				}
			}

			return true
		})

		must(t, restored.Applianced(t, "drain", "n3"))
		must(t, restored.Applianced(t, "undrain", "n3"))
		lab.Eventually(t, 180*time.Second, "the restored node leaves", func() error {
			if r := restored.Applianced(t, "leave", "--yes"); r.Code != 0 {
				return errors.New(strings.TrimSpace(r.Err))
			}
			return nil
		})
	})
}
