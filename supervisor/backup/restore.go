package backup

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"filippo.io/age"

	"saltern/supervisor/layout"
	"saltern/supervisor/settings"
)

// Target is where a backup is restored to.
type Target struct {
	Settings *settings.Settings
	// Force restores over accepted minions.
	Force bool
	// Stamp names the directory with what was there before; it must be new.
	Stamp  string
	Limits Limits
}

// ErrNotFresh means that the node has accepted minions already.
var ErrNotFresh = errors.New("this node has accepted minions already")

// Config is the appliance.yaml inside a backup; nil when there is none.
type Config []byte

// Restore reads a whole archive into a directory beside the node's trees and,
// when it was whole, puts file by file into place. What was there before is
// kept in <storage>/.before-restore-<stamp>. The node's own appliance.yaml is
// left alone; the archive's is given back.
//
// salt-master must be restarted afterwards. An error before the first file was
// put into place leaves everything as it was; a later one (a full disk) names
// the file, and the restore can be repeated with Force.
func Restore(ctx context.Context, r io.Reader, t Target, identities ...age.Identity) (Summary, Config, error) {
	var sum Summary
	if err := checkName(t.Stamp); err != nil || strings.Contains(t.Stamp, "/") {
		return sum, nil, fmt.Errorf("restore: the stamp %q is not a file name", t.Stamp)
	}
	if !t.Force {
		if e, err := os.ReadDir(filepath.Join(t.Settings.PKIDir(), "minions")); err == nil && len(e) > 0 {
			return sum, nil, fmt.Errorf("restore: %w (%d)", ErrNotFresh, len(e))
		}
	}
	storage := t.Settings.StorageDir()
	if err := os.MkdirAll(storage, 0o755); err != nil {
		return sum, nil, fmt.Errorf("restore: %w", err)
	}
	stage := filepath.Join(storage, ".restore-"+t.Stamp)
	if err := os.Mkdir(stage, 0o700); err != nil {
		return sum, nil, fmt.Errorf("restore: %w", err)
	}
	defer os.RemoveAll(stage)
	x := &extractor{ctx: ctx, sum: &sum, limits: t.Limits.filled(), seen: map[string]bool{}}
	if err := x.stage(r, stage, identities); err != nil {
		return sum, nil, fmt.Errorf("restore: %w; nothing was changed", err)
	}
	p := &placer{from: stage, before: filepath.Join(storage, ".before-restore-"+t.Stamp)}
	if err := p.all(ctx, t.Settings, sum.Manifest.Jobs); err != nil {
		return sum, x.config, fmt.Errorf("restore: %w; what was there before is in %s", err, p.before)
	}
	return sum, x.config, nil
}

// Inspect reads a whole archive and restores nothing: it proves that the key
// fits and that the archive is whole.
func Inspect(ctx context.Context, r io.Reader, l Limits, identities ...age.Identity) (Summary, Config, error) {
	var sum Summary
	x := &extractor{ctx: ctx, sum: &sum, limits: l.filled(), seen: map[string]bool{}}
	if err := x.stage(r, "", identities); err != nil {
		return sum, nil, fmt.Errorf("backup: %w", err)
	}
	return sum, x.config, nil
}

// extractor reads an archive.
type extractor struct {
	ctx    context.Context
	sum    *Summary
	limits Limits
	seen   map[string]bool // names of files
	config Config
}

