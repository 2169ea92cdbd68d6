//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/supervisor/setup"
	"saltern/supervisor/status"
	"saltern/test/lab"
)

// threeNodes are the answers for three nodes of a cluster: the first forms it.
func threeNodes(t *testing.T, net *lab.Network) []*lab.Appliance {
	t.Helper()
	shared := lab.Dir(t)
	first := lab.NewAppliance(t, net, 1, shared, map[string]any{"mode": "form", "secret": lab.ApplianceSecret})
	out := []*lab.Appliance{first}
	for i := 2; i <= 3; i++ {
		out = append(out,
			lab.NewAppliance(t, net, i, shared,
				map[string]any{"mode": "join", "peers": []string{first.Addr}, "secret": lab.ApplianceSecret}))
	}
	return out
}

// TestAppliance takes three machines from nothing to a serving cluster, all
// started at once, without anybody who answers questions. Minions of three
// releases of Salt each know one node and answer jobs from every other. Then
// power fails, machines that do not fit are turned away, and nodes go.
func TestAppliance(t *testing.T) {
	t.Parallel()
	net := lab.NewNetwork(t, "sup", "10.70")
	nodes := threeNodes(t, net)
	for _, i := range rand.Perm(3) {
		nodes[i].Launch(t)
	}

	for _, n := range nodes {
		n.WaitReady(t, 3)
	}

	var ids []string
	for i, v := range lab.Versions() {
		ids = append(ids, "m"+strings.ReplaceAll(v, ".", "-"))
		nodes[i].StartMinion(t, ids[i], v)
	}

	for _, n := range nodes {
		n.Ping(t, 150*time.Second, ids...)
	}

	all := t // what is started lasts until all of it has ended
	t.Run("power cut", func(t *testing.T) {
		nodes[2].Kill()
		nodes[2].Launch(all)
		nodes[2].WaitReady(t, 3)
		nodes[2].Ping(t, 150*time.Second, ids...)
	})

	t.Run("clone", func(t *testing.T) {
		nodes[2].Kill()
		clone := nodes[2].Clone(all, 33)
		nodes[2].Launch(all)
		clone.Launch(all)
		cloneElsewhere(t, nodes, clone)
	})

	var n4 *lab.Appliance
	t.Run("join string", func(t *testing.T) {
		r := nodes[1].Applianced(t, "join-string")
		line := strings.TrimSpace(r.Out)
		j, err := setup.ParseJoin(line)
		if err != nil || len(j.Peers) != 3 || j.Secret != lab.ApplianceSecret {
			t.Fatalf("join-string gave %q %s: %v", line, r.Err, err)
		}

		n4 = lab.NewAppliance(all, net, 4, "", map[string]any{"join": line})
		n4.Launch(all)
		n4.WaitReady(t, 4)
		n4.Ping(t, 150*time.Second, ids...)
	})

	t.Run("verbs", func(t *testing.T) { asked(t, nodes, n4, ids) })
	t.Run("secrets", func(t *testing.T) { noSecrets(t, nodes) })
	t.Run("turned away", func(t *testing.T) {
		for number, c := range map[int]struct {
			answers map[string]any
			want    string
		}{
			11: {map[string]any{"mode": "join", "peers": []string{nodes[0].Addr}, "secret": "not-the-secret-of-it"},
				"the secret is not that of the cluster"},
			12: {map[string]any{"mode": "join", "peers": []string{nodes[0].Addr}, "secret": lab.ApplianceSecret, "node": "n2"},
				"name n2 is taken"},
			13: {map[string]any{"mode": "join", "peers": []string{nodes[0].Addr}, "secret": lab.ApplianceSecret, "cluster_id": "other"},
				"another cluster"},
		} {
			a := lab.NewAppliance(t, net, number, "", c.answers)
			a.Launch(t)
			turnedAway(t, a, c.want)
			a.Kill()
		}
	})

	t.Run("drain, leave, remove", func(t *testing.T) {
		must(t, nodes[0].Applianced(t, "drain", "n2"))
		lab.Eventually(t, 60*time.Second, "n2 is drained", func() error {
			d, err := nodes[1].Status(t)
			if err == nil && d.Setup != status.SetupDraining {
				err = fmt.Errorf("set-up %s", d.Setup)
			}
			return err
		})

		must(t, nodes[0].Applianced(t, "undrain", "n2"))
		nodes[1].WaitReady(t, 4)
		must(t, nodes[1].Applianced(t, "ping", "n1"))

		before := must(t, nodes[0].Applianced(t, "join-string"))
		must(t, n4.Applianced(t, "leave", "--yes"))
		lab.Eventually(t, 60*time.Second, "n4 knows that it has left", func() error {
			d, err := n4.Status(t)
			if err == nil && (d.Setup != status.SetupRemoved || d.ServingSince != nil) {
				err = fmt.Errorf("set-up %s, serving %v", d.Setup, d.ServingSince)
			}
			return err
		})

		if r := nodes[0].Applianced(t, "remove", "--yes", "n3"); r.Code == 0 || !strings.Contains(r.Err, "alive") {
			t.Fatalf("a node that is alive was removed: %+v", r)
		}

		nodes[2].Kill()
		lab.Eventually(t, 60*time.Second, "n3 can be removed", func() error {
			if r := nodes[0].Applianced(t, "remove", "--yes", "n3"); r.Code != 0 {
				return fmt.Errorf("%s", r.Err)
			}
			return nil
		})

		nodes[0].WaitReady(t, 2)
		nodes[1].WaitReady(t, 2)

		// Its key and the old secret open nothing any more; it is told so.
		nodes[2].Launch(all)
		lab.Eventually(t, 60*time.Second, "n3 knows that it was removed", func() error {
			d, err := nodes[2].Status(t)
			if err == nil && (d.Setup != status.SetupRemoved || d.ServingSince != nil) {
				err = fmt.Errorf("set-up %s, serving %v", d.Setup, d.ServingSince)
			}
			return err
		})

		lab.Eventually(t, 30*time.Second, "the secret has changed on both", func() error {
			for _, n := range nodes[:2] {
				if r := n.Applianced(t, "join-string"); r.Out == before ||
					strings.Contains(r.Out, lab.ApplianceSecret) {
					return fmt.Errorf("%s has the old one", n.Name)
				}
			}
			return nil
		})

		late := lab.NewAppliance(t, net, 21, "", map[string]any{"join": strings.TrimSpace(before)})
		late.Launch(t)
		turnedAway(t, late, "the secret is not that of the cluster")
		nodes[0].Ping(t, 150*time.Second, ids[0], ids[1])
	})
}

