//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/test/lab"
)

// TestBackupAndRestore: a node is lost with everything on it. A fresh one gets
// its backup, and the minion answers without being touched. The runs of the lost node are in the history,
// once each, with those after it.
func TestBackupAndRestore(t *testing.T) {
	t.Parallel()
	n := lab.StartNode(t, lab.NodeConfig{
		States: map[string]string{
			"top.sls":   "base:\n  '*':\n    - hello\n",
			"hello.sls": "hello:\n  test.succeed_without_changes\n",
		},
		Pillar: map[string]string{"top.sls": "base:\n  '*':\n    - p\n", "p.sls": "colour: canary-blue\n"},
	})

	m := accepted(t, n, "web1", lab.Newest)
	phrase := filepath.Join(n.Dir, "phrase")
	if err := os.WriteFile(phrase, []byte("correct horse battery\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	if r := n.Salt(t, "web1", "state.apply"); r.Code != 0 {
		t.Fatalf("state.apply: %+v", r)
	}
	before := runsOfNode(t, n, 1)

	archive := filepath.Join(n.Dir, "node.age")
	if r := n.Applianced(t, "backup", "--jobs", "-o", archive, "--passphrase-file", phrase); r.Code != 0 {
		t.Fatalf("backup: %+v", r)
	}

	if fi, err := os.Stat(archive); err != nil || fi.Mode().Perm() != 0o600 {
		t.Fatalf("archive: %v %v", fi, err)
	}

	if b, err := os.ReadFile(archive); err != nil || strings.Contains(string(b), "canary-blue") {
		t.Fatalf("the archive is in clear (%v)", err)
	}

	if r := n.Applianced(t, "restore", archive, "--passphrase-file", phrase); r.Code == 0 ||
		!strings.Contains(r.Err, "accepted minions already") {
		t.Errorf("restore over accepted minions: %+v", r)
	}

	if err := n.Stop(60 * time.Second); err != nil {
		t.Fatal(err)
	}

	if err := os.RemoveAll(n.Settings.DataDir); err != nil {
		t.Fatal(err)
	}

	n.Launch(t)
	if r := n.Applianced(t, "restore", "--check", archive, "--passphrase-file", phrase); r.Code != 0 ||
		!strings.Contains(r.Out, "whole: backup of cluster") {
		t.Errorf("check: %+v", r)
	}

	if r := n.Applianced(t, "restore", archive, "--passphrase-file", phrase); r.Code != 0 ||
		!strings.Contains(r.Out, "restored") {
		t.Fatalf("restore: %+v", r)
	}

	n.Ping(t, 120*time.Second, "web1")
	if !m.Running() {
		t.Error("the minion ended")
	}

	lab.Eventually(t, 60*time.Second, "pillar and state are back", func() error {
		r := n.Salt(t, "web1", "pillar.items")
		if !strings.Contains(r.Out, "colour") { // 3008 masks the values
			return fmt.Errorf("pillar: %+v", r)
		}

		if r := n.Salt(t, "web1", "state.apply"); r.Code != 0 || !strings.Contains(r.Out, "hello") {
			return fmt.Errorf("state: %+v", r)
		}

		return nil
	})

	after := runsOfNode(t, n, len(before)+1)
	for run, times := range before {
		if after[run] != times {
			t.Errorf("%v is there %d times after the restore, and was %d times: %v", run, after[run], times, after)
		}
	}

	// The history alone, onto a node that has more than the backup.
	if r := n.Applianced(t, "restore", "--history", archive, "--passphrase-file", phrase); r.Code != 0 ||
		!strings.Contains(r.Out, "history restored") {
		t.Fatalf("restore --history: %+v", r)
	}
	n.Ping(t, 120*time.Second, "web1")
	if again := runsOfNode(t, n, len(after)); !maps.Equal(again, after) {
		t.Errorf("runs %v, before the second restore %v", again, after)
	}
}

// runsOfNode waits until a node has so many runs of states, and returns how often it has each.
func runsOfNode(t *testing.T, n *lab.Node, most int) map[fleetRow]int {
	t.Helper()
	var rows map[fleetRow]int
	lab.Eventually(t, 60*time.Second, fmt.Sprint(most, " runs of states"), func() error {
		r := n.SaltRun(t, "fleet.runs", "function=state.apply", "limit=1000", "--out", "json")
		var answer struct{ Runs []fleetRow }
		if err := json.Unmarshal([]byte(r.Out), &answer); err != nil {
			return fmt.Errorf("%w: %s%s", err, r.Out, r.Err)
		}
		rows = map[fleetRow]int{}
		for _, row := range answer.Runs {
			rows[row]++
		}
		if len(rows) < most {
			return fmt.Errorf("%d runs: %v", len(rows), rows)
		}
		return nil
	})
	return rows
}

// TestSupportBundle: a real node's bundle is written, readable by its owner
// only, and holds neither its private keys nor its root key.
func TestSupportBundle(t *testing.T) {
	t.Parallel()
	n := lab.StartNode(t, lab.NodeConfig{})
	path := filepath.Join(n.Dir, "bundle.tar.gz")
	if r := n.Applianced(t, "support", "-o", path); r.Code != 0 {
		t.Fatalf("support: %+v", r)
	}

	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 {
		t.Fatalf("bundle: %v %v", fi, err)
	}

	r := lab.Run(t, 20*time.Second, "/bin/tar", "-xzOf", path)
	if r.Code != 0 || !strings.Contains(r.Out, "serving for") || !strings.Contains(r.Out, "master.pem") {
		t.Fatalf("tar: code %d, %d bytes, %s", r.Code, len(r.Out), r.Err)
	}

	secrets, err := filepath.Glob(filepath.Join(n.Settings.CacheDir(), ".*key"))
	if err != nil || len(secrets) == 0 {
		t.Fatalf("no root key: %v %v", secrets, err)
	}

	for _, f := range append(secrets, filepath.Join(n.Settings.PKIDir(), "master.pem")) {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}

		for _, line := range strings.Split(string(b), "\n") {
			if line = strings.TrimSpace(line); len(line) > 8 && !strings.HasPrefix(line, "-----") &&
				strings.Contains(r.Out, line) {
				t.Errorf("a line of %s is in the bundle", f)
			}
		}
	}
}

