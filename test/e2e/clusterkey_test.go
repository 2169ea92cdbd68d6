//go:build e2e && appliance

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/test/lab"
)

// TestClusterKey: a node was stolen, with the key by which minions know their cluster.
// Whoever has it can play the master for minions of all releases. The cluster gets another
// key as docs/hardening.md says: minions are told, then the masters take it. Minions follow
// without a restart, the thief is refused, and a minion that was away is told by hand
// (finding 18 of the second audit).
func TestClusterKey(t *testing.T) {
	net := lab.NewNetwork(t, "rek", "10.83")
	list := clusterOf(t, net)
	n1, n3 := list[0], list[2]
	var minions []*lab.Minion
	var ids []string
	for i, v := range lab.Versions() {
		m := list[i].StartMinion(t, fmt.Sprintf("m%d", i), v)
		minions, ids = append(minions, m), append(ids, m.ID)
	}

	away := n1.StartMinion(t, "away", lab.Newest)
	acceptHere(t, n1, append(ids, away.ID)...)
	here(t, n1, append(ids, away.ID))

	// The thief has the key pair as it is now.
	thief := lab.NewSites(t, 1)[0]
	thief.Python = true
	old := map[string][]byte{}
	for _, half := range []string{".pem", ".pub"} {
		text, err := os.ReadFile(filepath.Join(n1.Shared, "pki", "cluster"+half))
		if err == nil {
			err = os.WriteFile(filepath.Join(thief.Dir, "pki", "master"+half), text, 0o400)
		}

		if err != nil {
			t.Fatal(err)
		}

		old[half] = text
	}

	thief.Launch(t)
	for i, v := range lab.Versions() {
		victim := lab.PrepareSiteMinion(t, fmt.Sprintf("before%d", i), v, []*lab.Site{thief}, nil)
		trusts(t, victim, old[".pub"])
		victim.Launch(t)
		thief.Accept(t, victim.ID)
		thief.Ping(t, 2*time.Minute, victim.ID) // it does what the thief says
		victim.Kill()
	}

	if err := away.Stop(60 * time.Second); err != nil {
		t.Log(err)
	}

	n3.Kill() // it takes the key when it starts
	r := n1.Applianced(t, "cluster-key", "new")
	next := filepath.Join(n1.Shared, "pki", "cluster-next.pub")
	if r.Code != 0 || !strings.Contains(r.Out, next) {
		t.Fatalf("%+v", r)
	}

	fresh, err := os.ReadFile(next)
	if err != nil || bytes.Equal(fresh, old[".pub"]) {
		t.Fatal(err)
	}

	for i, m := range minions {
		on := list[i%2] // n3 is away, and its minion finds no other address
		if i == 2 {
			continue
		}
		if r := on.Tool(t, "salt-cp", m.ID, next, filepath.Join(m.Dir, "pki", "minion_master.pub")); !strings.Contains(r.Out, "True") {
			t.Fatalf("tell %s: %+v", m.ID, r)
		}
	}

	began := time.Now()
	if r := n1.Applianced(t, "cluster-key", "take", "--yes"); r.Code != 0 ||
		!strings.Contains(r.Out, "node n3 takes it when it starts") {
		t.Fatalf("%+v", r)
	}

	t.Logf("the masters have taken it after %s", time.Since(began).Round(100*time.Millisecond))
	here(t, n1, ids[:2])
	t.Logf("minions that were told answer after %s", time.Since(began).Round(100*time.Millisecond))
	here(t, list[1], ids[:2])
	n3.Launch(t)
	n3.WaitReady(t, 3)

	// Those that were not told refuse the cluster until they are told by hand.
	away.Launch(t)
	lab.Eventually(t, 2*time.Minute, "the minion that was away refuses the new key", func() error {
		if !saysOtherKey(t, away) {
			return fmt.Errorf("it says\n%s", lab.Tail(away.Log, 5))
		}
		return nil
	})

	for _, m := range []*lab.Minion{away, minions[2]} {
		m.Kill()
		trusts(t, m, fresh)
		m.Restart(t)
	}

	here(t, n1, append(ids, away.ID))

	// The thief is nobody now.
	for i, v := range lab.Versions() {
		victim := lab.PrepareSiteMinion(t, fmt.Sprintf("after%d", i), v, []*lab.Site{thief}, nil)
		trusts(t, victim, fresh)
		victim.Launch(t)
		thief.Accept(t, victim.ID)
		lab.Eventually(t, 2*time.Minute, victim.ID+" refuses the thief", func() error {
			if !saysOtherKey(t, victim) {
				return fmt.Errorf("it says\n%s", lab.Tail(victim.Log, 5))
			}
			return nil
		})

		if answers, err := thief.JSON(t, "-L", victim.ID, "-t", "5", "test.ping"); err == nil &&
			answers[victim.ID] == true {
			t.Errorf("%s does what the thief says", victim.ID)
		}

		victim.Kill()
	}
}

