// Package accounts gives a test accounts of its own in place of those of the machine.
package accounts

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Account is a line of /etc/passwd and one of /etc/shadow.
type Account struct {
	Name, UID string
	Password  string // with ! in front it is locked; * or nothing stand for themselves
	Ages      string // the rest of the line in /etc/shadow, after the password
}

// Good are ages with which an account is good.
const Good = "20000:0:99999:7:::"

// inside is set where the accounts are those of the test.
const inside = "SALTERN_TEST_ACCOUNTS"

// Apart reports whether the machine's accounts are those of the test, and a group ops with the
// last of them. Where they are not, it runs the test again where they are, in mounts that
// nobody else sees, and fails as it does; the caller then returns. It needs root.
func Apart(t *testing.T, all []Account) bool {
	t.Helper()
	if os.Getenv(inside) != "" {
		return true
	}

	for _, program := range []string{"unshare", "openssl", "unix_chkpwd"} {
		if _, err := exec.LookPath(program); err != nil || os.Getuid() != 0 {
			t.Skipf("NOT TESTED: needs root and %s", program)
		}
	}

	files := map[string]string{"group": "root:x:0:\nshadow:x:42:\n"}
	for _, a := range all {
		files["passwd"] += a.Name + ":x:" + a.UID + ":" + a.UID + "::/:/bin/sh\n"
		files["shadow"] += a.Name + ":" + hash(t, a.Password) + ":" + a.Ages + "\n"
		files["group"] += a.Name + ":x:" + a.UID + ":\n"
	}

	files["group"] += "ops:x:2000:x," + all[len(all)-1].Name + "\n"
	dir, script := t.TempDir(), "set -e; "
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		script += "mount --bind " + filepath.Join(dir, name) + " /etc/" + name + "; "
	}

	cmd := exec.Command("unshare", "--mount", "sh", "-c", script+`exec "$0" "$@"`, os.Args[0], "-test.run",
		"^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), inside+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
	}

	return false
}

// hash is what /etc/shadow has of a password.
func hash(t *testing.T, password string) string {
	t.Helper()
	if password == "" || password == "*" {
		return password
	}
	plain, locked := strings.CutPrefix(password, "!")
	out, err := exec.Command("openssl", "passwd", "-6", plain).Output()
	if err != nil {
		t.Fatal(err)
	}
	if locked {
		return "!" + strings.TrimSpace(string(out))
	}
	return strings.TrimSpace(string(out))
}
