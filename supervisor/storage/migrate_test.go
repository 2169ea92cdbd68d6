package storage

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"saltern/supervisor/settings"
)

func testMove(t *testing.T) (spec moveSpec, src, dst string) {
	t.Helper()
	c, src, dst := testCopier(t)
	if err := os.MkdirAll(dst, 0o755); err != nil {
		t.Fatal(err)
	}
	c.spec.OnlyOwn, c.spec.Index, c.spec.Trees = true, filepath.Join(t.TempDir(), "moved.json"), movedTrees()
	for _, p := range []string{"pki/minions/a", "pki/minions_pre/b", "pki/cluster.pem", "pki/master.pem",
		"pki/node1.pub", "srv/salt/top.sls", "srv/pillar/p.sls", "etc/master.d/x.conf"} {
		put(t, filepath.Join(src, p), "content of "+p)
	}
	return moveSpec{c.spec, "node1", false, true}, src, dst
}

func anywhere(string) error { return nil }

func TestMove(t *testing.T) {
	spec, src, dst := testMove(t)
	if _, err := copyToVolume(spec, anywhere, func() {}); err != nil {
		t.Fatal(err)
	}

	// While it is copied the node goes on: keys come and go.
	put(t, filepath.Join(src, "pki/minions/c"), "content of pki/minions/c")
	if err := os.Rename(filepath.Join(src, "pki/minions_pre/b"), filepath.Join(src, "pki/minions/b")); err != nil {
		t.Fatal(err)
	}

	put(t, filepath.Join(dst, "pki/peers/node2.pub"), "made on the volume")
	spec.Verify = true
	if _, err := copyToVolume(spec, anywhere, func() {}); err != nil {
		t.Fatal(err)
	}

	for p, want := range map[string]string{
		"pki/minions/a":       "content of pki/minions/a",
		"pki/minions/b":       "content of pki/minions_pre/b",
		"pki/minions/c":       "content of pki/minions/c",
		"pki/cluster.pem":     "content of pki/cluster.pem",
		"pki/peers/node2.pub": "made on the volume",
		"etc/master.d/x.conf": "content of etc/master.d/x.conf",
	} {
		if got := content(filepath.Join(dst, p)); got != want {
			t.Errorf("%s: %q", p, got)
		}
	}

	for _, p := range []string{"pki/minions_pre/b", "pki/master.pem", "pki/node1.pub"} {
		if exists(filepath.Join(dst, p)) {
			t.Errorf("%s is on the volume", p)
		}
	}

	// The volume lost something between the copy and the look at it.
	put(t, filepath.Join(dst, "pki/minions/a"), "Content of pki/minions/a")
	c := newCopier(spec.mirrorSpec)
	if err := c.loadIndex(); err != nil {
		t.Fatal(err)
	}

	if err := c.verify(); err == nil || !strings.Contains(err.Error(), "pki/minions/a") {
		t.Errorf("a copy that differs: %v", err)
	}

	spec.Node = "node2"
	if _, err := copyToVolume(spec, anywhere, func() {}); err == nil || !strings.Contains(err.Error(), `"node1"`) {
		t.Errorf("another node's data on the volume: %v", err)
	}

	spec.Node = "node1"
	if _, err := copyToVolume(spec, requireVolume, func() {}); err == nil {
		t.Error("moved to a local directory")
	}
}

// A node's directory, and a brick, may hold more than is copied in an hour: their passes were ended
// after one, and begun anew for ever.
func TestMoveAndRecoveryTellThatTheyGetOn(t *testing.T) {
	const large = 8 << 20
	const parts = large / (32 << 10) // as io.Copy takes them
	count := func(pass func(step func()) error) (steps int) {
		t.Helper()
		if err := pass(func() { steps++ }); err != nil {
			t.Error(err)
		}
		return steps
	}

	spec, src, _ := testMove(t)
	spec.Verify = true
	put(t, filepath.Join(src, "srv/salt/large"), strings.Repeat("x", large))
	moved := func(step func()) error {
		_, err := copyToVolume(spec, anywhere, step)
		return err
	}

	recovered := recoverSpec{src, filepath.Join(t.TempDir(), "dest"), filepath.Join(t.TempDir(), "index")}
	taken := func(step func()) error {
		_, err := takeBrick(recovered, step)
		return err
	}

	for name, pass := range map[string]func(func()) error{"move": moved, "recovery": taken} {
		if steps := count(pass); steps < 2*parts { // written, and read again
			t.Errorf("%s: %d steps, at least %d are expected", name, steps, 2*parts)
		}
	}
}

// The parent of such a child waits for its answer as long as it tells that it gets on.
func TestMoveAndRecoveryByTheirChild(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	_, src, _ := testMove(t)
	s := settings.Default("node1")
	s.DataDir = t.TempDir()
	r := NewRecovery(&s, self, slog.New(slog.DiscardHandler))
	if err := r.Copy(t.Context(), src); err != nil || !r.Ready() {
		t.Errorf("recovery: %v", err)
	}

	m := &Migration{from: src, to: t.TempDir(), helper: []string{self, "storage", "helper"}, index: t.TempDir() + "/i"}
	if err := m.Copy(t.Context()); err == nil || !strings.Contains(err.Error(), "copy "+src+" to the volume: ") {
		t.Errorf("a move to a directory that is no volume: %v", err)
	}
}

// Which nodes have a move before them, and what its end leaves.
func TestPendingMigration(t *testing.T) {
	dir := t.TempDir()
	s := settings.Default("node1")
	s.DataDir = dir
	s.Storage.Kind = settings.VolumeStorage
	s.Storage.Path = "/srv/cluster"
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	pending := func() *Migration { return PendingMigration(&s, "/bin/false", log) }
	if pending() != nil {
		t.Error("a fresh node has a move before it")
	}

	put(t, filepath.Join(dir, "cluster/pki/node1.pem"), "own")
	put(t, filepath.Join(dir, "cluster/pki/cluster.pem"), "everybody's")
	if err := os.Symlink("node1.pem", filepath.Join(dir, "cluster/pki/master.pem")); err != nil {
		t.Fatal(err)
	}

	s.Peering.Enabled = true
	if pending() != nil {
		t.Error("a node that joins moves its own data onto the cluster's volume")
	}

	if err := AllowForm(&s); err != nil {
		t.Fatal(err)
	}

	m := pending()
	if m == nil {
		t.Fatal("no move")
	}

	if b := m.Before(&s); b.OnVolume() || b.StorageDir() != filepath.Join(dir, "cluster") || !s.OnVolume() {
		t.Errorf("before: %+v", b.Storage)
	}

	if err := m.Finish(context.Background()); err == nil || !exists(m.From()) {
		t.Errorf("the helper failed, and the move was made: %v", err)
	}

	if err := m.keepOwnKeys(); err != nil {
		t.Fatal(err)
	}

	if got := content(filepath.Join(dir, "pki/master.pem")); got != "own" {
		t.Errorf("own key: %q", got)
	}

	if exists(filepath.Join(dir, "pki/cluster.pem")) {
		t.Error("the cluster's key stays with the node")
	}
}
