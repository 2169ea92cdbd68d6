package gitfs

import (
	"context"
	"fmt"
	"path/filepath"
)

// Dirs returns the directories of an environment, in the order in which the remotes are searched,
// for programs that read the files from disk. The content of these directories never changes. The
// directories remain on disk for a few minutes after the last call of Dirs.
func (b *Backend) Dirs(ctx context.Context, env string) (out []string, err error) {
	known := b.isKnownEnv(env)
	for _, r := range *b.remotes.Load() {
		if !r.serves(known) {
			continue
		}

		tree, ok, err := r.treeOf(ctx, env)
		if err != nil {
			return nil, fmt.Errorf("check environment %q out: %w", env, err)
		}
		if !ok {
			continue
		}

		dir, err := r.repo.Checkout(ctx, tree)
		if err == nil {
			dir = filepath.Join(dir, r.rootOf(env))
			if mp := r.mountpointOf(env); mp != "" {
				dir, err = r.repo.Mount(tree, r.rootOf(env), mp)
			}
		}

		if err != nil {
			return nil, fmt.Errorf("check environment %q of %s out: %w", env, r.repo.URL(), err)
		}

		out = append(out, dir)
	}

	return out, nil
}
