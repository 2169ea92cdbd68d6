//go:build e2e && appliance

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/supervisor/setup"
	"saltern/supervisor/status"
	"saltern/test/lab"
)

// handAccepted are settings of nodes whose administrator accepts keys.
func handAccepted(t *testing.T) map[string]any {
	t.Helper()
	return map[string]any{"limits": map[string]any{"disk_low_percent": 0.2, "disk_full_percent": 0.1},
		"master": map[string]any{"options": map[string]any{
			"gather_job_timeout":      30,
			"saltern_renderer_python": filepath.Join(lab.Venv(t, lab.Newest), "python3"),
		}}}
}

// threeOrdinary are three nodes that share a directory and accept no key by
// themselves.
func threeOrdinary(t *testing.T, net *lab.Network) []*lab.Appliance {
	t.Helper()
	shared := lab.Dir(t)
	out := []*lab.Appliance{lab.NewAppliance(t, net, 1, shared,
		map[string]any{"mode": "form", "secret": lab.ApplianceSecret, "settings": handAccepted(t)})}
	for i := 2; i <= 3; i++ {
		out = append(out, lab.NewAppliance(t, net, i, shared,
			map[string]any{
				"mode":     "join",
				"peers":    []string{out[0].Addr},
				"secret":   lab.ApplianceSecret,
				"settings": handAccepted(t),
			}))
	}

	for _, n := range out {
		n.Launch(t)
	}

	for _, n := range out {
		n.WaitReady(t, 3)
	}

	return out
}

// listed asks a node for its list of minions or keys.
func listed(t *testing.T, n *lab.Appliance, verb string) (list status.MinionList, code int, err error) {
	t.Helper()
	r := n.Applianced(t, verb, "--json")
	if err := json.Unmarshal([]byte(r.Out), &list); err != nil {
		return list, r.Code, fmt.Errorf("%s: %w: %s%s", verb, err, r.Out, r.Err)
	}
	return list, r.Code, nil
}

func minionOf(list status.MinionList, id string) status.Minion {
	for _, m := range list.Minions {
		if m.ID == id {
			return m
		}
	}
	return status.Minion{}
}

// TestDayTwo does to a cluster of three what administrators do: keys are
// accepted, minions looked for, and the secret changed, with nodes away and
// the power failing between.
func TestDayTwo(t *testing.T) {
	t.Parallel()
	net := lab.NewNetwork(t, "day", "10.71")
	nodes := threeOrdinary(t, net)
	m := nodes[0].StartMinion(t, "m1", lab.Newest)

	acceptByHand(t, net, nodes)
	watchMinion(t, net, nodes, m)
	changeSecret(t, net, nodes)
	nodes[2].Ping(t, 120*time.Second, "m1")
	recoverOne(t, net, nodes)
}

// acceptByHand accepts the key of m1, seen on every node with its address.
func acceptByHand(t *testing.T, net *lab.Network, nodes []*lab.Appliance) {
	t.Helper()
	lab.Eventually(t, 120*time.Second, "the key of m1 waits, with its address", func() error {
		list, code, err := listed(t, nodes[2], "keys")
		if k := minionOf(list, "m1"); err == nil &&
			(code != 0 || k.Key != "pending" || k.Address != net.Outside() || len(k.Finger) != 95 || k.Seen == nil) {
			err = fmt.Errorf("exit %d: %+v", code, list)
		}
		return err
	})

	if out := must(t, nodes[1].Applianced(t, "keys")); !strings.Contains(out, "pending") ||
		!strings.Contains(out, net.Outside()) {
		t.Errorf("keys printed\n%s", out)
	}

	for _, args := range [][]string{{"accept", "m1", "nobody"}, {"accept", "*"}, {"reject", "--", "-a"}} {
		if r := nodes[2].Applianced(t, append([]string{"keys"}, args...)...); r.Code != 1 {
			t.Errorf("keys %v: %+v", args, r)
		}
	}

	if list, _, err := listed(t, nodes[0], "keys"); err != nil || minionOf(list, "m1").Key != "pending" {
		t.Errorf("a refused change: %+v %v", list, err)
	}

	must(t, nodes[2].Applianced(t, "keys", "accept", "m1"))
	nodes[1].Ping(t, 120*time.Second, "m1")
}

