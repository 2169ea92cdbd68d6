package gitfs

import (
	"context"
	"fmt"
	"path/filepath"

	"saltern/master/internal/git"
	"saltern/master/internal/gitremote"
)

// Pinned holds the directories of an environment, with the tree of a ref in place of another one.
type Pinned struct {
	Dirs []string // in the order in which the remotes are searched
	Refs []string // directories of the ref's trees
	used []checkout
}

type checkout struct {
	repo   *git.Repository
	tree   string
	pinned bool
}

// take returns the directory of the tree.
func (c checkout) take(ctx context.Context) (dir string, err error) {
	if c.pinned {
		return c.repo.Borrow(ctx, c.tree)
	}
	return c.repo.Checkout(ctx, c.tree)
}

// Release lets the trees of the ref be removed from the disk, unless something else uses them.
func (p *Pinned) Release() {
	for _, c := range p.used {
		c.repo.Release(c.tree)
	}
}

// Keep keeps the directories on disk for some minutes.
func (p *Pinned) Keep(ctx context.Context) error {
	for _, c := range p.used {
		if _, err := c.take(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Pin returns the directories of an environment like Dirs, with the tree of a ref in place of the
// branch of the environment. The caller must call Release.
func (b *Backend) Pin(ctx context.Context, env string, pin gitremote.Pin) (*Pinned, error) {
	out := &Pinned{}
	known := b.isKnownEnv(env)
	for _, r := range *b.remotes.Load() {
		if !r.serves(known) {
			continue
		}
		if err := r.pin(ctx, env, pin, out); err != nil {
			out.Release()
			return nil, fmt.Errorf("check environment %q of %s out: %w", env, r.repo.URL(), err)
		}
	}
	return out, nil
}

// pin adds the directory of a remote to out.
func (r *remote) pin(ctx context.Context, env string, pin gitremote.Pin, out *Pinned) error {
	tree, ok, err := r.treeOf(ctx, env)
	if err != nil {
		return err
	}

	pinned := false
	ref, _ := r.refOf(env)
	if pin.Ref != "" && pin.Concerns(r.Name, r.repo.URL()) && (pin.Into == "" || pin.Into == ref) {
		other, found, err := pin.Tree(ctx, r.repo, r.repo.Snapshot())
		if err != nil {
			return err
		}
		if found {
			tree = other
			pinned = true
		}
	}
	if !ok && !pinned {
		return nil
	}

	used := checkout{repo: r.repo, tree: tree, pinned: pinned}
	dir, err := used.take(ctx)
	if err != nil {
		return err
	}
	out.used = append(out.used, used)
	if pinned {
		out.Refs = append(out.Refs, dir, dir+".mounts")
	}

	dir = filepath.Join(dir, r.rootOf(env))
	if mp := r.mountpointOf(env); mp != "" {
		if dir, err = r.repo.Mount(tree, r.rootOf(env), mp); err != nil {
			return err
		}
	}
	out.Dirs = append(out.Dirs, dir)
	return nil
}
