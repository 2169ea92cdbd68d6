//go:build e2e && appliance

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/test/lab"
)

// TestKeysNotSeen deletes from one node the key of a minion that another node heard last,
// before its master was started anew. A key of which nothing is known stays until that
// is asked for; nothing is deleted while a node is away.
func TestKeysNotSeen(t *testing.T) {
	t.Parallel()
	nodes := threeNodes(t, lab.NewNetwork(t, "nks", "10.88"))
	n1, n2, n3 := nodes[0], nodes[1], nodes[2]
	for _, n := range nodes {
		n.Launch(t)
	}

	for _, n := range nodes {
		n.WaitReady(t, 3)
	}

	gone := n3.StartMinion(t, "gone", lab.Newest)
	n1.StartMinion(t, "stays", lab.Newest)
	n1.Ping(t, 90*time.Second, "gone", "stays")
	if err := gone.Stop(30 * time.Second); err != nil {
		t.Fatal(err)
	}

	found, err := filepath.Glob(filepath.Join(n1.Shared, "pki*", "minions", "gone"))
	if more, _ := filepath.Glob(filepath.Join(n1.Shared, "*", "*", "minions", "gone")); len(found) == 0 {
		found = more
	}

	if err != nil || len(found) != 1 {
		t.Fatalf("the key of the minion: %v %v", found, err)
	}

	b, err := os.ReadFile(found[0])
	if err == nil {
		err = os.WriteFile(filepath.Join(filepath.Dir(found[0]), "ghost"), b, 0o644)
	}

	if err != nil {
		t.Fatal(err)
	}

	for _, n := range nodes {
		must(t, n.Applianced(t, "restart", "master"))
	}

	del := func(n *lab.Appliance, args string) lab.Result {
		return n.Applianced(t, append([]string{"keys", "delete", "--state", "accepted"}, strings.Fields(args)...)...)
	}
	lab.Eventually(t, 3*time.Minute, "a minute without the minion", func() error {
		r := del(n2, "--not-seen 1m --dry-run")
		if r.Code != 0 || !strings.Contains(r.Out, "gone") {
			return fmt.Errorf("%+v", r)
		}

		if strings.Contains(r.Out, "ghost") || strings.Contains(r.Out, "stays") ||
			!strings.Contains(r.Err, "1 more keys are left alone") || !strings.Contains(r.Err, "1 keys are meant") {
			t.Errorf("%+v", r)
		}

		return nil
	})

	if r := del(n2, "--not-seen 1d --yes"); r.Code != 1 || !strings.Contains(r.Err, "nothing was changed") {
		t.Errorf("a day: %+v", r)
	}

	if r := del(n2, "--not-seen 1m"); r.Code == 0 {
		t.Errorf("without --yes: %+v", r)
	}

	if r := del(n2, "--not-seen 1m --yes"); r.Code != 0 || !strings.Contains(r.Out, "deleted: gone\n") {
		t.Errorf("%+v", r)
	}

	lab.Eventually(t, 30*time.Second, "n1 knows what n2 has deleted", func() error {
		if r := del(n1, "--not-seen 1m --never-seen --yes"); r.Code != 0 ||
			!strings.Contains(r.Out, "deleted: ghost\n") {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})

	if err := n3.Stop(time.Minute); err != nil {
		t.Error(err)
	}

	if r := del(n1, "--not-seen 1m --never-seen --yes"); r.Code != 1 ||
		!strings.Contains(r.Err, "nothing was changed") {
		t.Errorf("while n3 is away: %+v", r)
	}

	r := n1.Applianced(t, "audit", "--action", "key.delete", "--json")
	if !strings.Contains(r.Out, `"gone"`) || !strings.Contains(r.Out, `"ghost"`) || strings.Contains(r.Out, `"stays"`) {
		t.Errorf("the audit record: %+v", r)
	}
}
