//go:build nspawn

package image

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"saltern/test/lab"
)

// TestPAM: on the image, whose master is not root, admin logs in at salt-api with the
// password of his account, and nobody with another one, nor when the account is locked or has
// expired; nobody but the master's account asks the helper.
func TestPAM(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	m := boot(t, n, 51, nil)
	ns, _ := n.namespace(t, 94)
	m.wait(t, 120*time.Second, "active", "systemctl", "is-active", "multi-user.target")
	m.put(t, "/tmp/answers.yaml", "mode: form\ncluster_id: prod\nnode: node1\naddress: "+m.Address+
		"\nstorage: {kind: local}\napi: true\nadmin: {password: 'right horse battery'}\n")
	m.run(t, "systemd-run", "--quiet", "--unit=start", "applianced", "setup", "start", "/tmp/answers.yaml")
	m.wait(t, 180*time.Second, "HEALTHY", "applianced", "status")
	m.put(t, "/tmp/pam.conf",
		"external_auth: {pam: {admin: [test.ping], sudo%: ['@runner'], root: ['.*']}}\nnetapi_enable_clients: [local, runner]\n")
	m.run(t, "sh", "-c",
		`cp /tmp/pam.conf "$(dirname "$(find /srv/cluster /var/lib/saltern -name master.d -path '*etc*' | head -1)")/master.d/pam.conf" && applianced config apply --yes`)
	logIn := func(user, password string) string {
		out, _ := exec.Command("ip", "netns", "exec", ns, "curl", "-sk", "--max-time", "30", "-H", "Accept: application/json", "-d", "eauth=pam", "-d", "username="+user,
			"--data-urlencode", "password="+password, "https://"+m.Address+":8000/login").CombinedOutput()
		return string(out)
	}

	lab.Eventually(t, 120*time.Second, "a log-in of admin", func() error {
		if out := logIn("admin", "right horse battery"); !strings.Contains(out, `"token"`) ||
			!strings.Contains(out, `"@runner"`) {
			status, _ := m.try("applianced", "status")
			return fmt.Errorf("%s\n%s", out, status)
		}
		return nil
	})

	refused := func(why, user, password string) {
		t.Helper()
		if out := logIn(user, password); !strings.Contains(out, "401") || strings.Contains(out, `"token"`) {
			t.Errorf("%s: %s", why, out)
		}
	}

	refused("a wrong password", "admin", "wrong horse battery")
	refused("root", "root", "right horse battery")
	refused("an account without a password", "saltern-master", "x")
	m.run(t, "usermod", "--expiredate", "1", "admin")
	refused("expired", "admin", "right horse battery")
	m.run(t, "usermod", "--expiredate", "", "admin")
	m.run(t, "passwd", "--lock", "admin")
	refused("locked", "admin", "right horse battery")
	m.run(t, "passwd", "--unlock", "admin")

	if out := logIn("admin", "right horse battery"); !strings.Contains(out, `"token"`) {
		t.Errorf("unlocked again: %s", out)
	}

	connect := `import socket; socket.socket(socket.AF_UNIX).connect("/run/saltern-pam.sock")`
	if out, err := m.try("setpriv", "--reuid=saltern-lb", "--clear-groups",
		"/opt/saltstack/salt/bin/python3", "-c", connect); err == nil || !strings.Contains(out, "PermissionError") {
		t.Errorf("another account connects: %v %s", err, out)
	}

	if out := m.run(t, "journalctl", "-b", "--no-pager", "-u", "saltern-pam@*"); strings.Contains(out,
		"horse") || !strings.Contains(out, "unix_chkpwd") {
		t.Errorf("the helper says:\n%s", out)
	}

	if out := m.run(t, "systemctl", "list-units", "--all", "--no-legend", "--plain", "--state=failed",
		"saltern-pam*"); out != "" {
		t.Errorf("failed:\n%s", out)
	}

	if denied, _ := m.try("sh", "-c", "journalctl -b --no-pager | grep -i 'apparmor.*DENIED' | head -5"); denied != "" {
		t.Errorf("AppArmor denied:\n%s", denied)
	}
}
