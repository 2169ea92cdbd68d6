//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/test/lab"
)

// TestThreeVersions: minions of three releases sign in through the load
// balancer, wait for acceptance, and answer.
func TestThreeVersions(t *testing.T) {
	t.Parallel()
	n := lab.StartNode(t, lab.NodeConfig{
		States: map[string]string{"hello.sls": "hello:\n  test.succeed_with_changes:\n    - name: {{ pillar['greeting'] }} {{ grains['id'] }}\n"},
		Pillar: map[string]string{
			"top.sls":   "base:\n  '*':\n    - greet\n",
			"greet.sls": "{% set who = grains['id'] %}\ngreeting: hello {{ who }}\n",
		},
	})

	var ids []string
	for _, v := range lab.Versions() {
		id := "m" + strings.ReplaceAll(v, ".", "-")
		ids = append(ids, id)
		lab.StartMinion(t, n, id, v, nil)
	}

	lab.Eventually(t, 90*time.Second, "three pending keys", func() error {
		got := n.Keys(t)["pending"]
		slices.Sort(got)
		if !slices.Equal(got, ids) {
			return fmt.Errorf("pending: %v", got)
		}
		return nil
	})

	if r := n.Key(t, "-y", "-a", ids[0]); r.Code != 0 {
		t.Fatalf("salt-key -a: %+v", r)
	}

	if r := n.Key(t, "-y", "-A"); r.Code != 0 {
		t.Fatalf("salt-key -A: %+v", r)
	}

	if got := n.Keys(t)["accepted"]; len(got) != 3 {
		t.Fatalf("accepted: %v", got)
	}

	n.Ping(t, 90*time.Second, ids...)

	m, err := n.JSON(t, "*", "state.apply", "hello")
	if err != nil {
		t.Fatal(err)
	}

	for _, id := range ids {
		text := fmt.Sprint(m[id])
		if !strings.Contains(text, "hello "+id+" "+id) || !strings.Contains(text, "result:true") {
			t.Errorf("state.apply on %s: %s", id, text)
		}
	}

	lab.Eventually(t, 10*time.Second, "status counts the minions", func() error {
		d, err := n.Status(t)
		if err != nil {
			return err
		}
		if d.Minions.Accepted != 3 || d.Minions.Connected == nil || *d.Minions.Connected != 3 {
			return fmt.Errorf("minions: %+v", d.Minions)
		}

		return nil
	})
}
