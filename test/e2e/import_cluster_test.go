//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/supervisor/nodes"
	"saltern/test/lab"
)

// oldAt is a master of Salt's at an address that can move, with a real minion of each
// release, and with keys in all states.
func oldAt(t *testing.T, address string) (s *lab.Site, minions []*lab.Minion, ids []string) {
	t.Helper()
	s = lab.NewSites(t, 1)[0]
	s.Addr, s.Python = address, true
	lab.WriteTree(t, s.Dir, map[string]string{
		"srv/pillar/top.sls":  "base:\n  '*':\n    - word\n",
		"srv/pillar/word.sls": "word: of {{ grains['id'] }}\n",
		"srv/salt/file":       "of the old master\n",
	})

	s.Options = map[string]any{"nodegroups": map[string]any{"all": "L@old0,old1,old2"}}
	s.Launch(t)
	for i, v := range lab.Versions() {
		m := lab.SiteMinion(t, fmt.Sprintf("old%d", i), v, []*lab.Site{s}, nil)
		minions, ids = append(minions, m), append(ids, m.ID)
	}

	s.Accept(t, ids...)
	s.Ping(t, 4*time.Minute, ids...)
	key, err := os.ReadFile(filepath.Join(s.Dir, "pki/minions/old0"))
	if err != nil {
		t.Fatal(err)
	}

	for _, state := range []string{"minions_pre", "minions_rejected", "minions_denied"} {
		lab.WriteTree(t, s.Dir, map[string]string{"pki/" + state + "/of-" + state: string(key)})
	}

	return s, minions, ids
}

// clusterOf is a cluster of three nodes that listen on all addresses of theirs, and let no
// minion in that nobody has accepted.
func clusterOf(t *testing.T, net *lab.Network) (list []*lab.Appliance) {
	t.Helper()
	shared := lab.Dir(t)
	for i := 1; i <= 3; i++ {
		how := map[string]any{"mode": "form", "secret": lab.ApplianceSecret, "front": []string{"0.0.0.0"}}
		if i > 1 {
			how["mode"], how["peers"] = "join", []string{list[0].Addr}
		}

		n := lab.NewAppliance(t, net, i, shared, how)
		n.Change(t, "settings.master.options.auto_accept", false)
		n.Change(t, "settings.master.options.gather_job_timeout", 3)
		list = append(list, n)
		n.Launch(t)
	}

	for _, n := range list {
		n.WaitReady(t, 3)
	}

	return list
}

// keyOf is the hash of the cluster's key that a node's own table names.
func keyOf(t *testing.T, n *lab.Appliance) string {
	t.Helper()
	k, err := nodes.OpenKeeper(filepath.Join(n.Dir, "data"), "")
	if err != nil {
		t.Fatal(err)
	}
	table := k.Table()
	return table.KeyHash
}

// TestImportToCluster: a master of Salt's that serves minions of three releases is taken
// over by a cluster of three nodes, one of which is away. Then its address moves to the
// cluster: all minions answer each node, and none was touched. The node that was away
// takes the key when it is back, one that is killed comes back with it.
func TestImportToCluster(t *testing.T) {
	t.Parallel()
	net := lab.NewNetwork(t, "imp", "10.82")
	address := net.Also(t, "", 200)
	list := clusterOf(t, net)
	n1, n2, n3 := list[0], list[1], list[2]
	old, minions, ids := oldAt(t, address)
	conf := filepath.Join(old.Dir, "etc")
	before := keyOf(t, n1)

	n3.Kill()
	r := n1.Applianced(t, "import", "--dry-run", "--config-dir", conf, "/")
	if r.Code != 2 || !strings.Contains(r.Out, "nothing was changed") ||
		!strings.Contains(r.Out, "one after the other") || keyOf(t, n1) != before {
		t.Fatalf("import --dry-run: %+v", r)
	}

	if r = n1.Applianced(t, "import", "--config-dir", conf, "/"); r.Code != 2 ||
		!strings.Contains(r.Out, "imported:") || !strings.Contains(r.Out, "node n3 takes it when it starts") {
		t.Fatalf("import: %+v", r)
	}

	for _, half := range []string{".pem", ".pub"} {
		was, err1 := os.ReadFile(filepath.Join(old.Dir, "pki", "master"+half))
		now, err2 := os.ReadFile(filepath.Join(n1.Shared, "pki", "cluster"+half))
		if err1 != nil || err2 != nil || !bytes.Equal(was, now) {
			t.Errorf("the cluster's key is another than the old master's: %v %v", err1, err2)
		}
	}

	if left, _ := filepath.Glob(filepath.Join(n1.Shared, "pki", "cluster-next*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}

	taken := keyOf(t, n1)
	if keyOf(t, n2) != taken || taken == before {
		t.Errorf("the keys are %s and %s, before %s", taken, keyOf(t, n2), before)
	}

	began := time.Now()
	stop(t, old)
	move(t, net, address, n2)
	here(t, n1, ids)
	t.Logf("all answer %s after the address moved", time.Since(began).Round(100*time.Millisecond))
	here(t, n2, ids)

	for _, state := range []string{"minions_pre", "minions_rejected", "minions_denied"} {
		if _, err := os.Stat(filepath.Join(n1.Shared, "pki", state, "of-"+state)); err != nil {
			t.Error(err)
		}
	}

	n3.Launch(t)
	n3.WaitReady(t, 3)
	if keyOf(t, n3) != taken {
		t.Error("the node that was away has not taken the key")
	}

	net.Move(t, n3.Addr)
	n2.Kill() // with its sessions
	here(t, n3, ids)
	n2.Launch(t)
	n2.WaitReady(t, 3)
	here(t, n2, ids)

	if r := n2.Tool(t, "salt", "--out", "json", "--static", "-N", "all", "cp.get_file_str", "salt://file"); strings.Count(r.Out, "of the old master") != len(ids) {
		t.Errorf("files: %+v", r)
	}

	if r := n2.Tool(t, "salt", "--out", "json", "--static", "old0", "pillar.get", "word"); !strings.Contains(r.Out, "of old0") {
		t.Errorf("pillars: %+v", r)
	}

	for _, m := range minions {
		if !m.Running() {
			t.Errorf("minion %s has ended", m.ID)
		}
	}

	if r := n2.Applianced(t, "import", "--config-dir", conf, "/"); r.Code != 2 ||
		!strings.Contains(r.Out, "0 B written") {
		t.Errorf("the same import on another node: %+v", r)
	}
}

// here waits until all minions answer one job of a node. It asks often: a job that is
// given before a minion is back waits for its timeout.
func here(t *testing.T, n *lab.Appliance, ids []string) {
	t.Helper()
	lab.Eventually(t, 2*time.Minute, "minions answer "+n.Name, func() error {
		r := n.Tool(t, "salt", "-t", "3", "--out", "txt", "*", "test.ping")
		for _, id := range ids {
			if !strings.Contains(r.Out, id+": True") {
				return fmt.Errorf("%s does not: %+v", id, r)
			}
		}
		return nil
	})
}

// move takes the address from the machine of the old master and gives it to a node.
func move(t *testing.T, net *lab.Network, address string, to *lab.Appliance) {
	t.Helper()
	out, err := exec.Command("sh", "-c",
		`ip addr del "$0/32" dev "$(ip -o addr show to "$0/32" | cut -d' ' -f2)"`, address).CombinedOutput()
	if err != nil {
		t.Fatalf("take the address away: %v %s", err, out)
	}
	net.Move(t, to.Addr)
}
