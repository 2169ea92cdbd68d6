//go:build e2e && appliance

package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/supervisor/status"
	"saltern/supervisor/storage"
	"saltern/test/lab"
)

// sober is launch without options that are told as problems.
func (h *machines) sober(t *testing.T, i int, answers map[string]any) {
	t.Helper()
	answers["settings"] = map[string]any{"data_dir": "/data/saltern", "runtime_dir": "/run/saltern",
		"limits":  map[string]any{"disk_low_percent": 0.2, "disk_full_percent": 0.1},
		"storage": map[string]any{"kind": "volume", "bricks": "/data/brick", "tls": answers["mode"] == "form"},
		"master": map[string]any{"options": map[string]any{
			"gather_job_timeout":      30,
			"saltern_renderer_python": filepath.Join(lab.Venv(t, lab.Newest), "python3"),
		}}}
	h.launch(t, i, answers)
}

// joinArbiter takes a fresh machine into the cluster as its arbiter and gives what
// join printed.
func (h *machines) joinArbiter(t *testing.T, i, through int) lab.Result {
	t.Helper()
	line := must(t, h.verb(t, through, "", "join-string"))
	h.launch(t, i, nil)
	lab.Eventually(t, 60*time.Second, "applianced asks for answers", func() error {
		if r := h.verb(t, i, "", "status"); r.Code != status.ExitUnconfigured {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})
	return h.verb(t, i, line, "join", "--arbiter", "--node", fmt.Sprintf("node%d", i), "--address", h.addr(i))
}

// healthy waits until node i says that all is well.
func (h *machines) healthy(t *testing.T, i int) (text string) {
	t.Helper()
	lab.Eventually(t, 120*time.Second, fmt.Sprintf("node%d is healthy", i), func() error {
		r := h.verb(t, i, "", "status")
		text = r.Out
		if r.Code != status.ExitHealthy {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})
	return text
}

// bricks are the nodes with a copy, as node i sees them; the arbiter's has a mark.
func (h *machines) bricks(t *testing.T, i int) (out []string) {
	t.Helper()
	var s storage.State
	r := h.verb(t, i, "", "storage", "status", "--json")
	if err := json.Unmarshal([]byte(r.Out), &s); err != nil {
		t.Fatalf("%v: %+v", err, r)
	}

	for _, b := range s.Bricks {
		name := b.Node
		if b.Arbiter {
			name += " decides"
		}
		out = append(out, name)
	}

	return out
}

// accepts waits until node i takes the key of a minion.
func (h *machines) accepts(t *testing.T, i int, id string) {
	t.Helper()
	lab.Eventually(t, 120*time.Second, "the key of "+id, func() error {
		if r := h.verb(t, i, "", "keys", "accept", id); r.Code != 0 {
			return fmt.Errorf("%s", r.Err)
		}
		return nil
	})
}

// TestApplianceVolumeArbiter: two nodes and an arbiter go on when the node with the
// first copy is lost, for minions that are known and for new ones. It heals when it
// is back; the other one burns down and is replaced; a third node takes the place of
// the arbiter, which leaves.
func TestApplianceVolumeArbiter(t *testing.T) {
	h := newMachines(t, 5)
	h.sober(t, 1, map[string]any{"mode": "form", "secret": lab.ApplianceSecret})
	h.ready(t, 1, 1)
	h.sober(t, 2, map[string]any{"join": strings.TrimSpace(must(t, h.verb(t, 1, "", "join-string")))})
	h.ready(t, 2, 2)

	if out := must(t, h.joinArbiter(t, 3, 1)); !strings.Contains(out, "ready: this node is the cluster's arbiter") {
		t.Errorf("join --arbiter printed\n%s", out)
	}

	for i := 1; i <= 3; i++ {
		h.ready(t, i, 3)
		text := h.healthy(t, i)
		t.Logf("node%d:\n%s", i, text)
		if !strings.Contains(text, "arbiter  ready  -       -") {
			t.Errorf("node%d does not show the arbiter:\n%s", i, text)
		}
	}

	if got := h.bricks(t, 1); !slices.Equal(got, []string{"node1", "node2", "node3 decides"}) {
		t.Errorf("copies: %q", got)
	}

	for i, has := range map[int]bool{1: true, 2: true, 3: false} { // it is asked for each minute
		lab.Eventually(t, 90*time.Second,
			fmt.Sprintf("node%d has the key of the storage's authority: %v", i, has), func() error {
				if r := h.run(t, i, "", "test", "-e", "/data/saltern/storage/tls/authority.key"); (r.Code == 0) != has {
					return fmt.Errorf("%+v", r)
				}
				return nil
			})
	}

	h.plain(t)
	for _, args := range [][]string{{"minions"}, {"keys", "accept", "m3008"}, {"tokens"}} {
		if r := h.verb(t, 3, "", args...); r.Code == 0 ||
			!strings.Contains(r.Err, "runs no salt-master; do it on node1 or node2") {
			t.Errorf("%q on the arbiter: %+v", args, r)
		}
	}

	h.minion(t, "m3008", lab.Newest)
	h.accepts(t, 2, "m3008")
	h.answer(t, 1, "m3008")
	h.answer(t, 2, "m3008")
	must(t, h.run(t, 2, "hello:\n  test.succeed_without_changes\n", "tee", "/srv/cluster/srv/salt/hello.sls"))
	jid := h.job(t, 2, "m3008")

	t.Log("node1, with the first copy, loses power")
	h.off(1)
	h.must(t, "crash", "1")
	h.answer(t, 2, "m3008")
	h.minion(t, "m3006", lab.Versions()[0])
	h.accepts(t, 2, "m3006")
	h.answer(t, 2, "m3006", "m3008")
	h.states(t, 2, "m3006")
	t.Logf("node2 without node1:\n%s", h.verb(t, 2, "", "status").Out)

	t.Log("node1 is back")
	h.must(t, "boot", "1")
	h.launch(t, 1, nil)
	for i := 1; i <= 3; i++ {
		h.ready(t, i, 3)
		h.healthy(t, i)
	}

	h.answer(t, 1, "m3006", "m3008")
	h.answer(t, 2, "m3006", "m3008")
	h.kept(t, 1, jid)

	t.Log("node1 burns down and is replaced")
	h.lost(t, 1)
	lab.Eventually(t, 90*time.Second, "node1 is replaced", func() error {
		if r := h.verb(t, 2, "", "replace", "--yes", "node1"); r.Code != 0 {
			return fmt.Errorf("%s", r.Err)
		}
		return nil
	})

	h.answer(t, 2, "m3006", "m3008")
	h.must(t, "boot", "1")
	h.joinByHand(t, 1, 2, 3)
	if got := h.bricks(t, 2); !slices.Equal(got, []string{"node2", "node1", "node3 decides"}) {
		t.Errorf("copies: %q", got)
	}

	h.kept(t, 1, jid)

	t.Log("a third node with data makes the arbiter needless, and it leaves")
	h.joins(t, 4, 2)
	h.ready(t, 4, 4)
	h.ready(t, 2, 4)

	if got := h.bricks(t, 2); !slices.Equal(got, []string{"node2", "node1", "node4"}) {
		t.Errorf("copies: %q", got)
	}

	line := must(t, h.verb(t, 2, "", "join-string"))
	must(t, h.verb(t, 3, "", "leave", "--yes"))
	lab.Eventually(t, 60*time.Second, "what the arbiter knew is replaced", func() error {
		if now := must(t, h.verb(t, 2, "", "join-string")); now == line {
			return fmt.Errorf("the join string is as before")
		}
		return nil
	})

	h.off(3)
	h.ready(t, 2, 3)
	h.answer(t, 4, "m3006", "m3008")
}

// plain asks the arbiter, and others about it, for what makes no sense.
func (h *machines) plain(t *testing.T) {
	t.Helper()
	for _, tt := range []struct {
		on   int
		args []string
		says string
	}{
		{1, []string{"drain", "node3"}, "serves no minions"},
		{3, []string{"minions"}, "do it on node1 or node2"},
		{3, []string{"drain", "node1"}, "do it on node1 or node2"},
		{3, []string{"keys"}, "do it on node1 or node2"},
		{3, []string{"keys", "accept", "x"}, "do it on node1 or node2"},
		{3, []string{"virtual-address", "10.9.9.9"}, "do it on node1 or node2"},
		{3, []string{"secret", "rotate"}, "do it on node1 or node2"},
		{3, []string{"remove", "--yes", "node1"}, "do it on node1 or node2"},
		{3, []string{"restart", "master"}, "runs none"},
		{3, []string{"recover", "--new-cluster", "--yes"}, "still answers"},
	} {
		if r := h.verb(t, tt.on, "", tt.args...); r.Code == 0 || !strings.Contains(r.Err, tt.says) {
			t.Errorf("node%d, %q: %+v", tt.on, tt.args, r)
		}
	}

	if r := h.salt(t, 3, "salt", "*", "test.ping"); r.Code == 0 ||
		!strings.Contains(r.Err, "is the arbiter of cluster lab") {
		t.Errorf("salt on the arbiter: %+v", r)
	}

	if r := h.run(t, 3, "", "pgrep", "-f", "salt-master|applianced lb"); r.Code == 0 {
		t.Errorf("the arbiter runs %s", r.Out)
	}

	for _, q := range [][2]int{{1, 3}, {3, 1}} {
		must(t, h.verb(t, q[0], "", "ping", fmt.Sprintf("node%d", q[1])))
	}

	if out := must(t, h.verb(t, 1, "", "lb", "status")); strings.Contains(out, "node3") ||
		!strings.Contains(out, "node2") {
		t.Errorf("load balancer of node1:\n%s", out)
	}

	if r := h.verb(t, 2, "", "minions"); strings.Contains(r.Err, "could not be asked") {
		t.Errorf("minions: %s", r.Err)
	}

	phrase := filepath.Join(h.dir, "phrase")
	must(t, h.run(t, 3, "correct horse battery\n", "tee", phrase))
	archive := filepath.Join(h.dir, "arbiter.age")
	must(t, h.verb(t, 3, "", "backup", "-o", archive, "--passphrase-file", phrase))
	must(t, h.verb(t, 2, "", "restore", "--check", archive, "--passphrase-file", phrase))
	must(t, h.verb(t, 3, "", "support", "-o", filepath.Join(h.dir, "arbiter.tar.gz")))
	must(t, h.verb(t, 1, "", "secret", "rotate")) // the arbiter takes part
	r := h.joinArbiter(t, 4, 2)                   // the cluster has one
	if r.Code == 0 || !strings.Contains(r.Out, "has an arbiter already, node node3") {
		t.Errorf("a second arbiter: %+v", r)
	}

	must(t, h.verb(t, 4, "", "setup", "back"))
	h.off(4)
}
