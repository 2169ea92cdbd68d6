package member

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/supervisor/api"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
	"saltern/supervisor/storage"
	"saltern/test/smalldisk"
)

// asked is a master that writes down what it is asked for.
type asked struct{ calls []string }

func (a *asked) StageSecret(context.Context) error          { return a.note("stage") }
func (a *asked) CommitSecret(context.Context, string) error { return a.note("commit") }
func (a *asked) note(s string) error                        { a.calls = append(a.calls, s); return nil }

// withArbiter is node self of a cluster of n1, n2 and the arbiter n3.
func withArbiter(t *testing.T, self string) (*Member, *recordMaster) {
	t.Helper()
	dir := t.TempDir()
	cfg := settings.Default(self)
	cfg.DataDir, cfg.RuntimeDir = filepath.Join(dir, "data"), filepath.Join(dir, "run")
	cfg.Storage.Kind = settings.VolumeStorage
	cfg.Storage.Path = filepath.Join(dir, "shared")
	cfg.Storage.Bricks = filepath.Join(dir, "bricks")
	cfg.Peering.Enabled = true
	cfg.Arbiter = self == "n3"
	cfg.LB.Enabled = self != "n3"

	for _, d := range []string{cfg.NodeDir(), cfg.SharedPKIDir(), cfg.SharedNodesDir(), cfg.Storage.Bricks} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}

	id, err := nodeapi.LoadIdentity(cfg.NodeDir())
	if err != nil {
		t.Fatal(err)
	}

	table := nodes.Table{Version: 1, Cluster: "c", KeyHash: fmt.Sprintf("%064d", 0)}
	for i, role := range []string{"data", "data", nodes.ArbiterStorage} {
		n := nodes.Node{
			Name:        fmt.Sprintf("n%d", i+1),
			Address:     fmt.Sprintf("127.0.74.%d", i+1),
			State:       nodes.Member,
			Certificate: fmt.Sprintf("%064d", i+1),
			Storage:     role,
			Brick:       filepath.Join(cfg.Storage.Bricks, "cluster-1"),
		}
		if n.Name == self {
			n.Certificate = id.Hash
		}

		table.Nodes = append(table.Nodes, n)
	}

	b, err := json.Marshal(table)
	if err == nil {
		err = os.WriteFile(filepath.Join(cfg.DataDir, nodes.File), b, 0o600)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(cfg.SharedNodesDir(), nodes.File), b, 0o600)
	}

	if err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(cfg.ClusterRecord(),
		[]byte(`{"version": 1, "members": [{"id": "127.0.74.1", "own": true}, {"id": "127.0.74.2", "own": true}]}`),
		0o600); err != nil {
		t.Fatal(err)
	}

	master := &recordMaster{path: cfg.ClusterRecord()}
	m := newMember(t, Env{Settings: &cfg, Log: slog.New(slog.DiscardHandler), Now: time.Now}, master)

	t.Cleanup(m.peers.close)
	return m, master
}

func find(m *Member, name string) (nodes.Node, bool) {
	t := m.keeper.Table()
	return t.Find(name)
}

// TestArbiterServesNobody: it is among no masters, does not make their record, is
// asked for no minions, and cannot be drained.
func TestArbiterServesNobody(t *testing.T) {
	m, _ := withArbiter(t, "n1")
	if l := m.Settings().Members; len(l) != 2 || l[0].Name != "n1" || l[1].Name != "n2" {
		t.Errorf("masters: %+v", l)
	}

	err := Verbs{m}.Drain(t.Context(), "n3", false)
	if !errors.Is(err, api.ErrState) || !strings.Contains(err.Error(), "n3 is the cluster's arbiter") {
		t.Errorf("drain: %v", err)
	}

	all := map[string]nodeapi.Summary{"n2": {}, "n3": {}}
	for name := range all {
		n, _ := find(m, name)
		m.peers.views[name] = &peerView{client: m.peers.clientFor(n)}
	}

	if got := m.Peers(); len(got) != 1 || got["n2"] == nil {
		t.Errorf("asked for minions: %v", got)
	}

	if checks, _ := (Verbs{m}).Ping(t.Context(), "n3"); len(checks) > 0 {
		for _, c := range checks {
			if strings.Contains(c.What, fmt.Sprint(m.env.Settings.Peering.PoolPort)) {
				t.Errorf("ping of an arbiter: %+v", c)
			}
		}
	}

	arbiter, _ := withArbiter(t, "n3")
	if arbiter.shared.isFounder() {
		t.Error("an arbiter makes the masters' record")
	}

	if first, _ := withArbiter(t, "n1"); !first.shared.isFounder() {
		t.Error("nobody makes the masters' record")
	}
}

// TestArbiterIsRemoved: what it knew is replaced, since no master is taken out with
// it; a node with a master is taken out of the record. Both are named.
func TestArbiterIsRemoved(t *testing.T) {
	m, master := withArbiter(t, "n1")
	for _, name := range []string{"n3", "n2"} {
		if err := (Verbs{m}).Remove(t.Context(), name, false); err != nil {
			t.Fatal(err)
		}
		if n, _ := find(m, name); n.State != nodes.Removed {
			t.Errorf("%s is %s", name, n.State)
		}
	}
	if got := strings.Join(master.calls, ", "); got != "remove 127.0.74.3 3 none, remove 127.0.74.2 2" {
		t.Errorf("asked for: %s", got)
	}
}

