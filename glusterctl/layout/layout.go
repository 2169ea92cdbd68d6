// Package layout creates the first directories on a shared volume.
//
// If two nodes create the same directory at the same moment, a GlusterFS volume may get entries
// that never heal. So no two nodes may create the same directory. The forming node creates the tree
// once and finally writes the tree's version into a file. All other nodes read that version and
// create nothing. The directories of single nodes are created by the one node that changes the pool
// at that time.
package layout

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"saltern/internal/durable"
)

// marker is the file that says that the tree is complete, and which version it has.
const marker = ".layout.json"

// Dir is one directory.
type Dir struct {
	Path string      `json:"path"` // relative, clean; "." is the root of the volume
	Mode fs.FileMode `json:"mode"`
	UID  int         `json:"uid"` //  -1: do not change the owner
	GID  int         `json:"gid"`
}

// Tree is the set of directories of the volume.
type Tree struct {
	Version int   `json:"version"` // version of the tree, at least 1
	Dirs    []Dir `json:"dirs"`    // parents first
	// Nodes are the nodes that have private directories among Dirs.
	Nodes []string `json:"nodes,omitempty"`
}

// errNewer is wrapped by the error for a volume whose tree has a later version than this program
// supports.
var errNewer = errors.New("the volume was made by a newer version")

// Info is the content of the marker.
type Info struct {
	Version int      `json:"version"` // 0: the tree was never completed
	Nodes   []string `json:"nodes,omitempty"`
}

// maxMarker bounds the marker in bytes, far above the size of all names of a pool.
const maxMarker = 64 << 10

// Read reads the marker at root. A new volume has no marker.
func Read(root string) (Info, error) {
	b, _, err := durable.ReadFile(filepath.Join(root, marker), maxMarker, durable.Follow)
	if errors.Is(err, fs.ErrNotExist) {
		return Info{}, nil
	}
	if err != nil {
		return Info{}, fmt.Errorf("read the version of the tree: %w", err)
	}
	var m Info
	if err := json.Unmarshal(b, &m); err != nil || m.Version < 1 {
		return Info{}, fmt.Errorf("read the version of the tree: %s is damaged", marker)
	}
	return m, nil
}

// Validate returns an error if a directory of the tree is outside of its root, or precedes its
// parent.
func (t Tree) Validate() error {
	if t.Version < 1 {
		return fmt.Errorf("version %d of the tree: from 1", t.Version)
	}
	if len(t.Dirs) > 4096 {
		return fmt.Errorf("%d directories", len(t.Dirs))
	}

	seen := map[string]bool{".": true}
	for _, d := range t.Dirs {
		if !filepath.IsLocal(d.Path) || filepath.Clean(d.Path) != d.Path || strings.ContainsRune(d.Path, 0) {
			return fmt.Errorf("directory %q of the tree", d.Path)
		}
		if !seen[filepath.Dir(d.Path)] {
			return fmt.Errorf("directory %q of the tree comes before its parent", d.Path)
		}
		seen[d.Path] = true
	}

	return nil
}

// Make creates the tree at root, or its missing parts. Only one node may call it. After an
// interruption it may be called again: existing files keep their content, but Make sets their mode
// and owner. It writes the marker last.
func Make(root string, t Tree) error {
	if err := t.Validate(); err != nil {
		return err
	}

	have, err := Read(root)
	if err != nil {
		return err
	}
	if have.Version > t.Version {
		return fmt.Errorf("make the tree: version %d, ours is %d: %w", have.Version, t.Version, errNewer)
	}

	r, err := os.OpenRoot(root)
	if err != nil {
		return fmt.Errorf("make the tree: %w", err)
	}
	defer r.Close()

	for _, d := range t.Dirs {
		if err := makeDir(r, d); err != nil {
			return fmt.Errorf("make the tree: %w", err)
		}
	}

	now := Info{Version: t.Version, Nodes: slices.Sorted(slices.Values(t.Nodes))}
	if have.Version == now.Version && slices.Equal(have.Nodes, now.Nodes) {
		return nil
	}

	b, err := json.Marshal(now)
	if err != nil {
		return err
	}

	if err := writeMarker(r, append(b, '\n')); err != nil {
		return fmt.Errorf("make the tree: %w", err)
	}

	return nil
}

func makeDir(r *os.Root, d Dir) error {
	if d.Path != "." {
		if err := r.Mkdir(d.Path, d.Mode.Perm()); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}

	fi, err := r.Lstat(d.Path)
	if err != nil {
		return err
	}
	if !fi.IsDir() {
		return fmt.Errorf("%s is not a directory", d.Path)
	}

	if d.UID >= 0 || d.GID >= 0 {
		if err := r.Lchown(d.Path, d.UID, d.GID); err != nil {
			return err
		}
	}

	return r.Chmod(d.Path, d.Mode.Perm()) // set the mode after the owner, because chown clears bits of the mode
}

func writeMarker(r *os.Root, content []byte) error {
	const tmp = marker + ".new"
	f, err := r.OpenFile(tmp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}

	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}

	err = cmp.Or(err, f.Close())
	if err == nil {
		err = r.Rename(tmp, marker)
	}

	return err
}

// Cluster returns the tree of a cluster's shared volume: keys, files, pillars, configuration, and
// other files that all nodes must see. uid and gid are those of the master process. The tree
// contains a directory for each node, to which only that node writes.
func Cluster(uid, gid int, nodes ...string) Tree {
	t := Tree{Version: 1}
	add := func(mode fs.FileMode, u, g int, paths ...string) {
		for _, p := range paths {
			t.Dirs = append(t.Dirs, Dir{Path: p, Mode: mode, UID: u, GID: g})
		}
	}

	add(0o755, 0, 0, ".", "etc", "etc/master.d", "etc/python", "srv", "srv/salt")
	add(0o750, uid, gid, "srv/pillar")
	add(0o700, uid, gid,
		"pki", "pki/minions", "pki/minions_pre", "pki/minions_rejected", "pki/minions_denied", "pki/minions_autosign", "etc/gpgkeys",
		"pki/peers", "pki/sessions", "pki/jobs", "cache", "cache/jobs", "cache/mine", "cache/grains", "cache/tokens")
	add(0o755, 0, 0, "nodes")
	t.Nodes = slices.Compact(slices.Sorted(slices.Values(nodes)))
	for _, n := range t.Nodes {
		add(0o700, uid, gid, filepath.Join("nodes", n), filepath.Join("cache/jobs", n))
		add(0o700, 0, 0, filepath.Join("nodes", n, "probe"))
	}

	return t
}
