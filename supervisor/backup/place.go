package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"saltern/supervisor/layout"
	"saltern/supervisor/settings"
)

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
		if err := os.MkdirAll(filepath.Dir(t.dir), 0o755); err != nil {
			return err
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
	if owner.Credential != nil {
		mode = 0o700
	}
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
