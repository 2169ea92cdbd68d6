//go:build e2e && appliance

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"saltern/master/crypt"
	"saltern/supervisor/nodes"
	"saltern/supervisor/options"
	"saltern/test/await"
	"saltern/test/lab"
)

// TestImportKilled: an import onto three nodes is killed at each of its steps. All nodes
// have the old key or the new one then, and the same command finishes it: every master
// runs with the new one.
func TestImportKilled(t *testing.T) {
	net := lab.NewNetwork(t, "imk", "10.88")
	list := clusterOf(t, net)
	n1 := list[0]
	pki := filepath.Join(n1.Shared, "pki")
	there := func(pattern string) func() bool {
		return func() bool { found, _ := filepath.Glob(pattern); return len(found) > 0 }
	}
	first := pids(t, list)
	named := ""
	for _, step := range []struct {
		name    string
		reached func() bool
	}{
		{"nothing is written", there(n1.Shared + "/.import.lock")},
		{"files are staged", there(n1.Shared + "/.import-*")},
		{"the key lies beside", there(pki + "/cluster-next.pem")},
		{"the table names it", func() bool { return sharedKey(n1) != named }},
		{"the first master has it", func() bool { return pids(t, list)["n2"] != first["n2"] }},
	} {
		named, first = sharedKey(n1), pids(t, list)
		tree := withKey(t)
		p := net.Start(t, n1.Addr, "import", filepath.Join(lab.Dir(t), "import"), lab.Bin(t, "applianced"),
			"--config", n1.Config(), "--socket", n1.Dir+"/run/applianced.sock", "import", tree)

		if !await.Within(30*time.Second, step.reached) {
			t.Logf("NOTE: %s: that was over before it was seen", step.name)
		}

		p.Kill()
		for _, n := range list {
			if got := keyOf(t, n); got != named && got != sharedKey(n1) {
				t.Errorf("%s: %s has the key %s, neither old nor new", step.name, n.Name, got)
			}
		}

		lab.Eventually(t, 2*time.Minute, step.name+": the same import", func() error {
			if r := n1.Applianced(t, "import", tree); r.Code != 0 && r.Code != 2 {
				return fmt.Errorf("%+v", r)
			}
			return nil
		})

		for _, n := range list {
			if got := keyOf(t, n); got == named || got != sharedKey(n1) {
				t.Errorf("%s: %s has the key %s, want %s, before %s", step.name, n.Name, got, sharedKey(n1), named)
			}
		}

		if p, _ := applied(t, list[2], "--dry-run"); len(p.Result.Names(options.Same)) != 3 {
			t.Errorf("%s: not all masters run with it: %+v", step.name, p.Result)
		}

		was, err1 := os.ReadFile(filepath.Join(tree, "etc/salt/pki/master/master.pem"))
		now, err2 := os.ReadFile(filepath.Join(pki, "cluster.pem"))
		if err := errors.Join(err1, err2); err != nil || string(was) != string(now) {
			t.Errorf("%s: the cluster's key is not the imported one: %v", step.name, err)
		}
	}
}

// sharedKey is the hash of the key that the table on the shared storage names.
func sharedKey(n *lab.Appliance) string {
	found, _ := filepath.Glob(filepath.Join(n.Shared, "*", nodes.File))
	for _, path := range found {
		if b, err := os.ReadFile(path); err == nil {
			if t, err := nodes.Parse(b); err == nil {
				return t.KeyHash
			}
		}
	}
	return ""
}

// withKey is the smallest tree that can be imported, with a key of its own.
func withKey(t *testing.T) string {
	t.Helper()
	dir := lab.Dir(t)
	key, err := crypt.GeneratePrivate(2048)
	if err != nil {
		t.Fatal(err)
	}

	private, err := crypt.PrivatePEM(key, "")
	if err != nil {
		t.Fatal(err)
	}

	lab.WriteTree(t, dir,
		map[string]string{
			"etc/salt/master":                "timeout: 7\n",
			"etc/salt/pki/master/master.pem": string(private),
			"srv/salt/file":                  "the same\n",
		})

	return dir
}
