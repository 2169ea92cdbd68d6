package setup

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPasswordArrivesByteForByte: the password that admin has is the one that was
// given, as the machine's own programs see it (F2). It needs root, and an /etc of
// its own that nobody else sees.
func TestPasswordArrivesByteForByte(t *testing.T) {
	const inside = "SALTERN_TEST_ETC"
	if os.Getenv(inside) == "" {
		inOwnEtc(t, inside)
		return
	}

	for _, password := range []string{
		"#Hash-first-42", "&Amp-first-42", "!Bang-first", "2024-12-31", "1234567890123456789012", "'single'", "key: value", "Summer #2024!", "a:b:c:d:e",
		"umläut-Straße", "  blanks at both ends  ", "50%25off %s", `back\slash\n`, "$HOME $(id) `id`", "emoji-😀-x", "a\ttab-here", strings.Repeat("x", 200) + "-end",
	} {
		var a Answers
		if err := a.Set("admin.password", password); err != nil {
			t.Fatal(err)
		}

		if err := Accounts(t.Context(), a.Admin); err != nil {
			t.Errorf("%q: %v", password, err)
			continue
		}

		if right, err := CheckPassword(t.Context(), AdminAccount, password); err != nil || !right {
			t.Errorf("%q is not the password of admin: %v", password, err)
		}
	}

	if right, _ := CheckPassword(t.Context(), AdminAccount, "another one"); right {
		t.Error("every password is right")
	}
}

// inOwnEtc runs the test again with an account admin, in mounts of its own.
func inOwnEtc(t *testing.T, inside string) {
	t.Helper()
	for _, program := range []string{"unshare", "chpasswd", "unix_chkpwd"} {
		if _, err := exec.LookPath(program); err != nil || os.Getuid() != 0 {
			t.Skipf("NOT TESTED: needs root and %s", program)
		}
	}

	etc := t.TempDir()
	for _, name := range []string{"pam.d", "security", "login.defs", "nsswitch.conf", "ld.so.cache",
		"alternatives", "default"} {
		if out, err := exec.Command("cp", "-a", "/etc/"+name, etc).CombinedOutput(); err != nil {
			t.Logf("without %s: %s", name, out)
		}
	}

	for name, text := range map[string]string{
		"passwd": "root:x:0:0::/root:/bin/sh\nadmin:x:1000:1000::/home/admin:/bin/sh\n",
		"shadow": "root:*:20000::::::\nadmin:!:20000:0:99999:7:::\n",
		"group":  "root:x:0:\nshadow:x:42:\nadmin:x:1000:\n",
	} {
		if err := os.WriteFile(filepath.Join(etc, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	cmd := exec.Command("unshare", "--mount", "sh", "-c", `mount --bind "$1" /etc && shift && exec "$@"`,
		"sh", etc, os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), inside+"=1")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
	}
}
