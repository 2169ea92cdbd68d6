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
)

// TestSecretsInPillars: a key goes in, a value is encrypted, a real minion has it
// in its pillar; with the key taken out nothing new is opened. Nothing is restarted.
func TestSecretsInPillars(t *testing.T) {
	if lab.Peer() {
		t.Skip("the stand-in has no applianced secrets")
	}

	if _, err := exec.LookPath("gpg"); err != nil {
		t.Skip("NOT TESTED: there is no gpg")
	}

	t.Parallel()
	n := lab.StartNode(t, lab.NodeConfig{})
	accepted(t, n, "web1", lab.Newest)
	admin := lab.Dir(t)
	t.Cleanup(func() { _ = exec.Command("gpgconf", "--homedir", admin, "--kill", "all").Run() })
	gpg := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("gpg",
			append([]string{"--homedir", admin, "--batch", "--quiet", "--no-permission-warning"}, args...)...).Output()
		if err != nil {
			t.Fatalf("gpg %v: %v", args, err)
		}
		return string(out)
	}

	gpg("--passphrase", "", "--quick-gen-key", "salt@example.com", "future-default", "default", "never")
	key := filepath.Join(admin, "key.asc")
	if err := os.WriteFile(key, []byte(gpg("--armor", "--export-secret-keys")), 0o600); err != nil {
		t.Fatal(err)
	}

	if r := n.Applianced(t, "secrets", "import", key); r.Code != 0 {
		t.Fatalf("import: %+v", r)
	}

	secret := func(name, value string) string {
		t.Helper()
		cmd := exec.Command(lab.Bin(t, "applianced"), "--config", filepath.Join(n.Dir, "appliance.yaml"),
			"secrets", "encrypt", "--name", name)
		cmd.Stdin = strings.NewReader(value)
		out, err := cmd.Output()
		if err != nil || strings.Contains(string(out), value) {
			t.Fatalf("encrypt: %v\n%s", err, out)
		}

		return string(out)
	}

	lab.WriteTree(t, n.Settings.PillarRoot(),
		map[string]string{
			"top.sls": "base: {'*': [db]}\n",
			"db.sls":  "#!yaml|gpg\n" + secret("db_password", "correct horse"),
		})

	file := filepath.Join(admin, "out") // minions of 3008 hide the pillar in what they print
	lab.WriteTree(t, n.Settings.FileRoot(),
		map[string]string{"db.sls": file + ":\n  file.managed:\n    - contents_pillar: db_password\n"})
	applied := func(want string, well bool) {
		t.Helper()
		lab.Eventually(t, 60*time.Second, "the state", func() error {
			m, err := n.JSON(t, "web1", "state.apply", "db")
			b, _ := os.ReadFile(file)
			_, states := m["web1"].(map[string]any) // otherwise a list of errors
			if err != nil || states != well || strings.TrimSpace(string(b)) != want {
				return fmt.Errorf("%.300s; %q; %v", fmt.Sprint(m["web1"]), b, err)
			}
			return nil
		})
	}

	applied("correct horse", true)

	// Each way ends the same on the node: gpg's own folder is the master's alone.
	if fi, err := os.Stat(n.Settings.GPGDir()); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", fi, err)
	}

	next := "#!yaml|gpg\n" + secret("db_password", "battery staple")
	if r := n.Applianced(t, "secrets", "remove", "--yes", "salt@example.com"); r.Code != 0 {
		t.Fatalf("remove: %+v", r)
	}

	lab.WriteTree(t, n.Settings.PillarRoot(), map[string]string{"db.sls": next})
	applied("correct horse", false)
	if r := n.Applianced(t, "secrets", "import", key); r.Code != 0 {
		t.Fatalf("import again: %+v", r)
	}

	applied("battery staple", true)
}
