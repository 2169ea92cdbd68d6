//go:build nspawn

package image

import (
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/test/lab"
	"saltern/test/wheel"
)

//go:embed testdata/vault.py
var vault string

// givesPackages adds a Python package on one node of a cluster on a volume: its ext_pillar
// then gives its part at all masters.
func givesPackages(t *testing.T, all []*machine, id string) {
	t.Helper()
	w := wheel.Pillar("saltext.try", "from a package").Write(t, lab.Dir(t))
	all[1].copy(t, w, "/root/"+filepath.Base(w))
	t.Log(all[1].run(t, "applianced", "python", "add", "--yes", "/root/"+filepath.Base(w)))
	takes(t, all[2], "")
	says(t, all, id, "from a package")
}

// givesVault has saltext.vault from the index that pip is configured for read a secret
// (what answers imitates Vault).
func givesVault(t *testing.T, n *network, all []*machine, id string) {
	t.Helper()
	if os.Getenv("SALTERN_TEST_INDEX") == "" {
		t.Skip("NOT TESTED: set SALTERN_TEST_INDEX=1 to use the index that pip is configured for")
	}

	wheels := lab.Dir(t)
	if out, err := exec.Command(filepath.Join(lab.Venv(t, lab.Newest), "python"), "-m", "pip", "download",
		"-q", "--no-deps", "--only-binary", ":all:", "-d", wheels, "saltext.vault").CombinedOutput(); err != nil {
		t.Fatalf("pip download: %v %s", err, out)
	}

	list, err := os.ReadDir(wheels)
	if err != nil {
		t.Fatal(err)
	}

	for _, f := range list {
		all[0].copy(t, filepath.Join(wheels, f.Name()), "/root/wheels/"+f.Name())
	}

	t.Log(all[0].run(t, "applianced", "python", "add", "--yes", "--from", "/root/wheels", "saltext.vault"))
	server, address := n.namespace(t, 61)
	lab.Start(t, "vault", filepath.Join(lab.Dir(t), "out"), "ip", "netns", "exec", server, "python3", "-c",
		vault, address)
	takes(t, all[0],
		"  - vault: secret/salt\nvault:\n  server: {url: 'http://"+address+
			":8200'}\n  auth: {method: token, token: a-token}\n  issue: {type: token, wrap: false}\n")
	says(t, all, id, "correct horse")
	says(t, all, id, "from a package")
}

// takes has all masters take an ext_pillar of a package, and more lines of options.
func takes(t *testing.T, m *machine, more string) {
	t.Helper()
	m.put(t, "/srv/cluster/etc/master.d/packages.conf", "ext_pillar:\n  - try_pillar: x\n"+more)
	m.run(t, "applianced", "config", "apply", "--yes")
}

func says(t *testing.T, all []*machine, id, words string) {
	t.Helper()
	for _, m := range all {
		m.wait(t, 120*time.Second, words, "salt-run", "pillar.show_pillar", id)
	}
}

// copy puts a file of this machine into that one.
func (m *machine) copy(t testing.TB, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	m.run(t, "mkdir", "-p", filepath.Dir(to))
	m.put(t, to, string(b))
	if size := strings.TrimSpace(m.run(t, "stat", "-c", "%s", to)); size == "0" {
		t.Fatalf("%s is empty", to)
	}
}
