package image

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"saltern/supervisor/setup"
	"saltern/supervisor/userdata"
)

// TestVagrantfile: Vagrant takes the Vagrantfile, and the answers on its disk are some.
func TestVagrantfile(t *testing.T) {
	text, err := os.ReadFile("../../examples/vagrant/Vagrantfile")
	if err != nil {
		t.Fatal(err)
	}

	for _, program := range []string{"vagrant", "ruby", "xorriso"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("NOT TESTED: %s is not installed (apt-get install vagrant vagrant-libvirt xorriso)", program)
		}
	}

	dir := t.TempDir()
	key := filepath.Join(dir, "key")
	for path, text := range map[string][]byte{
		"Vagrantfile": text,
		"key":         nil,
		"key.pub":     []byte("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExampleExampleExampleExampleExampleExampleE admin\n"),
	} {
		if err := os.WriteFile(filepath.Join(dir, path), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	run := func(program string, args ...string) {
		t.Helper()
		cmd := exec.Command(program, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "VAGRANT_HOME="+filepath.Join(dir, "home"),
			"VAGRANT_CHECKPOINT_DISABLE=1", "VAGRANT_DEFAULT_PROVIDER=libvirt", "SALTERN_SSH_KEY="+key)

		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
		}
	}

	run("vagrant", "validate")

	// As `vagrant up` does, without the machine: the file is plain Ruby up to there.
	run("ruby", "-e", `module Vagrant; def self.configure(*); end; end; ARGV.replace(["up"]); load "./Vagrantfile"`)
	given, err := os.ReadFile(filepath.Join(dir, ".seed/files/user-data"))
	if err != nil {
		t.Fatal(err)
	}

	a, err := userdata.Parse(given)
	if err != nil || a.Mode != setup.Form || a.Storage.Kind != "local" || len(a.Admin.SSHKeys) != 1 {
		t.Fatalf("%s: %+v %v", given, a, err)
	}

	if v := setup.Validate(*a, setup.Anywhere(*a), setup.Base{}); len(v.Faults) > 0 {
		t.Errorf("%s: %v", given, setup.Faults(v.Faults))
	}

	if out, err := exec.Command("xorriso", "-indev", filepath.Join(dir, ".seed/seed.iso"), "-report_about",
		"NOTE", "-pvd_info").CombinedOutput(); err != nil || !strings.Contains(string(out), "CIDATA") {
		t.Errorf("xorriso: %v\n%s", err, out)
	}
}
