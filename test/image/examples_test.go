package image

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"saltern/supervisor/setup"
	"saltern/supervisor/userdata"
)

// TestExamples: the answers that the documents show are read as such.
func TestExamples(t *testing.T) {
	for name, mode := range map[string]setup.Mode{"form": setup.Form, "join": setup.Join} {
		text, err := os.ReadFile("../../examples/cloud-init/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		a, err := userdata.Parse(text)
		if err != nil || a.Mode != mode || a.Network.Method != "static" || len(a.Admin.SSHKeys) != 1 {
			t.Errorf("%s: %+v %v", name, a, err)
		}
	}
}

// TestPackerTemplates: Packer takes the templates.
func TestPackerTemplates(t *testing.T) {
	if _, err := exec.LookPath("packer"); err != nil {
		t.Skip("NOT TESTED: packer is not installed")
	}

	dir := t.TempDir()
	key, disk := filepath.Join(dir, "key"), filepath.Join(dir, "disk")
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key).CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen: %v: %s", err, out)
	}

	if err := os.WriteFile(disk, []byte("a disk"), 0o600); err != nil {
		t.Fatal(err)
	}

	for name, vars := range map[string][]string{
		"qemu.pkr.hcl": {"-var", "disk=" + disk, "-var", "ssh_key=" + key},
		"aws.pkr.hcl":  {"-var", "disk=" + disk},
	} {
		cmd := exec.Command("packer", append(append([]string{"validate"}, vars...), "../../packer/"+name)...)
		cmd.Env = append(os.Environ(), "CHECKPOINT_DISABLE=1", "PACKER_CONFIG_DIR="+dir, "PACKER_CACHE_DIR="+dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}
