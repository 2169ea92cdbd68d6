//go:build nspawn

package image

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/test/lab"
)

// servesGitAndSecrets: the image's own git, gpg and agent, under their profile and
// accounts, bring a state from a repository and a value that is encrypted in a
// pillar to the minion web1.
func (m *machine) servesGitAndSecrets(t *testing.T, n *network, storage string) {
	server, address := n.namespace(t, 60)
	dir := lab.Dir(t)
	lab.WriteTree(t, dir, map[string]string{"states.git/fromgit.sls": "{% set value = pillar['db_password'] %}\n" +
		"secret:\n  test.succeed_without_changes:\n    - name: opened {{ value }} in a state from git\n"})
	repository := filepath.Join(dir, "states.git")
	for _, args := range [][]string{
		{"init", "-q", "-b", "master"}, {"add", "."},
		{"-c", "user.name=ops", "-c", "user.email=ops@example.com", "commit", "-q", "-m", "states"},
	} {
		if out, err := exec.Command("git", append([]string{"-C", repository}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v %s", args, err, out)
		}
	}

	lab.Start(t, "git daemon", filepath.Join(dir, "out"), "ip", "netns", "exec", server, "git", "daemon",
		"--export-all", "--reuseaddr", "--base-path="+dir)

	m.run(t, "sh", "-c", `set -e; umask 077
gpg --batch --quiet --passphrase '' --quick-gen-key salt@example.com future-default default never
gpg --armor --export-secret-keys salt@example.com >/root/key.asc
applianced secrets import /root/key.asc; rm /root/key.asc`)

	secret := m.run(t, "sh", "-c", "printf 'correct horse' | applianced secrets encrypt --name db_password")
	m.put(t, storage+"/srv/pillar/db.sls", "#!yaml|gpg\n"+secret)
	m.put(t, storage+"/srv/pillar/top.sls", "base:\n  '*': [p, db]\n")
	m.put(t, storage+"/etc/master.d/git.conf",
		fmt.Sprintf("fileserver_backend: [roots, gitfs]\ngitfs_remotes:\n  - git://%s/states.git\n", address))
	t.Log(strings.TrimSpace(m.run(t, "applianced", "config", "apply", "--yes")))
	m.wait(t, 120*time.Second, "HEALTHY", "applianced", "status")

	// The pillar is the last that comes: the keyring is copied within 30 s.
	m.wait(t, 180*time.Second, "opened correct horse in a state from git", "salt", "web1", "state.apply", "fromgit")
	m.run(t, "sh", "-c",
		`test "$(stat -c '%U %a' /var/lib/saltern/mirror/etc/gpgkeys 2>/dev/null || stat -c '%U %a' `+
			storage+`/etc/gpgkeys)" = 'saltern-master 700'`)

	if denied, _ := m.try("sh", "-c", "journalctl -b --no-pager | grep -i 'apparmor.*DENIED' | head -5"); denied != "" {
		t.Errorf("AppArmor denied:\n%s", denied)
	}
}