// asked asks a node of four what administrators ask.
func asked(t *testing.T, nodes []*lab.Appliance, n4 *lab.Appliance, ids []string) {
	t.Helper()
	n1 := nodes[0]
	for _, c := range []struct {
		verb []string
		says []string
		code int
	}{
		{[]string{"nodes"}, []string{"n1* ", "n2 ", "n3 ", "n4 ", "ready"}, 0},
		// keys are accepted by themselves here
		{[]string{"status", "--json"}, []string{`"schema": 1`, `"exit": `, `"n4"`}, status.ExitDegraded},
		{[]string{"minions"}, append([]string{" there "}, ids...), 0},
		{[]string{"keys"}, append([]string{"accepted"}, ids...), 0},
		{[]string{"ping", "n4"}, []string{"pass", n4.Addr}, 0},
		{[]string{"logs", "master", "-n", "5"}, []string{"\n"}, 0},
		{[]string{"logs", "lb"}, []string{"\n"}, 0},
		{[]string{"setup", "progress"}, []string{"State: ready", "master:"}, 0},
		{[]string{"config", "check"}, []string{"is right: node n1, cluster lab"}, 0},
		{[]string{"lb", "status"}, []string{"BACKEND", "n4"}, 0},
		{[]string{"__complete", "ping", ""}, []string{"n2\n", "n3\n", "n4\n"}, 0},
		{[]string{"__complete", "keys", "delete", ""}, ids, 0},
	} {
		lab.Eventually(t, 60*time.Second, strings.Join(c.verb, " "), func() error {
			r := n1.Applianced(t, c.verb...)
			for _, want := range c.says {
				if r.Code != c.code || !strings.Contains(r.Out, want) {
					return fmt.Errorf("no %q: %+v", want, r)
				}
			}
			return nil
		})
	}
}

// must gives what a program printed that has to succeed.
func must(t *testing.T, r lab.Result) string {
	t.Helper()
	if r.Code != 0 {
		t.Fatalf("exit %d\n%s%s", r.Code, r.Out, r.Err)
	}
	return r.Out
}

// turnedAway waits until a machine's set-up has stopped for a reason, and says
// what to check.
func turnedAway(t *testing.T, a *lab.Appliance, want string) {
	t.Helper()
	lab.Eventually(t, 60*time.Second, "a machine is turned away", func() error {
		d, err := a.Status(t)
		if err != nil {
			return err
		}
		if d.Setup != status.SetupFailed || len(d.Problems) == 0 ||
			!strings.Contains(d.Problems[0].Cause, want) || !strings.Contains(d.Problems[0].Cause, "check:") {
			return fmt.Errorf("set-up %s: %+v", d.Setup, d.Problems)
		}

		return nil
	})

	if r := a.Applianced(t, "setup", "progress"); r.Code != status.ExitNotServing ||
		!strings.Contains(r.Out, "Cause:") || !strings.Contains(r.Out, "Check:") {
		t.Errorf("setup progress: %+v", r)
	}

	if r := a.Applianced(t, "setup", "retry"); r.Code != status.ExitNotServing || !strings.Contains(r.Out, "check: ") {
		t.Errorf("setup retry: %+v", r)
	}
}

