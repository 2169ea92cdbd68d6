//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/test/lab"
	"saltern/test/smalldisk"
)

// TestWizardInTmux takes three machines at once from nothing to a serving
// cluster, each by the wizard in a tmux of its own. Two join at the same time.
// A real minion answers from each node, and through each node's address.
func TestWizardInTmux(t *testing.T) {
	t.Parallel()
	net := lab.NewNetwork(t, "tmx", "10.82")
	shared, virtual := lab.Dir(t), net.Virtual()
	if _, err := exec.LookPath("keepalived"); err != nil {
		t.Log("NOT TESTED: the virtual address: keepalived is not installed")
		virtual = ""
	}

	var nodes []*lab.Appliance
	var on []*lab.Tmux
	for i := 1; i <= 3; i++ {
		nodes = append(nodes, blank(t, net, i))
	}

	for _, n := range nodes {
		lab.Eventually(t, step, "the supervisor answers", func() error { _, err := n.Status(t); return err })
		on = append(on, n.Tmux(t, "setup"))
	}

	for _, x := range on {
		opened(t, x)
	}

	for _, x := range on[1:] { // as far as one gets without the first node
		x.Type(t, down+"\r")
		skipAdministrator(t, x)
		x.WaitFor(t, step, "What do you have from the cluster?")
	}

	on[0].Type(t, "\r")
	skipAdministrator(t, on[0])
	on[0].WaitFor(t, step, "Name of the cluster")
	on[0].Type(t, "lab\r\x15n1\r"+nodes[0].Addr+"\r\r")
	useShared(t, on[0], shared)
	useVirtual(t, on[0], virtual)
	useAPI(t, on[0], "no")
	review(t, on[0], "lab", "n1", nodes[0].Addr, shared)
	entry := virtual
	if entry == "" {
		entry = nodes[0].Addr
	}

	on[0].WaitFor(t, 120*time.Second, "This node is ready", "master: "+entry, "sca2.")
	join := joinString(t, on[0])

	on[1].Type(t, "\r\x15n2\r"+nodes[1].Addr+"\r")
	on[1].WaitFor(t, step, "begins with sca2.")
	on[1].Type(t, join+"\r")
	on[2].Type(t, down+"\r\x15n3\r"+nodes[2].Addr+"\r")
	on[2].WaitFor(t, step, "one is enough")
	on[2].Type(t, "lab\r"+nodes[0].Addr+"\r"+secretOf(t, join)+"\r")

	for _, x := range on[1:] {
		useShared(t, x, shared)
		useAPI(t, x, "no")
	}

	for i, x := range on[1:] {
		review(t, x, "through", nodes[0].Addr, fmt.Sprintf("n%d", i+2))
	}

	for _, x := range on[1:] {
		x.WaitFor(t, 120*time.Second, "This node is ready", "master: "+entry)
	}

	for _, x := range on {
		x.Type(t, "\r")
		if code := x.WaitEnd(t, step); code != 0 {
			t.Errorf("a wizard ended with %d", code)
		}
	}

	for _, n := range nodes {
		n.WaitReady(t, 3)
	}

	var ids []string
	for i, n := range nodes {
		ids = append(ids, fmt.Sprintf("by%d", i+1))
		n.StartMinion(t, ids[i], lab.Newest)
	}

	if virtual != "" {
		ids = append(ids, "byvirtual")
		lab.StartMinionAt(t, "byvirtual", lab.Newest, virtual)
	}

	lab.Eventually(t, 120*time.Second, "the keys are accepted", func() error {
		nodes[1].Tool(t, "salt-key", "-y", "-A")
		r := nodes[2].Tool(t, "salt-key", "-l", "acc", "--out", "json")
		for _, id := range ids {
			if !strings.Contains(r.Out, `"`+id+`"`) {
				return fmt.Errorf("%s: %+v", id, r)
			}
		}

		return nil
	})

	for _, n := range nodes {
		n.Ping(t, 150*time.Second, ids...)
	}

	page := nodes[2].Tmux(t, "console")
	page.WaitFor(t, step, "cluster lab", "(3 nodes)", "1 status details")
	page.Type(t, "1")
	page.WaitFor(t, step, "running", "Esc: back")
	page.Type(t, "\x03")

	if code := page.WaitEnd(t, step); code != 0 {
		t.Errorf("the console page ended with %d", code)
	}
}

