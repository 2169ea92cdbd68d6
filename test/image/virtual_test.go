//go:build nspawn

package image

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"saltern/test/lab"
)

// TestVirtualAddress boots one machine that forms a cluster with a virtual
// address: systemd runs keepalived with the rights of its unit, minions are
// heard there, and the address is given up when the supervisor hangs or ends.
func TestVirtualAddress(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	virtual := n.base + "200"
	m := boot(t, n, 31, map[string]string{"etc/saltern/answers.yaml": fmt.Sprintf(
		"mode: form\ncluster_id: vip\nnode: node31\naddress: %s31\nsecret: a-secret-for-one-node-0123456789\nstorage: {kind: local}\nvirtual_address: %s\n", n.base, virtual)})
	m.wait(t, 180*time.Second, virtual+" (ports 4505 and 4506), the virtual address, now on node31",
		"applianced", "status")

	if state := strings.TrimSpace(m.run(t, "systemctl", "is-active", "saltern-vip.service")); state != "active" {
		t.Errorf("the unit is %s", state)
	}

	if out := m.run(t, "journalctl", "-u", "saltern-vip", "--no-pager"); strings.Contains(out, "ermitted") ||
		strings.Contains(out, "denied") {
		t.Errorf("keepalived lacks rights:\n%s", out)
	}

	if out := m.run(t, "nft", "list", "ruleset"); !strings.Contains(out, "112") && !strings.Contains(out, "vrrp") {
		t.Errorf("the firewall knows nothing of VRRP:\n%s", out)
	}

	other, _ := n.namespace(t, 93)
	heard := func() {
		t.Helper()
		lab.Eventually(t, 90*time.Second, "minions are heard on "+virtual, func() error {
			return exec.Command("ip", "netns", "exec", other, "timeout", "5", "bash", "-c",
				"exec 3<>/dev/tcp/"+virtual+"/4505").Run()
		})
	}

	heard()
	main := strings.TrimSpace(m.run(t, "systemctl", "show", "-P", "MainPID", "applianced"))
	m.run(t, "kill", "-STOP", main)
	lab.Eventually(t, 90*time.Second, "the address is given up", func() error { // systemd replaces the supervisor later
		if out := m.run(t, "ip", "-4", "addr", "show"); strings.Contains(out, virtual) {
			return errors.New("it is still there")
		}
		return nil
	})

	m.wait(t, 180*time.Second, "now on node31", "applianced", "status")
	heard()
	m.run(t, "kill", "-KILL", strings.TrimSpace(m.run(t, "systemctl", "show", "-P", "MainPID", "applianced")))
	m.wait(t, 180*time.Second, "now on node31", "applianced", "status") // taken over, or given up and taken again
	m.run(t, "systemctl", "stop", "applianced")

	if out := m.run(t, "ip", "-4", "addr", "show"); strings.Contains(out, virtual) {
		t.Errorf("the address is still there:\n%s", out)
	}

	if out, _ := m.try("systemctl", "is-active", "saltern-vip.service"); strings.TrimSpace(out) != "inactive" {
		t.Errorf("the unit is %s", out)
	}

	m.run(t, "systemctl", "start", "applianced")
	m.wait(t, 180*time.Second, "now on node31", "applianced", "status")
	heard()
}
