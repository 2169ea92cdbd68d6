//go:build nspawn

package image

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/test/lab"
)

// TestCluster boots three new machines at once and goes through the wizard on
// the console of each: the first forms a cluster on a volume of its own, with a
// virtual address, the others join it at the same time, one by join string, one
// by address and secret. Real minions are answered through every address, also
// while the node that has the virtual one is without power.
func TestCluster(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	virtual, began := n.base+"200", time.Now()
	var all []*machine
	for i := 21; i <= 23; i++ {
		all = append(all, boot(t, n, i, nil))
	}

	join := formByWizard(t, all, virtual)
	joinByWizard(t, all[1:], join, all[0].Address)
	everyone := func() {
		t.Helper()
		for _, m := range all { // all at once: a node that just became well may be away for a moment
			for _, other := range all {
				m.wait(t, 600*time.Second, other.Name, "sh", "-c", "applianced status | grep -A9 HEALTHY")
			}
		}
	}

	everyone()
	t.Logf("three nodes %s after the start", time.Since(began).Round(time.Second))
	all[0].wait(t, 300*time.Second, "Number of Bricks: 1 x 3 = 3", "gluster", "volume", "info")
	by := map[*machine]string{all[0]: "by21", all[1]: "web1", all[2]: "by23"}
	n.minion(t, 50, "web1", all[1].Address)
	n.minion(t, 51, "by21", all[0].Address)
	n.minion(t, 52, "by23", all[2].Address)
	n.minion(t, 53, "byvirtual", virtual)
	t.Run("firewall", func(t *testing.T) {
		other, _ := n.namespace(t, 92)
		for _, p := range scan(t, other, all[0].Address) {
			if !slices.Contains([]int{22, 4505, 4506, 4521}, p) {
				t.Errorf("port %d is open to strangers", p)
			}
		}
	})

	answer := func(m *machine, ids ...string) {
		t.Helper()
		count := `salt --out txt -L "$0" test.ping | grep -c ": True" | sed s/^/answers=/`
		m.wait(t, 180*time.Second, fmt.Sprintf("answers=%d", len(ids)), "sh", "-c", count, strings.Join(ids, ","))
	}

	ids := []string{"by21", "web1", "by23", "byvirtual"}

	// A volume that is being changed may refuse a part of it: an administrator does it
	// again until nothing waits.
	all[0].wait(t, 180*time.Second, fmt.Sprintf("accepted=%d pending=0", len(ids)), "sh", "-c",
		"salt-key -y -A >&2; count() { salt-key -l $1 | tail -n +2 | grep -c .; }; echo accepted=$(count acc) pending=$(count un)")
	for _, m := range all {
		answer(m, ids...)
	}

	t.Logf("minions are served through all addresses %s after the start", time.Since(began).Round(time.Second))

	t.Run("python package", func(t *testing.T) { givesPackages(t, all, "web1") })
	t.Run("vault", func(t *testing.T) { givesVault(t, n, all, "web1") })
	t.Run("api", func(t *testing.T) { servesAPI(t, n, all, virtual) })

	// The power of the node with the virtual address is cut; minions of the
	// others and of that address are answered meanwhile, and the node comes back
	// by itself.
	lost := holder(t, all[0], all, virtual)
	left := slices.DeleteFunc(slices.Clone(all), func(m *machine) bool { return m == lost })
	lost.cut(t)
	left[0].wait(t, 120*time.Second, "DEGRADED", "sh", "-c", "applianced status || true")
	holder(t, left[0], left, virtual)
	answer(left[1], by[left[0]], by[left[1]], "byvirtual")
	lost.launch(t)
	everyone()
	answer(lost, ids...)
}

// formByWizard has the first machine form a cluster, and the others wait with
// the question how they join it. It gives the join string that is shown.
func formByWizard(t *testing.T, all []*machine, virtual string) (join string) {
	t.Helper()
	for _, m := range all[1:] {
		p := &pages{t: t, x: m, wait: 4 * time.Minute}
		p.lead()
		p.page("What shall this machine do?", down+"\r")
		p.network()
		p.page("How you log in later", somebody+"\r\r\r")
		p.page("What do you have from the cluster?", "")
	}

	p := &pages{t: t, x: all[0], wait: 4 * time.Minute, virtual: virtual}
	p.form(somebody, all[0].Name, all[0].Address)
	_, rest, _ := strings.Cut(all[0].Screen(), "applianced join-string):")
	rest, _, _ = strings.Cut(rest, "The cluster's secret")
	join = strings.Join(strings.Fields(rest), "")
	if !strings.HasPrefix(join, "sca2.") || !strings.Contains(all[0].Screen(), "master: "+virtual) {
		t.Fatalf("the last page shows\n%s", all[0].Screen())
	}

	p.page("This node is ready", "\r")
	p.page("minions use", "") // the console page
	return join
}

// joinByWizard has two machines join at once: the first by join string, the
// second by the address of a node and the secret.
func joinByWizard(t *testing.T, two []*machine, join, peer string) {
	t.Helper()
	front, _, _ := strings.Cut(join, "@")
	secret := front[strings.LastIndex(front, ".")+1:]
	for i, m := range two {
		p := &pages{t: t, x: m, wait: 4 * time.Minute}
		name := "\x15" + m.Name + "\r" + m.Address + "\r\r" // the host name is that of the node
		if i == 0 {
			p.page("What do you have from the cluster?", "\r"+name)
			p.page("begins with sca2.", join+"\r")
		} else {
			p.page("What do you have from the cluster?", down+"\r"+name)
			p.page("one is enough", "blue\r"+peer+"\r"+secret+"\r")
		}

		p.page("disk given here is for a copy", "\r")
		p.page("Shall this node serve", "\r")
	}

	for _, m := range two {
		p := &pages{t: t, x: m, wait: 4 * time.Minute}
		p.page("The set-up can go on", "\r")
		p.page("START THE SET-UP", "s")
	}

	for _, m := range two {
		p := &pages{t: t, x: m, wait: 10 * time.Minute}
		p.page("This node is ready", "\r")
		p.page("minions use", "") // the console page
	}
}

// holder waits until a machine says which of some others has the virtual
// address, and that one has it.
func holder(t *testing.T, says *machine, among []*machine, virtual string) (has *machine) {
	t.Helper()
	lab.Eventually(t, 120*time.Second, "somebody has "+virtual, func() error {
		out, _ := says.try("applianced", "status")
		for _, m := range among {
			if !strings.Contains(out, "the virtual address, now on "+m.Name) {
				continue
			}

			if ip, err := m.try("ip", "-4", "addr", "show"); err != nil || !strings.Contains(ip, virtual+"/") {
				return fmt.Errorf("%s does not have it: %v %s", m.Name, err, ip)
			}

			has = m
			return nil
		}

		return fmt.Errorf("%s", out)
	})

	return has
}

// down is the arrow key; somebody is an administrator's public key.
const down = "\x1b[B"

const somebody = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJuTbTKBmIvNxBWyBfNZ2ycUmO7TN0CPGUdR4qWmrcHW ops"
