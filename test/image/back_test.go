//go:build nspawn

package image

import (
	"testing"
	"time"
)

// TestBack: in the image, with the rights that the supervisor has there, a set-up
// that makes a shared volume is taken back and made again.
func TestBack(t *testing.T) {
	t.Parallel()
	m := boot(t, newNetwork(t), 1, nil)
	m.wait(t, 120*time.Second, "active", "systemctl", "is-active", "multi-user.target")
	m.put(t, "/tmp/answers.yaml", "mode: form\ncluster_id: prod\nnode: node1\naddress: "+m.Address+"\n")
	m.run(t, "systemd-run", "--quiet", "--unit=start", "applianced", "setup", "start", "/tmp/answers.yaml")
	m.wait(t, 60*time.Second, "appliance.yaml", "ls", "/etc/saltern")
	m.wait(t, 60*time.Second, "glusterd", "pgrep", "-a", "glusterd")
	m.run(t, "applianced", "setup", "back")

	if out, err := m.try("applianced", "status"); exitCode(err) != 4 {
		t.Errorf("after going back: %v %s", err, out)
	}

	if left := m.run(t, "sh", "-c",
		"find /var/lib/saltern -mindepth 1; ls /etc/saltern; pgrep -a gluster; true"); left != "" {
		t.Errorf("left:\n%s", left)
	}

	m.run(t, "applianced", "setup", "start", "/tmp/answers.yaml")
	m.wait(t, 180*time.Second, "HEALTHY", "applianced", "status")
}
