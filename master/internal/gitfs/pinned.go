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
	repo *git.Repository
	tree string
}

// Keep keeps the directories on disk for some minutes.
func (p *Pinned) Keep(ctx context.Context) error {
	for _, c := range p.used {
		if _, err := c.repo.Checkout(ctx, c.tree); err != nil {
			return err
		}
	}
	return nil
}

// Pin returns the directories of an environment like Dirs, with the tree of a ref in place of the
// branch of the environment.
func (b *Backend) Pin(ctx context.Context, env string, pin gitremote.Pin) (*Pinned, error) {
	out := &Pinned{}
	known := b.isKnownEnv(env)
	for _, r := range *b.remotes.Load() {
		if !r.serves(known) {
			continue
		}
		if err := r.pin(ctx, env, pin, out); err != nil {
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

	dir, err := r.repo.Checkout(ctx, tree)
	if err != nil {
		return err
	}
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
	out.used = append(out.used, checkout{r.repo, tree})
	return nil
}