// TestArbiterRefuses: what needs a master is refused on an arbiter, with the names
// of the nodes that have one, and nothing is asked of a master that is not there.
func TestArbiterRefuses(t *testing.T) {
	m, master := withArbiter(t, "n3")
	_, rotate := Verbs{m}.RotateSecret(t.Context(), false)
	_, minions := host{m}.Minions(t.Context(), false)
	for what, err := range map[string]error{
		"remove":  Verbs{m}.Remove(t.Context(), "n1", true),
		"drop":    m.Drop(t.Context(), "n1"),
		"rotate":  rotate,
		"minions": minions,
	} {
		if !errors.Is(err, api.ErrState) || !strings.Contains(err.Error(), "do it on n1 or n2") {
			t.Errorf("%s: %v", what, err)
		}
	}

	if n, _ := find(m, "n1"); n.State != nodes.Member || len(master.calls) > 0 {
		t.Errorf("%+v %v", n, master.calls)
	}
}

// TestArbiterIsAdmitted once, and by a cluster with a volume.
func TestArbiterIsAdmitted(t *testing.T) {
	m, _ := withArbiter(t, "n1")
	next := nodes.Node{
		Name:        "n4",
		Address:     "127.0.74.4",
		State:       nodes.Joining,
		Certificate: fmt.Sprintf("%064d", 4),
		Storage:     nodes.ArbiterStorage,
	}

	if _, err := (host{m}).Admit(t.Context(), next); !errors.Is(err, nodeapi.ErrRole) ||
		!strings.Contains(err.Error(), "node n3") {
		t.Errorf("a second one: %v", err)
	}

	if !(host{m}).Storage().Arbiters {
		t.Error("it does not say that it knows arbiters")
	}

	m.env.Settings.Storage.Kind = settings.DirectoryStorage
	if _, err := (host{m}).Admit(t.Context(), next); !errors.Is(err, nodeapi.ErrRole) ||
		!strings.Contains(err.Error(), "no shared volume") {
		t.Errorf("without a volume: %v", err)
	}
}

// TestArbiterLines: it is well while it is ready, and its own code says when not.
func TestArbiterLines(t *testing.T) {
	m, _ := withArbiter(t, "n1")
	n, _ := find(m, "n3")
	for state, want := range map[string]int{"ready": 0, "starting": 1, "not serving": 1} {
		v := &peerView{seen: now, summary: nodeapi.Summary{Node: status.Node{State: state, Master: "-", Proxy: "-"}}}
		l, found := m.peers.statusLine(n, v)
		if len(found) != want || want > 0 && found[0].Code != status.ArbiterUnwell || l.Master != "-" ||
			l.Role != status.RoleArbiter {
			t.Errorf("%s: %+v %+v", state, l, found)
		}
	}
}

// TestLeftover: an arbiter whose brick the volume needs no more has another
// directory in the table, and the old one is gone.
func TestLeftover(t *testing.T) {
	m, _ := withArbiter(t, "n3")
	volume := storage.New(storage.Config{
		Self:   "n3",
		Volume: "cluster",
		Bricks: m.env.Settings.Storage.Bricks,
		Dir:    t.TempDir(),
		Mount:  t.TempDir(),
	})

	m.oldBrick = &oldBrick{env: m.env, peers: m.peers, volume: volume}
	smalldisk.MountOn(t, m.env.Settings.Storage.Bricks, "size=1m") // no brick is on the root file system
	self, _ := find(m, "n3")
	if err := os.MkdirAll(filepath.Join(self.Brick, ".glusterfs"), 0o700); err != nil {
		t.Fatal(err)
	}

	m.oldBrick.reconcile(t.Context())
	if !m.oldBrick.since.IsZero() {
		t.Error("believed without a look at the volume")
	}

	if err := m.oldBrick.replaceBrick(t.Context(), self); err != nil {
		t.Fatal(err)
	}

	now, _ := find(m, "n3")
	if filepath.Base(now.Brick) != "cluster-2" || pathExists(self.Brick) {
		t.Errorf("%s, and the old one is there: %v", now.Brick, pathExists(self.Brick))
	}

	if err := m.oldBrick.replaceBrick(t.Context(), self); err == nil {
		t.Error("a table that names another directory was changed")
	}
}

// TestAsArbiter: the table of nodes decides whether a node is the arbiter, not its own settings.
func TestAsArbiter(t *testing.T) {
	for _, self := range []string{"n1", "n3"} {
		t.Run(self, func(t *testing.T) {
			m, _ := withArbiter(t, self)
			before := *m.env.Settings
			before.Arbiter = false
			before.LB.Enabled = true

			after, err := AsArbiter(&before)
			if err != nil {
				t.Fatal(err)
			}
			if want := self == "n3"; after.Arbiter != want || after.LB.Enabled == want {
				t.Errorf("arbiter %t, load balancer %t", after.Arbiter, after.LB.Enabled)
			}
			if before.Arbiter || !before.LB.Enabled {
				t.Error("the settings given were changed")
			}

			alone := before
			alone.Peering.Enabled = false
			if after, err := AsArbiter(&alone); err != nil || after != &alone {
				t.Errorf("a node that is alone: %+v %v", after, err)
			}
		})
	}
}
