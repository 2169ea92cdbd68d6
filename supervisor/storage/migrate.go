package storage

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"saltern/internal/durable"
	"saltern/supervisor/settings"
)

// Migration moves a node that stored keys, files and pillars in its own directory onto the shared
// volume. While the node serves from the directory, Copy copies everything, in several passes,
// until little changes. Then, with the master stopped, Finish copies the rest, compares everything
// and renames the directory. If the node dies before the renaming, it still serves from the
// directory and begins the move again. If it dies after the renaming, it serves from the volume.
// The directory keeps its content under the new name.
type Migration struct {
	from, to string
	pki      string // directory of this node's own keys
	helper   []string
	index    string
	self     string
	own      bool // whether the master's own keys stay on this node
	log      *slog.Logger
}

// movedTrees returns the parts of the directory that go to the volume.
func movedTrees() []string { return append(mirroredTrees(), "pki", "cache/jobs") }

// ownKey reports whether a file of pki is one of the master's own keys. In a cluster these keys
// stay with their node.
func ownKey(name string) bool {
	ext := filepath.Ext(name)
	return (ext == ".pem" || ext == ".pub") && strings.TrimSuffix(name, ext) != "cluster"
}

// movedSuffix is added to the name of the directory after the move.
const movedSuffix = ".before-volume"

// localDir returns where a node without a volume keeps the files that clusters share.
func localDir(s *settings.Settings) string { return filepath.Join(s.DataDir, "cluster") }

// PendingMigration returns the move that this node still has to make. It returns nil if the node
// does not use a volume, has no directory from before the volume, or did not form the cluster: the
// directory of a joining node does not hold the cluster's data.
func PendingMigration(s *settings.Settings, executable string, log *slog.Logger) *Migration {
	from := localDir(s)
	dir := filepath.Join(s.DataDir, "storage")
	if !s.OnVolume() || s.Storage.Path == from || !exists(filepath.Join(from, "pki")) ||
		!exists(filepath.Join(dir, formMark)) {
		return nil
	}

	return &Migration{
		from:   from,
		to:     s.Storage.Path,
		pki:    s.PKIDir(),
		helper: []string{executable, "storage", "helper"},
		index:  filepath.Join(dir, "moved.json"),
		self:   s.Node,
		own:    s.PKIDir() != s.SharedPKIDir(),
		log:    log,
	}
}

// Before returns the node's settings from before the move. The node serves with them during the
// copy.
func (m *Migration) Before(s *settings.Settings) *settings.Settings {
	b := *s
	b.Storage.Kind, b.Storage.Path = settings.LocalStorage, m.from
	return &b
}

// From returns the directory that is moved.
func (m *Migration) From() string { return m.from }

// quietChanges is the number of changed files at which Copy ends. Finish copies the remaining
// changes.
const quietChanges = 20

// Copy copies while the node serves, until a pass changes little or ctx ends.
func (m *Migration) Copy(ctx context.Context) error {
	for range 10 { // at most ten passes: Finish copies what changes after them
		r, err := m.runPass(ctx, false)
		if err != nil {
			return err
		}
		m.log.Info("directory copied to the volume", "path", m.from, "copied", r.Copied, "bytes", r.Bytes,
			"removed", r.Removed)
		if r.Copied+r.Removed+r.Changing <= quietChanges {
			return nil
		}
	}
	return nil
}

// Finish completes the move. The master must not run.
func (m *Migration) Finish(ctx context.Context) error {
	r, err := m.runPass(ctx, true)
	if err != nil {
		return err
	}
	if r.Changing > 0 {
		return fmt.Errorf("move %s to the volume: %d files change although the master is stopped", m.from, r.Changing)
	}

	if m.own {
		if err := m.keepOwnKeys(); err != nil {
			return fmt.Errorf("move %s to the volume: %w", m.from, err)
		}
	}

	to := m.from + movedSuffix
	for n := 2; exists(to); n++ {
		to = fmt.Sprintf("%s%s-%d", m.from, movedSuffix, n)
	}

	if err := os.Rename(m.from, to); err != nil {
		return fmt.Errorf("move %s to the volume: %w", m.from, err)
	}

	if err := durable.SyncDir(filepath.Dir(to)); err != nil {
		return fmt.Errorf("move %s to the volume: %w", m.from, err)
	}

	m.log.Info("the node's directory is on the volume now; the old one is kept", "path", to, "last", r.Copied)
	return nil
}

// keepOwnKeys copies the master's own keys to where a node with a volume keeps them.
func (m *Migration) keepOwnKeys() error {
	if err := os.MkdirAll(m.pki, 0o700); err != nil {
		return err
	}

	if fi, err := os.Stat(filepath.Join(m.from, "pki")); err == nil {
		if err := takeOwner(m.pki, fi); err != nil {
			return err
		}
	}

	entries, err := os.ReadDir(filepath.Join(m.from, "pki"))
	if err != nil {
		return err
	}

	for _, e := range entries {
		src, dst := filepath.Join(m.from, "pki", e.Name()), filepath.Join(m.pki, e.Name())
		if !ownKey(e.Name()) || exists(dst) {
			continue
		}

		if e.Type()&fs.ModeSymlink != 0 { // master.pem may be a link to another of the keys
			to, err := os.Readlink(src)
			if err == nil {
				err = os.Symlink(filepath.Base(to), dst)
			}

			if err != nil {
				return err
			}

			continue
		}

		if err := copyKey(src, dst); err != nil {
			return err
		}
	}

	return nil
}

