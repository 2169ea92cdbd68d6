package layout

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestMake(t *testing.T) {
	root := t.TempDir()
	uid, gid := os.Getuid(), os.Getgid()
	tree := Cluster(uid, gid, "node2", "node1", "node2")
	for i := range tree.Dirs { // root's directories are ours in this test
		if tree.Dirs[i].UID == 0 {
			tree.Dirs[i].UID, tree.Dirs[i].GID = uid, gid
		}
	}

	// Stopped at every place: no marker until the end, and it can go on.
	for n := range tree.Dirs {
		part := tree
		part.Dirs = tree.Dirs[:n]
		r, err := os.OpenRoot(root)
		if err != nil {
			t.Fatal(err)
		}

		for _, d := range part.Dirs {
			if err := makeDir(r, d); err != nil {
				t.Fatal(err)
			}
		}

		r.Close()
		if i, err := Read(root); err != nil || i.Version != 0 {
			t.Fatalf("unfinished: %+v %v", i, err)
		}
	}

	if err := os.WriteFile(filepath.Join(root, "srv/salt/top.sls"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}

	if err := os.Chmod(filepath.Join(root, "pki"), 0o777); err != nil {
		t.Fatal(err)
	}

	for range 2 {
		if err := Make(root, tree); err != nil {
			t.Fatal(err)
		}
	}

	i, err := Read(root)
	if err != nil || i.Version != 1 || !slices.Equal(i.Nodes, []string{"node1", "node2"}) {
		t.Errorf("%+v %v", i, err)
	}

	for path, mode := range map[string]fs.FileMode{
		"pki":               0o700,
		"pki/minions":       0o700,
		"srv/pillar":        0o750,
		"srv/salt":          0o755,
		"nodes/node1/probe": 0o700,
		"cache/jobs/node2":  0o700,
	} {
		fi, err := os.Stat(filepath.Join(root, path))
		if err != nil || fi.Mode().Perm() != mode {
			t.Errorf("%s: %v %v", path, fi, err)
		}
	}

	if b, err := os.ReadFile(filepath.Join(root, "srv/salt/top.sls")); err != nil || string(b) != "x" {
		t.Errorf("a file that was there: %q %v", b, err)
	}

	// A third node.
	more := tree
	more.Nodes = append(slices.Clone(tree.Nodes), "node3")
	more.Dirs = append(slices.Clone(tree.Dirs), Dir{Path: "nodes/node3", Mode: 0o700, UID: -1, GID: -1})
	if err := Make(root, more); err != nil {
		t.Fatal(err)
	}

	if i, _ := Read(root); !slices.Contains(i.Nodes, "node3") {
		t.Errorf("%+v", i)
	}

	newer := tree
	newer.Version = 2
	if err := Make(root, newer); err != nil {
		t.Fatal(err)
	}

	if err := Make(root, tree); !errors.Is(err, errNewer) {
		t.Errorf("older: %v", err)
	}
}

func TestRefused(t *testing.T) {
	for _, path := range []string{"../x", "/x", "a/../../x", "a//b", "", "a/b", "x\x00y"} {
		root := t.TempDir()
		if err := Make(root, Tree{Version: 1, Dirs: []Dir{{Path: path, Mode: 0o755, UID: -1, GID: -1}}}); err == nil {
			t.Errorf("%q is accepted", path)
		}
		if left, _ := os.ReadDir(root); len(left) > 0 {
			t.Errorf("%q: made %v", path, left)
		}
	}

	root, outside := t.TempDir(), t.TempDir()
	if err := os.Symlink(outside, filepath.Join(root, "pki")); err != nil {
		t.Fatal(err)
	}

	if err := Make(root,
		Tree{
			Version: 1,
			Dirs: []Dir{
				{Path: "pki", Mode: 0o755, UID: -1, GID: -1},
				{Path: "pki/minions", Mode: 0o755, UID: -1, GID: -1},
			},
		}); err == nil {
		t.Error("a link is taken for a directory")
	}

	if left, _ := os.ReadDir(outside); len(left) > 0 {
		t.Errorf("outside: %v", left)
	}

	for _, content := range []string{"", "{", `{"version":0}`, "null"} {
		if err := os.WriteFile(filepath.Join(root, marker), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if i, err := Read(root); err == nil {
			t.Errorf("marker %q: %+v", content, i)
		}
	}

	if err := (Tree{}).Validate(); err == nil {
		t.Error("version 0 is accepted")
	}
}
