package functions

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"saltern/master/internal/local"
	"saltern/master/internal/mastertest"
	"saltern/test/check"
)

// Salt's own client proves itself with the key of the master's user, as root
// and by sudo, and may do everything.
func TestFinding05SaltClient(t *testing.T) {
	python := mastertest.SaltPython(t)
	r := mastertest.Start(t, "publisher_acl:\n  nobody: [test.ping]\nclient_acl_verify: False\n")
	r.AcceptedMinion("web1", "min8")
	script := `import salt.client, sys
c = salt.client.LocalClient(c_path=sys.argv[1])
print(c.salt_user, c.run_job("*", "test.arg", ["x"])["minions"])`
	for _, as := range []string{"", "ann"} {
		cmd := exec.Command(python, "-c", script, r.Path("master"))
		if as != "" {
			cmd.Env = append(os.Environ(), "SUDO_USER="+as)
		}

		out, err := cmd.CombinedOutput()
		want := local.CurrentUser() + " ['web1']"
		if as != "" && os.Getuid() == 0 {
			want = "sudo_" + as + " ['web1']"
		}

		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("SUDO_USER=%s: %v: %s", as, err, out)
		}
	}

	// A user's key is no key for other names.
	key, err := os.ReadFile(r.Path("cache", ".nobody_key"))
	check.Must(t, err)
	for _, user := range []string{"root", "sudo_ann", local.CurrentUser()} {
		if v := r.AskInClear("wheel", "fun", "key.list_all", "user", user, "key", string(key)); !strings.Contains(mastertest.PlainText(v), "UserAuthenticationError") {
			t.Errorf("the key of nobody as %s: %s", user, mastertest.PlainText(v))
		}
	}
}