// takeOwner sets the owner and mode of a folder to those of like.
func takeOwner(dir string, like fs.FileInfo) error {
	if uid, gid, ok := fileOwner(like); ok && os.Geteuid() == 0 {
		if err := os.Lchown(dir, uid, gid); err != nil {
			return err
		}
	}
	return os.Chmod(dir, like.Mode().Perm())
}

func copyKey(src, dst string) error {
	fi, err := os.Lstat(src)
	if err != nil || !fi.Mode().IsRegular() {
		return err
	}

	key, err := durable.Read(src, 1<<20)
	if err != nil {
		return err
	}

	// The folder may belong to the master's account: the new file has a random name, and gets its
	// owner while it is open.
	return durable.ReplaceWith(dst, func(f *os.File) error {
		err := durable.Fill(f, key, fi.Mode().Perm())
		if uid, gid, ok := fileOwner(fi); ok && err == nil && os.Geteuid() == 0 {
			err = f.Chown(uid, gid)
		}
		return err
	})
}

// moveSpec is the argument of the child that copies.
type moveSpec struct {
	mirrorSpec
	Node   string `json:"node"`
	Verify bool   `json:"verify"`
	Own    bool   `json:"own"` // whether to leave out the master's own keys
}

func (m *Migration) runPass(ctx context.Context, verify bool) (r mirrorReport, err error) {
	spec := moveSpec{mirrorSpec{
		Source:  m.from,
		Dest:    m.to,
		Trees:   movedTrees(),
		Index:   m.index,
		OnlyOwn: true,
		Any:     true,
	}, m.self, verify, m.own}

	text, err := json.Marshal(spec)
	if err != nil {
		return r, err
	}

	if err := askOnce(ctx, append(slices.Clone(m.helper), "copy", string(text)), &r); err != nil {
		return r, fmt.Errorf("copy %s to the volume: %w", m.from, err)
	}

	return r, nil
}

// contentFile is the file on the volume that names the node whose data the volume holds.
const contentFile = ".content.json"

type contentMark struct {
	Node string `json:"node"`
}

// copyChild is the main function of the child that copies to the volume. It makes a pass when its
// parent requests one, and returns the exit status.
func copyChild(args []string, in io.Reader, out, errOut io.Writer) int {
	var spec moveSpec
	if len(args) != 1 || json.Unmarshal([]byte(args[0]), &spec) != nil {
		fmt.Fprintln(errOut, "copy: a specification is needed")
		return 2
	}

	return serveLines(in, out, func([]byte) (any, error) {
		return copyToVolume(spec, requireVolume, tellSteps(out))
	})
}

// copyToVolume makes one pass. It calls step after each part of the work.
func copyToVolume(spec moveSpec, target func(string) error, step func()) (r mirrorReport, err error) {
	if err := target(spec.Dest); err != nil {
		return r, err
	}

	if err := claimVolume(filepath.Join(spec.Dest, contentFile), spec.Node); err != nil {
		return r, err
	}

	c := newCopier(spec.mirrorSpec)
	c.step = step

	if spec.Own { // the other nodes must not get the master's own keys
		c.skip = func(p string) bool {
			dir, name := filepath.Split(p)
			return dir == "pki/" && ownKey(name)
		}
	}

	trees := spec.Trees
	c.spec.Trees = slices.DeleteFunc(slices.Clone(trees),
		func(t string) bool { return !exists(filepath.Join(spec.Source, t)) })
	r, err = c.runPass()
	if err != nil || !spec.Verify {
		return r, err
	}

	return r, c.verify()
}

// claimVolume records that the volume holds the data of node. If the volume holds the data of
// another node, it returns an error. If two nodes claim the volume at once, one gets an error.
func claimVolume(path, node string) error {
	err := checkClaim(path, node)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}

	b, err := json.Marshal(contentMark{node})
	if err != nil {
		return err
	}

	own := path + "." + rand.Text()
	defer os.Remove(own)
	if err := durable.Replace(own, b, 0o600); err != nil {
		return err
	}

	if err := os.Link(own, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}

	if err := durable.SyncDir(filepath.Dir(path)); err != nil {
		return err
	}

	return checkClaim(path, node)
}

// checkClaim returns nil if node has claimed the volume, and fs.ErrNotExist if no node has.
func checkClaim(path, node string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var have contentMark
	if json.Unmarshal(b, &have) != nil || have.Node != node {
		return fmt.Errorf("the volume holds the data of node %q already; "+
			"this node's directory is not mixed with it: move it away by hand",
			have.Node)
	}
	return nil
}