// stage reads everything below dir, or only checks it when dir is empty.
func (x *extractor) stage(r io.Reader, dir string, identities []age.Identity) error {
	open, err := age.Decrypt(r, identities...)
	if err != nil {
		var no *age.NoIdentityMatchError
		if errors.As(err, &no) {
			return errors.New("the passphrase or key does not fit to this backup")
		}
		return fmt.Errorf("this is not a backup, or it is damaged: %w", err)
	}
	zip, err := gzip.NewReader(bufio.NewReader(open))
	if err != nil {
		return fmt.Errorf("the backup is damaged: %w", err)
	}
	var root *os.Root
	if dir != "" {
		if root, err = os.OpenRoot(dir); err != nil {
			return err
		}
		defer root.Close()
	}
	// The bound on what is unpacked covers headers and padding too.
	in := &io.LimitedReader{R: zip, N: x.limits.Bytes + int64(x.limits.Entries)*1536}
	for n, t := 0, tar.NewReader(in); ; n++ {
		if x.ctx.Err() != nil {
			return x.ctx.Err()
		}
		h, err := t.Next()
		if errors.Is(err, io.EOF) && in.N > 0 {
			break
		}
		if in.N <= 0 {
			return fmt.Errorf("the backup holds more than %d bytes", x.limits.Bytes)
		}
		if err != nil {
			return fmt.Errorf("the backup is damaged: %w", err)
		}
		if n >= x.limits.Entries {
			return fmt.Errorf("the backup holds more than %d files", x.limits.Entries)
		}
		if err := x.entry(root, h, t, n == 0); err != nil {
			return err
		}
	}
	if x.sum.Manifest.Format == 0 {
		return errors.New("the backup is empty")
	}
	// Only at its very end the archive is known to be whole.
	if _, err := io.Copy(io.Discard, in); err != nil || in.N <= 0 {
		return fmt.Errorf("the backup is damaged at its end: %w", err)
	}
	if _, err := io.Copy(io.Discard, io.LimitReader(open, 1)); err != nil {
		return fmt.Errorf("the backup is damaged at its end: %w", err)
	}
	return nil
}

func (x *extractor) entry(root *os.Root, h *tar.Header, r io.Reader, first bool) error {
	if first {
		return x.manifest(h, r)
	}
	name := strings.TrimSuffix(h.Name, "/")
	if err := checkName(name); err != nil {
		return fmt.Errorf("an entry of the backup %w", err)
	}
	if x.seen[name] {
		return fmt.Errorf("the backup holds %q twice", name)
	}
	x.seen[name] = true
	if name == "appliance.yaml" && h.Typeflag == tar.TypeReg {
		if h.Size > maxConfig {
			return errors.New("the appliance.yaml of the backup is too large")
		}
		var err error
		x.config, err = io.ReadAll(io.LimitReader(r, maxConfig))
		return err
	}
	if !known(name, x.sum.Manifest.Jobs) {
		return fmt.Errorf("the backup holds %q, which does not belong into one", name)
	}
	mode := fs.FileMode(h.Mode) & 0o755
	switch h.Typeflag {
	case tar.TypeDir:
		if root == nil {
			return nil
		}
		return root.MkdirAll(name, mode|0o700)
	case tar.TypeReg:
		return x.file(root, name, mode|0o400, h.Size, r)
	}
	return fmt.Errorf("the backup holds %q, which is neither a file nor a directory", name)
}

func (x *extractor) manifest(h *tar.Header, r io.Reader) error {
	if h.Name != manifestName || h.Typeflag != tar.TypeReg || h.Size > maxManifest {
		return errors.New("this is not a backup of a node: it does not begin with a manifest")
	}
	text, err := io.ReadAll(io.LimitReader(r, maxManifest))
	if err != nil {
		return err
	}
	m := &x.sum.Manifest
	if err := json.Unmarshal(text, m); err != nil {
		return fmt.Errorf("the manifest of the backup cannot be read: %w", err)
	}
	if m.Format != Format {
		return fmt.Errorf("the backup has format %d, this program knows %d", m.Format, Format)
	}
	return nil
}