// TestBackupOfCluster: a cluster is lost as a whole. A fresh node of the same
// name and address gets the backup, another joins with a join string made
// after that, and the minion answers from both without being touched.
func TestBackupOfCluster(t *testing.T) {
	t.Parallel()
	net := lab.NewNetwork(t, "bak", "10.81")
	shared := lab.Dir(t)
	n1 := lab.NewAppliance(t, net, 1, shared, map[string]any{"mode": "form"})
	n1.Launch(t)
	n1.WaitReady(t, 1)
	n1.StartMinion(t, "web1", lab.Newest)
	n1.Ping(t, 90*time.Second, "web1")
	ran := jobsOf(t, n1)
	phrase := filepath.Join(n1.Dir, "phrase")
	archive := filepath.Join(n1.Dir, "cluster.age")

	if err := os.WriteFile(phrase, []byte("correct horse battery\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	if r := n1.Applianced(t, "backup", "--jobs", "-o", archive, "--passphrase-file", phrase); r.Code != 0 {
		t.Fatalf("backup: %+v", r)
	}

	key := func() string {
		b, err := os.ReadFile(filepath.Join(shared, "pki", "cluster.pub"))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}

	before := key()

	n1.Kill()
	empty(t, shared)
	if err := errors.Join(os.RemoveAll(filepath.Join(n1.Dir, "data")),
		os.RemoveAll(filepath.Join(n1.Dir, "run")), os.Remove(n1.Config())); err != nil {
		t.Fatal(err)
	}

	n1.Launch(t)
	n1.WaitReady(t, 1)
	if key() == before {
		t.Fatal("the fresh node has the key of the lost cluster")
	}

	if r := n1.Applianced(t, "restore", "--force", archive, "--passphrase-file", phrase); r.Code != 0 {
		t.Fatalf("restore: %+v", r)
	}

	if key() != before {
		t.Error("the key of the cluster is not that of the backup")
	}

	n1.WaitReady(t, 1)
	n1.Ping(t, 120*time.Second, "web1")

	r := n1.Applianced(t, "join-string")
	if r.Code != 0 {
		t.Fatalf("join-string: %+v", r)
	}

	n2 := lab.NewAppliance(t, net, 2, shared, map[string]any{"join": strings.TrimSpace(r.Out)})
	n2.Launch(t)
	n2.WaitReady(t, 2)
	n2.Ping(t, 90*time.Second, "web1")

	// The history of the lost node comes to one that has others beside it, and is there once.
	if r := n2.Applianced(t, "restore", archive, "--passphrase-file", phrase); r.Code == 0 {
		t.Errorf("a restore of all beside another node: %+v", r)
	}
	if r := n2.Applianced(t, "restore", "--history", archive, "--passphrase-file", phrase); r.Code != 0 {
		t.Fatalf("restore --history: %+v", r)
	}
	for _, n := range []*lab.Appliance{n1, n2} {
		n.WaitReady(t, 2)
		for jid, times := range ran {
			lab.Eventually(t, 60*time.Second, n.Dir+" has "+jid, func() error {
				if got := jobsOf(t, n); got[jid] != times {
					return fmt.Errorf("%d times, of %v", got[jid], got)
				}
				return nil
			})
		}
	}
}

// jobsOf returns how often the history of a node has a run of each job.
func jobsOf(t *testing.T, n *lab.Appliance) map[string]int {
	t.Helper()
	r := n.Tool(t, "salt-run", "fleet.runs", "limit=1000", "--out", "json")
	var answer struct{ Runs []fleetRow }
	if err := json.Unmarshal([]byte(r.Out), &answer); err != nil {
		t.Logf("fleet.runs: %v: %s%s", err, r.Out, r.Err)
	}
	jobs := map[string]int{}
	for _, row := range answer.Runs {
		jobs[row.JID]++
	}
	return jobs
}

// empty removes what is in a directory.
func empty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
}