// TestWizardStops: what does not fit is found by the wizard's preflight, with
// a hint, and the machine stays as it was.
func TestWizardStops(t *testing.T) {
	t.Parallel()
	net := lab.NewNetwork(t, "wst", "10.83")
	shared := lab.Dir(t)
	n1 := lab.NewAppliance(t, net, 1, shared, map[string]any{"mode": "form", "secret": lab.ApplianceSecret})
	n1.Launch(t)
	n1.WaitReady(t, 1)
	n2 := blank(t, net, 2)
	full := lab.NewAppliance(t, net, 3, "", nil)
	if err := os.Remove(full.Answers()); err != nil {
		t.Fatal(err)
	}

	data := filepath.Join(full.Dir, "data")
	if err := os.Mkdir(data, 0o755); err != nil {
		t.Fatal(err)
	}

	smalldisk.MountOn(t, data, "size=2m")
	full.Launch(t)
	nobody := strings.TrimSuffix(n1.Addr, "1") + "77"
	for _, c := range []struct {
		name                        string
		on                          *lab.Appliance
		node, cluster, peer, secret string
		says                        []string
	}{
		{"wrong secret", n2, "n2", "lab", n1.Addr, "another-secret-of-that-length",
			[]string{"the secret is not that of the cluster", "-> copy the join string again"}},
		{"unreachable peer", n2, "n2", "lab", nobody, lab.ApplianceSecret,
			[]string{"port 4521/tcp of " + nobody, "-> check that the node runs"}},
		{"name taken", n2, "n1", "lab", n1.Addr, lab.ApplianceSecret,
			[]string{"name n1 is taken", "-> choose another name (lab-2 is free)"}},
		{"another cluster", n2, "n2", "other", n1.Addr, lab.ApplianceSecret,
			[]string{"another cluster", "-> check the name of the cluster"}},
		{"full disk", full, "n3", "lab", n1.Addr, lab.ApplianceSecret, []string{"MiB free of", "-> the disk is full"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			wizardStops(t, c.on, c.node, c.cluster, c.peer, c.secret, shared, c.says...)
		})
	}
}

// wizardStops has a machine's wizard join a cluster and sees it stop in its
// preflight, where it says certain things.
func wizardStops(t *testing.T, on *lab.Appliance, node, cluster, peer, secret, shared string, says ...string) {
	t.Helper()
	x := wizard(t, on, "vt220", true)
	x.Type(t, down+"\r")
	skipAdministrator(t, x)
	x.WaitFor(t, step, "What do you have from the cluster?")
	x.Type(t, down+"\r\x15"+node+"\r"+on.Addr+"\r")
	x.WaitFor(t, step, "one is enough")
	x.Type(t, cluster+"\r"+peer+"\r"+secret+"\r")
	useShared(t, x, shared)
	useAPI(t, x, "no")
	x.WaitFor(t, 90*time.Second, append(says, "[fail]", "The set-up cannot go on")...)
	x.Type(t, "\r") // there is no way on
	x.WaitFor(t, step, "Checks", "[fail]")
	x.Type(t, "\x03")
	x.WaitFor(t, step, "Nothing has been changed")
	x.Type(t, "y")

	if code := x.WaitEnd(t, step); code != 4 {
		t.Errorf("the wizard that was left ended with %d", code)
	}

	if d, err := on.Status(t); err != nil || d.Setup != "new" {
		t.Errorf("set-up %s, %v", d.Setup, err)
	}
}
