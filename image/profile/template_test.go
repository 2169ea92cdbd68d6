package profile

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// shells returns the shells that run the initial RAM disk's script.
func shells() [][]string {
	list := [][]string{{"sh"}}
	if _, err := exec.LookPath("busybox"); err == nil {
		list = append(list, []string{"busybox", "sh"})
	}
	return list
}

// renewCopy runs the part of the initial RAM disk's script that notices a copy.
func renewCopy(t *testing.T, shell []string, data, uuid string) (told string) {
	t.Helper()
	return runFunction(t, shell, "renew_copy", data, uuid)
}

// runFunction runs a function of the initial RAM disk's script.
func runFunction(t *testing.T, shell []string, name string, arguments ...string) (told string) {
	t.Helper()
	script, err := os.ReadFile("overlay/etc/initramfs-tools/scripts/init-bottom/saltern")
	if err != nil {
		t.Fatal(err)
	}

	function := regexp.MustCompile(`(?ms)^` + name + `\(\) \{.*?^\}`).Find(script)
	if function == nil {
		t.Fatal("the script has no function " + name)
	}

	text := "set -u\nlog_warning_msg() { echo \"$1\"; }\n" + string(function) + "\n" + name + " \"$@\"\n"
	args := slices.Concat(shell[1:], []string{"-c", text, "sh"}, arguments)
	out, err := exec.Command(shell[0], args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	return string(out)
}

// TestCopyOfATemplateIsNew: a machine that was started and not set up, and is copied, has a
// machine-id and SSH keys of its own on the copy; one that is set up keeps them on whatever
// hardware it is, as does one whose firmware has no UUID (F8).
func TestCopyOfATemplateIsNew(t *testing.T) {
	const first, second, none = "564d1234-0000-4000-8000-000000000001", "564d1234-0000-4000-8000-000000000002", "00000000-0000-0000-0000-000000000000"
	own := []string{"state/etc/up/machine-id", "state/etc/up/ssh/ssh_host_ed25519_key",
		"state/etc/up/ssh/ssh_host_ed25519_key.pub", "state/var/up/lib/systemd/random-seed"}
	others := []string{"state/etc/up/hostname", "saltern/setup/state.json"}

	for _, row := range []struct {
		name   string
		setUp  string   // what a node that is set up has
		starts []string // UUIDs of the machines that start with this disk
		gone   bool
	}{
		{"the same machine", "", []string{first, first}, false},
		{"a copy", "", []string{first, second}, true},
		{"a copy of a set-up that has stopped", "saltern/node/identity.pem", []string{first, second}, false},
		{"a node that is restored", "state/etc/up/saltern/appliance.yaml", []string{first, second}, false},
		{"without a UUID", "", []string{none, none}, false},
		{"a UUID that comes later", "", []string{"", second}, false},
		{"a UUID that goes away", "", []string{first, none}, false},
		{"a copy of a copy", "", []string{first, second, first}, true},
	} {
		for _, shell := range shells() {
			t.Run(strings.Join(shell, " ")+"/"+row.name, func(t *testing.T) {
				data := filepath.Join(t.TempDir(), "a disk")
				put := func(names ...string) {
					for _, name := range names {
						path := filepath.Join(data, name)
						if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
							t.Fatal(err)
						}
						if err := os.WriteFile(path, []byte("x\n"), 0o600); err != nil {
							t.Fatal(err)
						}
					}
				}

				put(others...)
				if row.setUp != "" {
					put(row.setUp)
				}

				before, last := row.starts[:len(row.starts)-1], row.starts[len(row.starts)-1]
				for _, uuid := range before {
					renewCopy(t, shell, data, uuid)
					put(own...) // by the start that follows
				}

				told := renewCopy(t, shell, data, last)
				for _, name := range own {
					if _, err := os.Stat(filepath.Join(data, name)); (err != nil) != row.gone {
						t.Errorf("%s: %v", name, err)
					}
				}

				for _, name := range others {
					if _, err := os.Stat(filepath.Join(data, name)); err != nil {
						t.Error(err)
					}
				}

				if (told != "") != row.gone {
					t.Errorf("told %q", told)
				}
			})
		}
	}
}