// acceptHere accepts keys of minions that wait.
func acceptHere(t *testing.T, n *lab.Appliance, ids ...string) {
	t.Helper()
	for _, id := range ids {
		lab.Eventually(t, 4*time.Minute, "the key of "+id+" is accepted", func() error {
			r := n.Tool(t, "salt-key", "-y", "-a", id)
			if _, err := os.Stat(filepath.Join(n.Shared, "pki", "minions", id)); err != nil {
				return fmt.Errorf("%+v", r)
			}
			return nil
		})
	}
}

// trusts gives a minion the public key of its master.
func trusts(t *testing.T, m *lab.Minion, public []byte) {
	t.Helper()
	path := filepath.Join(m.Dir, "pki", "minion_master.pub")
	if err := os.WriteFile(path, public, 0o644); err != nil {
		t.Fatal(err)
	}
}

// saysOtherKey reports whether a minion has refused its master for its key.
func saysOtherKey(t *testing.T, m *lab.Minion) bool {
	t.Helper()
	text, err := os.ReadFile(m.Log)
	if err != nil {
		t.Fatal(err)
	}
	for _, words := range []string{"master key has changed", "Invalid master key", "Invalid signature",
		"could have been subverted", "payload signature did not validate"} {
		if bytes.Contains(text, []byte(words)) {
			return true
		}
	}
	return false
}

// TestClusterKeySigned: minions that look at the signature of their master's key
// (verify_master_pubkey_sign) follow to another key without being told.
func TestClusterKeySigned(t *testing.T) {
	net := lab.NewNetwork(t, "sgn", "10.84")
	n := lab.NewAppliance(t, net, 1, lab.Dir(t),
		map[string]any{"mode": "form", "secret": lab.ApplianceSecret, "front": []string{"0.0.0.0"}})
	n.Change(t, "settings.master.options.auto_accept", false)
	n.Change(t, "settings.master.options.gather_job_timeout", 3)
	n.Change(t, "settings.master.options.master_sign_pubkey", true)
	n.Launch(t)
	n.WaitReady(t, 1)
	public, err := os.ReadFile(filepath.Join(n.Dir, "data/pki/master_sign.pub"))
	if err != nil {
		t.Fatal(err)
	}

	var ids []string
	for i, v := range lab.Versions() {
		m := lab.StartMinionWith(t, fmt.Sprintf("signed%d", i), v,
			map[string]any{"master": n.Addr, "master_alive_interval": 15, "verify_master_pubkey_sign": true})
		if err := os.WriteFile(filepath.Join(m.Dir, "pki/master_sign.pub"), public, 0o644); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, m.ID)
	}

	acceptHere(t, n, ids...)
	here(t, n, ids)

	for _, args := range [][]string{{"cluster-key", "new"}, {"cluster-key", "take", "--yes"}} {
		if r := n.Applianced(t, args...); r.Code != 0 {
			t.Fatalf("%q: %+v", args, r)
		}
	}

	here(t, n, ids)
}