// watchMinion sees m1 from every node, sees it go, and come back.
func watchMinion(t *testing.T, net *lab.Network, nodes []*lab.Appliance, m *lab.Minion) {
	t.Helper()
	lab.Eventually(t, 60*time.Second, "m1 is there for every node", func() error {
		for _, n := range nodes {
			list, code, err := listed(t, n, "minions")
			if err != nil {
				return err
			}

			if m := minionOf(list, "m1"); code != 0 || !m.Connected || m.Address != net.Outside() ||
				m.Node == "" || m.Seen == nil {
				return fmt.Errorf("%s: exit %d: %+v", n.Name, code, list)
			}
		}

		return nil
	})

	if err := m.Stop(60 * time.Second); err != nil {
		t.Log(err) // it may end with a code of its own
	}

	lab.Eventually(t, 60*time.Second, "m1 is absent", func() error {
		r := nodes[1].Applianced(t, "minions", "--absent")
		if r.Code != status.ExitDegraded || !strings.Contains(r.Out, "m1 ") || !strings.Contains(r.Out, "absent") {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})

	m.Launch(t)
	nodes[0].Ping(t, 120*time.Second, "m1")
}

// recoverOne loses two of three nodes for good. The last one goes on alone, with
// all keys; the lost ones are refused when they come back, and a new one joins.
func recoverOne(t *testing.T, net *lab.Network, nodes []*lab.Appliance) {
	t.Helper()
	n1 := nodes[0]
	before := strings.TrimSpace(must(t, n1.Applianced(t, "join-string")))
	lab.Eventually(t, 60*time.Second, "nodes that answer are not given up", func() error {
		if r := n1.Applianced(t, "recover", "--new-cluster", "--yes"); r.Code != 1 ||
			!strings.Contains(r.Err, "still answers") {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})

	keys := readRecord(t, n1)
	for _, n := range nodes[1:] {
		n.Kill()
	}

	lab.Eventually(t, 60*time.Second, "the others are lost", func() error {
		d, err := n1.Status(t)
		for _, n := range d.Nodes {
			if n.Name == "n2" && n.State == "unreachable" && err == nil {
				return nil
			}
		}
		return fmt.Errorf("%+v %w", d.Nodes, err)
	})

	if r := n1.Applianced(t, "recover", "--new-cluster"); r.Code != 64 ||
		!strings.Contains(r.Err, "say --yes") || !strings.Contains(r.Err, "n3") {
		t.Errorf("without --yes: %+v", r)
	}

	lab.Eventually(t, 60*time.Second, "n1 becomes a cluster of its own", func() error {
		if r := n1.Applianced(t, "recover", "--new-cluster", "--yes"); r.Code != 0 {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})

	n1.WaitReady(t, 1)
	line := changed(t, before, n1)
	if now := readRecord(t, n1); now.Seed == keys.Seed || now.Key == keys.Key || now.Secret == keys.Secret ||
		len(now.Members) != 1 {
		t.Error("what the lost nodes knew still counts") // attack row 12
	}

	n1.Ping(t, 120*time.Second, "m1")
	for _, n := range nodes[1:] {
		n.Launch(t)
		lab.Eventually(t, 60*time.Second, n.Name+" knows that it was removed", func() error {
			d, err := n.Status(t)
			if err == nil && (d.Setup != status.SetupRemoved || d.ServingSince != nil) {
				err = fmt.Errorf("set-up %s, serving %v", d.Setup, d.ServingSince)
			}
			return err
		})

		n.Kill()
	}

	n5 := lab.NewAppliance(t, net, 5, "", map[string]any{"join": line, "settings": handAccepted(t)})
	n5.Launch(t)
	n5.WaitReady(t, 2)
	n5.Ping(t, 120*time.Second, "m1")
}

// changeSecret changes the secret while a node is away: not at all, then with
// all of them after a power cut in the middle, then without it.
func changeSecret(t *testing.T, net *lab.Network, nodes []*lab.Appliance) {
	t.Helper()
	before := strings.TrimSpace(must(t, nodes[0].Applianced(t, "join-string")))
	staged := func(n *lab.Appliance) bool {
		_, err := os.Stat(filepath.Join(n.Dir, "data/node", setup.NextSecretFile))
		return err == nil
	}

	nodes[2].Kill()
	lab.Eventually(t, 60*time.Second, "the change stops at the node that is away", func() error {
		if r := nodes[0].Applianced(t, "secret", "rotate"); r.Code != 1 ||
			!strings.Contains(r.Err, "n3 cannot be reached") {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})

	if now := strings.TrimSpace(must(t, nodes[1].Applianced(t, "join-string"))); now != before {
		t.Error("the secret has changed")
	}

	if !staged(nodes[0]) || !staged(nodes[1]) || staged(nodes[2]) {
		t.Error("the next secret is not on the two that are there")
	}

	for _, n := range nodes[:2] {
		n.Kill()
	}

	for _, n := range nodes {
		n.Launch(t)
	}

	for _, n := range nodes {
		n.WaitReady(t, 3)
	}

	var both sync.WaitGroup // two administrators at once: both are told that it was changed
	for _, n := range nodes[1:] {
		both.Go(func() {
			if r := n.Applianced(t, "secret", "rotate"); r.Code != 0 {
				t.Errorf("%s: %+v", n.Name, r)
			}
		})
	}

	both.Wait()
	second := changed(t, before, nodes...)
	for _, n := range nodes {
		if staged(n) {
			t.Errorf("%s keeps the next secret", n.Name)
		}
	}

	old := lab.NewAppliance(t, net, 21, "", map[string]any{"join": before})
	old.Launch(t)
	turnedAway(t, old, "the secret is not that of the cluster")

	nodes[2].Kill()
	lab.Eventually(t, 60*time.Second, "the secret is changed without n3", func() error {
		r := nodes[0].Applianced(t, "secret", "rotate", "--force")
		if r.Code != 0 || !strings.Contains(r.Out, "n3 takes it when it is back") {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})

	third := changed(t, second, nodes[:2]...)
	nodes[2].Launch(t)
	nodes[2].WaitReady(t, 3)
	if got := changed(t, second, nodes[2]); got != third {
		t.Error("n3 has another secret")
	}

	for _, n := range nodes {
		r := n.Applianced(t, "logs", "master", "-n", "200")
		b, err := os.ReadFile(filepath.Join(n.Dir, "log"))
		if j, perr := setup.ParseJoin(third); err != nil || perr != nil || strings.Contains(r.Out+string(b), j.Secret) {
			t.Errorf("%s: the new secret is in a log (%v, %v)", n.Name, err, perr)
		}
	}

	next := lab.NewAppliance(t, net, 4, "", map[string]any{"join": third, "settings": handAccepted(t)})
	next.Launch(t)
	next.WaitReady(t, 4)
	must(t, next.Applianced(t, "leave", "--yes"))
}

// changed waits until nodes have another secret than that of a join string,
// all the same, and gives their join string without the addresses.
func changed(t *testing.T, before string, nodes ...*lab.Appliance) (line string) {
	t.Helper()
	was, err := setup.ParseJoin(before)
	if err != nil {
		t.Fatal(err)
	}

	lab.Eventually(t, 60*time.Second, "another secret", func() error {
		secret := ""
		for _, n := range nodes {
			r := n.Applianced(t, "join-string")
			j, err := setup.ParseJoin(strings.TrimSpace(r.Out))
			if err != nil {
				return fmt.Errorf("%w: %s", err, r.Err)
			}

			if secret == "" {
				secret, line = j.Secret, strings.TrimSpace(r.Out)
			}

			if j.Secret == was.Secret || j.Secret != secret {
				return fmt.Errorf("%s has the old one, or one of its own", n.Name)
			}
		}

		return nil
	})

	return line
}

// record is what of the masters' record a removed node must not know any more.
type record struct {
	Members           []struct{ ID string }
	Key, Seed, Secret string
}

func readRecord(t *testing.T, n *lab.Appliance) (r record) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(n.Shared, "pki", ".saltern_cluster"))
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil || r.Seed == "" || r.Key == "" {
		t.Fatalf("record: %v", err)
	}
	return r
}