// noSecrets is attack row 27: the cluster's secret is in the files that are
// for it, mode 0600, and in no log, status, command line or environment.
func noSecrets(t *testing.T, nodes []*lab.Appliance) {
	t.Helper()
	meant := map[string]bool{"answers.yaml": true, "data/node/secret": true, "data/etc/cluster.conf": true}
	for _, n := range nodes {
		err := filepath.WalkDir(n.Dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return nil // files come and go
			}

			b, err := os.ReadFile(path)
			if err != nil || !strings.Contains(string(b), lab.ApplianceSecret) {
				return nil
			}

			name, _ := filepath.Rel(n.Dir, path)
			if fi, err := d.Info(); err == nil && (!meant[name] || fi.Mode().Perm() != 0o600) {
				t.Errorf("%s: the secret is in %s, mode %v", n.Name, name, fi.Mode())
			}

			return nil
		})
		if err != nil {
			t.Error(err)
		}

		for _, verb := range [][]string{
			{"status"},
			{"status", "--json"},
			{"nodes"},
			{"logs", "master", "-n", "200"},
			{"logs", "lb", "-n", "200"},
		} {
			if r := n.Applianced(t, verb...); strings.Contains(r.Out+r.Err, lab.ApplianceSecret) {
				t.Errorf("%s: %v shows the secret", n.Name, verb)
			}
		}
	}

	err := filepath.WalkDir(nodes[0].Shared, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil // files come and go
		}
		if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), lab.ApplianceSecret) {
			t.Errorf("the secret is on the shared storage: %s", path)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}

	noCores(t, nodes)
	cleanBundle(t, nodes[1])
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range procs {
		for _, f := range []string{"cmdline", "environ"} {
			if b, err := os.ReadFile(filepath.Join(p, f)); err == nil &&
				strings.Contains(string(b), lab.ApplianceSecret) {
				t.Errorf("%s of process %s holds the secret: %q", f, filepath.Base(p), b)
			}
		}
	}
}

// cleanBundle: a node's support bundle holds nothing of the cluster's secret, of
// what the masters keep to themselves, and of any private key.
func cleanBundle(t *testing.T, n *lab.Appliance) {
	t.Helper()
	path := filepath.Join(n.Dir, "bundle.tar.gz")
	must(t, n.Applianced(t, "support", "-o", path))
	bundle := must(t, lab.Run(t, 60*time.Second, "/bin/tar", "-xzOf", path))
	secrets := map[string]string{lab.ApplianceSecret: "the cluster's secret"}
	for _, root := range []string{n.Dir, n.Shared} {
		_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return nil // files come and go
			}

			if fi, err := d.Info(); err != nil || fi.Size() > 1<<20 {
				return nil
			}

			b, err := os.ReadFile(path)
			if err != nil {
				return nil
			}

			if d.Name() == ".saltern_cluster" {
				var record map[string]any
				if err := json.Unmarshal(b, &record); err != nil {
					t.Error(err)
				}

				for k, v := range record {
					if v, ok := v.(string); ok &&
						slices.Contains([]string{"seed", "secret", "key"}, strings.ToLower(k)) {
						secrets[v] = path + ", " + k
					}
				}
			}

			if strings.Contains(string(b), "PRIVATE KEY") {
				for line := range strings.Lines(string(b)) {
					if line = strings.TrimSpace(line); len(line) > 40 && !strings.HasPrefix(line, "-----") {
						secrets[line] = path
					}
				}
			}

			return nil
		})
	}

	if len(secrets) < 20 {
		t.Errorf("only %d secrets are known", len(secrets))
	}

	for s, of := range secrets {
		if strings.Contains(bundle, s) {
			t.Errorf("a line of %s is in the support bundle", of)
		}
	}

	if !strings.Contains(bundle, "cluster lab") || !strings.Contains(bundle, "identity.pem") {
		t.Errorf("the bundle tells little: %d bytes", len(bundle))
	}
}

// noCores: no process of a node may leave its memory on a disk.
func noCores(t *testing.T, nodes []*lab.Appliance) {
	t.Helper()
	for _, n := range nodes {
		d, err := n.Status(t)
		if err != nil {
			t.Fatal(err)
		}

		for _, s := range d.Services {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", s.PID))
			if err != nil {
				t.Errorf("%s: %s: %v", n.Name, s.Name, err)
			}

			for line := range strings.Lines(string(b)) {
				if f := strings.Fields(line); strings.HasPrefix(line, "Max core file size") &&
					(len(f) < 6 || f[4] != "0" || f[5] != "0") {
					t.Errorf("%s: %s may dump core: %s", n.Name, s.Name, line)
				}
			}
		}
	}
}
