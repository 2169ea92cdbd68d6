package setup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLockedOut(t *testing.T) {
	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJuTbTKBmIvNxBWyBfNZ2ycUmO7TN0CPGUdR4qWmrcHW x\n"
	for _, c := range []struct {
		name, shadow, home, system string
		want                       bool
	}{
		{"new image", "root:*:1::::::\nadmin:!:1::::::\n", "", "", true},
		{"no such line", "root:*:1::::::\n", "", "", true},
		{"star", "admin:*:1::::::\n", "", "", true},
		{"empty password", "admin::1::::::\n", "", "", true},
		{"password", "admin:$y$j9T$abc$def:1::::::\n", "", "", false},
		{"locked password", "admin:!$y$j9T$abc$def:1::::::\n", "", "", true},
		{"key", "admin:!:1::::::\n", key, "", false},
		{"comment only", "admin:!:1::::::\n", "# none yet\n\n", "", true},
		{"broken key", "admin:!:1::::::\n", "ssh-rsa AAAAB3nonsense x\n", "", true},
		{"key with options", "admin:!:1::::::\n", "from=\"10.0.0.0/8\" " + key, "", false},
		{"key of the machine", "admin:!:1::::::\n", "", key, false},
	} {
		etc, home := t.TempDir(), t.TempDir()
		for path, text := range map[string]string{
			filepath.Join(etc, "shadow"): c.shadow, filepath.Join(home, ".ssh", "authorized_keys"): c.home, filepath.Join(etc, "ssh", "authorized_keys.d", "admin"): c.system,
		} {
			if text == "" {
				continue
			}

			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}

			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}

		if got := lockedOut(etc, "admin", home); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}

	if lockedOut(t.TempDir(), "admin", t.TempDir()) {
		t.Error("an unreadable shadow file says nothing")
	}
}

func TestReadKeys(t *testing.T) {
	const one = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJuTbTKBmIvNxBWyBfNZ2ycUmO7TN0CPGUdR4qWmrcHW x"
	got, err := ReadKeys(strings.NewReader("# mine\n\n" + one + "\r\n" + one + " y\n"))
	if err != nil || len(got) != 2 || got[0] != one {
		t.Errorf("%q %v", got, err)
	}
	for _, bad := range []string{"", "# nothing\n", "<html>404</html>\n", one + "\nssh-dss AAAA\n",
		strings.Repeat(one+"\n", 33), strings.Repeat("x", maxKeys+1)} {
		if got, err := ReadKeys(strings.NewReader(bad)); err == nil {
			t.Errorf("%.40q: %d keys", bad, len(got))
		}
	}
}
