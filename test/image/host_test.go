//go:build nspawn

package image

import (
	"os"
	"strings"
	"testing"
	"time"
)

// TestHost: on a host of one's own, under systemd with the unit that make install
// puts there, a node forms a cluster on a volume, becomes new, and forms another.
func TestHost(t *testing.T) {
	t.Parallel()
	unit, err := os.ReadFile("../../packaging/applianced.service")
	if err != nil {
		t.Fatal(err)
	}

	m := boot(t, newNetwork(t), 1, map[string]string{
		"usr/lib/os-release":                        "ID=debian\nVERSION_ID=\"12\"\n", // not the image
		"usr/lib/systemd/system/applianced.service": strings.ReplaceAll(string(unit), "/usr/local/bin/", "/usr/bin/"),
		"root/answers.yaml":                         "mode: form\ncluster_id: prod\nnode: node1\naddress: ADDRESS\n",
	})

	m.wait(t, 120*time.Second, "active", "systemctl", "is-active", "multi-user.target")
	m.run(t, "sed", "-i", "s/ADDRESS/"+m.Address+"/", "/root/answers.yaml")

	// A host has no links there as the image has: the unit lets certificates be written.
	m.run(t, "sh", "-c", "rm -f /usr/lib/ssl/glusterfs.*")
	key := ""
	for range 2 {
		m.run(t, "applianced", "setup", "start", "/root/answers.yaml")
		m.wait(t, 180*time.Second, "HEALTHY", "applianced", "status")
		if now := m.run(t, "applianced", "join-string"); now == key {
			t.Error("the cluster's key is that of before the reset")
		} else {
			key = now
		}

		if out := m.run(t, "findmnt", "-no", "FSTYPE", "/srv/cluster"); !strings.Contains(out, "glusterfs") {
			t.Errorf("no shared volume: %s", out)
		}

		if out := m.run(t, "applianced", "reset", "--yes"); !strings.Contains(out, "this machine is new") {
			t.Errorf("reset: %s", out)
		}

		if out, err := m.try("applianced", "status"); exitCode(err) != 4 {
			t.Errorf("after the reset: %v %s", err, out)
		}

		left := m.run(t, "sh", "-c", `find /var/lib/saltern /etc/saltern -mindepth 1 ! -name .lock-appliance.yaml 2>/dev/null; findmnt -n /srv/cluster; pgrep -a gluster; pgrep -a salt-master; pgrep -a saltern-lb
ls /etc/systemd/system/*cluster.mount /etc/systemd/system/glusterd.service.d/saltern.conf /var/lib/glusterd/glusterd.info /var/lib/glusterd/vols 2>/dev/null; grep applianced /etc/hosts; systemctl is-active glusterd; true`)
		if strings.TrimSpace(left) != "inactive" {
			t.Errorf("left:\n%s", left)
		}
	}

	if out := m.run(t, "journalctl", "-u", "applianced", "--no-pager"); strings.Contains(out,
		"ermission denied") || strings.Contains(out, "not permitted") || strings.Contains(out, "ead-only file system") {
		t.Errorf("the unit takes away what the node needs:\n%s", out)
	}
}
