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
	"time"

	"saltern/internal/command"
	"saltern/internal/durable"
	"saltern/supervisor/settings"
)

// Migration moves a node that kept keys, files and pillars in a directory of
// its own onto the shared volume. While the node serves from the directory
// everything is copied, again and again until little changes; then its master
// is stopped, the rest is copied and compared, and the directory gets another
// name. That renaming is the one moment at which the move has happened: killed
// before it, the node serves from the directory again and starts over; after
// it, from the volume. The directory stays as it was, under its new name.
type Migration struct {
	from, to string
	pki      string // for what this node alone keeps
	helper   []string
	index    string
	self     string
	own      bool // the master's own keys stay here
	log      *slog.Logger
}

// moved are the parts of the directory that go to the volume.
func moved() []string { return append(mirrored(), "pki", "cache/jobs") }

// ownKey reports whether a file of pki is a key of the master itself; in a
// cluster it stays with its node.
func ownKey(name string) bool {
	ext := filepath.Ext(name)
	return (ext == ".pem" || ext == ".pub") && strings.TrimSuffix(name, ext) != "cluster"
}

// aside is what the directory is called afterwards.
const aside = ".before-volume"

// localDir is where a node without a volume keeps what is shared.
func localDir(s *settings.Settings) string { return filepath.Join(s.DataDir, "cluster") }

// PendingMigration gives the move that this node has before it; nil when there
// is none: it does not use a volume, has no directory from before, or did not
// form the cluster (what is in the directory of a node that joins is not the
// cluster's).
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

// Before gives the settings of the node as it was, for the time of the move.
func (m *Migration) Before(s *settings.Settings) *settings.Settings {
	b := *s
	b.Storage.Kind, b.Storage.Path = settings.LocalStorage, m.from
	return &b
}

// From is the directory that is moved.
func (m *Migration) From() string { return m.from }

// quiet is how few changed files in one pass are left to the last one.
const quiet = 20

// copyLimit is for one pass.
const copyLimit = time.Hour

// Copy copies while the node serves, until a pass changes little or ctx ends.
func (m *Migration) Copy(ctx context.Context) error {
	for range 10 { // a directory that changes for ever ends in a longer stop
		r, err := m.pass(ctx, false)
		if err != nil {
			return err
		}
		m.log.Info("directory copied to the volume", "path", m.from, "copied", r.Copied, "bytes", r.Bytes,
			"removed", r.Removed)
		if r.Copied+r.Removed+r.Changing <= quiet {
			return nil
		}
	}
	return nil
}

// Finish makes the move. The master must not run.
func (m *Migration) Finish(ctx context.Context) error {
	r, err := m.pass(ctx, true)
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

	to := m.from + aside
	for n := 2; exists(to); n++ {
		to = fmt.Sprintf("%s%s-%d", m.from, aside, n)
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

// keepOwnKeys copies the master's own keys to where a node with a volume keeps
// them.
func (m *Migration) keepOwnKeys() error {
	if err := os.MkdirAll(m.pki, 0o700); err != nil {
		return err
	}

	if fi, err := os.Stat(filepath.Join(m.from, "pki")); err == nil {
		if err := ownerOf(m.pki, fi); err != nil {
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

		if e.Type()&fs.ModeSymlink != 0 { // master.pem stands for another of them
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

// ownerOf gives a folder the owner and mode of like.
func ownerOf(dir string, like fs.FileInfo) error {
	if uid, gid, ok := owner(like); ok && os.Geteuid() == 0 {
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

	// The folder may belong to the master's account: the file is made anew under
	// a name that nobody knows before, and gets its owner while it is open.
	return durable.ReplaceWith(dst, func(f *os.File) error {
		err := durable.Fill(f, key, fi.Mode().Perm())
		if uid, gid, ok := owner(fi); ok && err == nil && os.Geteuid() == 0 {
			err = f.Chown(uid, gid)
		}
		return err
	})
}

// moveSpec is the argument of the child.
type moveSpec struct {
	mirrorSpec
	Node   string `json:"node"`
	Verify bool   `json:"verify"`
	Own    bool   `json:"own"` // leave out the master's own keys
}

func (m *Migration) pass(ctx context.Context, verify bool) (r mirrorReport, err error) {
	spec := moveSpec{mirrorSpec{
		Source:  m.from,
		Dest:    m.to,
		Trees:   moved(),
		Index:   m.index,
		OnlyOwn: true,
		Any:     true,
	}, m.self, verify, m.own}

	text, err := json.Marshal(spec)
	if err != nil {
		return r, err
	}

	ctx, cancel := context.WithTimeout(ctx, copyLimit)
	defer cancel()
	out, err := command.Do(ctx, command.Exec{}, append(slices.Clone(m.helper), "copy", string(text))...)
	if err == nil {
		err = json.Unmarshal(out, &r)
	}

	if err != nil {
		return r, fmt.Errorf("copy %s to the volume: %w", m.from, err)
	}

	return r, nil
}

// contentFile says whose data a volume holds.
const contentFile = ".content.json"

type contentMark struct {
	Node string `json:"node"`
}

// copyMain is the child's side: it copies to the volume, once.
func copyMain(args []string, out, errOut io.Writer) int {
	var spec moveSpec
	if len(args) != 1 || json.Unmarshal([]byte(args[0]), &spec) != nil {
		fmt.Fprintln(errOut, "copy: a specification is needed")
		return 2
	}

	r, err := move(spec, onVolume)
	if err == nil {
		err = json.NewEncoder(out).Encode(r)
	}

	if err != nil {
		fmt.Fprintln(errOut, err)
		return 1
	}

	return 0
}

func move(spec moveSpec, target func(string) error) (r mirrorReport, err error) {
	if err := target(spec.Dest); err != nil {
		return r, err
	}

	if err := claim(filepath.Join(spec.Dest, contentFile), spec.Node); err != nil {
		return r, err
	}

	c := newCopier(spec.mirrorSpec)

	// The master's own keys are no business of the others.
	if spec.Own {
		c.skip = func(p string) bool { dir, name := filepath.Split(p); return dir == "pki/" && ownKey(name) }
	}

	trees := spec.Trees
	c.spec.Trees = slices.DeleteFunc(slices.Clone(trees),
		func(t string) bool { return !exists(filepath.Join(spec.Source, t)) })
	r, err = c.pass()
	if err != nil || !spec.Verify {
		return r, err
	}

	return r, c.verify()
}

// claim writes down that the volume holds the data of node, and refuses a volume that
// holds those of another. Of two nodes that claim it at the same moment one is refused.
func claim(path, node string) error {
	err := heldBy(path, node)
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

	return heldBy(path, node)
}

// heldBy returns nil if a claim is that of node, and fs.ErrNotExist if there is none.
func heldBy(path, node string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var have contentMark
	if json.Unmarshal(b, &have) != nil || have.Node != node {
		return fmt.Errorf("the volume holds the data of node %q already; this node's directory is not mixed with it: move it away by hand",
			have.Node)
	}
	return nil
}