func (x *extractor) file(root *os.Root, name string, mode fs.FileMode, size int64, r io.Reader) error {
	if size < 0 || size > maxFile || x.sum.Bytes+size > x.limits.Bytes {
		return fmt.Errorf("%q makes the backup larger than %d bytes, which is the limit", name, x.limits.Bytes)
	}
	x.sum.Files++
	x.sum.Bytes += size
	if root == nil {
		_, err := io.Copy(io.Discard, r)
		return err
	}
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode|0o200)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// known reports whether a name lies in one of the trees, or on the way there.
func known(name string, jobs bool) bool {
	for _, t := range trees(&settings.Settings{}, jobs) {
		if rel, ok := strings.CutPrefix(name, t.name+"/"); ok && (t.skip == nil || !t.skip(rel)) {
			return true
		}
	}
	return false
}

// placer moves staged files to where they belong.
type placer struct {
	from   string
	before string
}

func (p *placer) all(ctx context.Context, s *settings.Settings, jobs bool) error {
	master, err := layout.FindAccount(s.Users.Master)
	if err != nil {
		return err
	}
	lb, err := layout.FindAccount(s.Users.LB)
	if err != nil {
		return err
	}
	if err := layout.Make(s, master, lb); err != nil {
		return err
	}
	for _, t := range trees(s, jobs) {
		owner := layout.Account{}
		if t.master {
			owner = master
		}
		if err := p.tree(ctx, t, owner); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
	}
	return nil
}

func (p *placer) tree(ctx context.Context, t tree, owner layout.Account) error {
	from := filepath.Join(p.from, filepath.FromSlash(t.name))
	return filepath.WalkDir(from, func(name string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && name == from {
			return fs.SkipAll
		}
		if err != nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		to := filepath.Join(t.dir, rel)
		if owner.Credential != nil && rel != "." {
			if err := os.Lchown(name, owner.UID, owner.GID); err != nil {
				return err
			}
		}
		if e.IsDir() {
			return p.dir(e, to, rel == ".", owner)
		}
		if err := p.keep(filepath.Join(t.name, rel), to); err != nil {
			return err
		}
		if t.name == "pki" {
			if err := p.otherStates(t.dir, filepath.ToSlash(rel)); err != nil {
				return err
			}
		}
		return move(name, to)
	})
}

// otherStates moves a minion's keys in other states aside: it may have come to
// the fresh node already, where its key waits for a decision.
func (p *placer) otherStates(pki, rel string) error {
	states := []string{"minions", "minions_pre", "minions_rejected", "minions_denied"}
	state, id, ok := strings.Cut(rel, "/")
	if !ok || !slices.Contains(states, state) {
		return nil
	}
	for _, other := range states {
		if other == state {
			continue
		}
		if err := p.keep(filepath.Join("pki", other, id), filepath.Join(pki, other, id)); err != nil {
			return err
		}
	}
	return nil
}

// dir makes a directory where there is none.
func (p *placer) dir(e fs.DirEntry, to string, top bool, owner layout.Account) error {
	fi, err := os.Lstat(to)
	if err == nil && !fi.IsDir() && !top {
		return fmt.Errorf("%s is not a directory", to)
	}
	if err == nil {
		return nil
	}
	mode := fs.FileMode(0o755)
	if i, err := e.Info(); err == nil && !top {
		mode = i.Mode().Perm()
	}
	if err := os.Mkdir(to, mode); err != nil {
		return err
	}
	if owner.Credential != nil {
		return os.Lchown(to, owner.UID, owner.GID)
	}
	return nil
}

// keep moves what is at to aside.
func (p *placer) keep(rel, to string) error {
	if _, err := os.Lstat(to); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	old := filepath.Join(p.before, rel)
	if err := os.MkdirAll(filepath.Dir(old), 0o700); err != nil {
		return err
	}
	return move(to, old)
}

// move renames, and copies where that is not possible: the job cache may lie
// on another file system.
func move(from, to string) error {
	if err := os.Rename(from, to); err == nil {
		return nil
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	fi, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fi.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if st, ok := fi.Sys().(*syscall.Stat_t); ok && err == nil && os.Geteuid() == 0 {
		err = out.Chown(int(st.Uid), int(st.Gid))
	}
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return err
	}
	return os.Remove(from)
}
