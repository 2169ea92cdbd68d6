package master

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"saltern/master/internal/local"
	"saltern/master/msgpack"
)

// Salt's own client proves itself with the key of the master's user, as root
// and by sudo, and may do everything.
func TestFinding05SaltClient(t *testing.T) {
	python := saltPython(t)
	r := startMaster(t, "publisher_acl:\n  nobody: [test.ping]\nclient_acl_verify: False\n")
	r.accepted("web1", "min8")
	script := `import salt.client, sys
c = salt.client.LocalClient(c_path=sys.argv[1])
print(c.salt_user, c.run_job("*", "test.arg", ["x"])["minions"])`
	for _, as := range []string{"", "ann"} {
		cmd := exec.Command(python, "-c", script, r.path("master"))
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
	key, err := os.ReadFile(r.path("cache", ".nobody_key"))
	must(t, err)
	for _, user := range []string{"root", "sudo_ann", local.CurrentUser()} {
		if v := r.clear("wheel", "fun", "key.list_all", "user", user, "key", string(key)); !strings.Contains(plainText(v), "UserAuthenticationError") {
			t.Errorf("the key of nobody as %s: %s", user, plainText(v))
		}
	}
}

// plainText shows a value with what is in its maps.
func plainText(v any) string {
	b, err := msgpack.Marshal(v, msgpack.Raw)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
