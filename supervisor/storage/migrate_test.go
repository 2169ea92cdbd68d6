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
	if _, err := copyToVolume(spec, anywhere); err != nil {
		t.Fatal(err)
	}

	// While it is copied the node goes on: keys come and go.
	put(t, filepath.Join(src, "pki/minions/c"), "content of pki/minions/c")
	if err := os.Rename(filepath.Join(src, "pki/minions_pre/b"), filepath.Join(src, "pki/minions/b")); err != nil {
		t.Fatal(err)
	}

	put(t, filepath.Join(dst, "pki/peers/node2.pub"), "made on the volume")
	spec.Verify = true
	if _, err := copyToVolume(spec, anywhere); err != nil {
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
	if _, err := copyToVolume(spec, anywhere); err == nil || !strings.Contains(err.Error(), `"node1"`) {
		t.Errorf("another node's data on the volume: %v", err)
	}

	spec.Node = "node1"
	if _, err := copyToVolume(spec, requireVolume); err == nil {
		t.Error("moved to a local directory")
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
