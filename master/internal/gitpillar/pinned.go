package gitpillar

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"saltern/master/internal/git"
	"saltern/master/internal/gitremote"
)

// Pin names a ref whose tree takes the place of a branch that is served.
type Pin struct {
	Ref    string // branch, tag or commit; "": what is served now
	Remote string // URL or name of the remote; "": every remote that has Ref
	Into   string // branch of which the tree takes the place; "": each remote's first branch
}

// Pinned is a Source whose trees stay the same while the remotes are fetched.
type Pinned struct {
	*Source
	// Trees are the directories of the trees that take the place of others, by the URL of the
	// remote.
	Trees map[string]string
	// Served reports whether all of these trees are served already.
	Served bool
}

// Pin returns a copy of s that stays with the present snapshots, except that the tree of a ref takes
// the place of a branch. Its trees remain on disk for as long as they are used.
func (s *Source) Pin(ctx context.Context, p Pin) (Pinned, error) {
	fixed := &Source{log: s.log, prepared: map[*git.Repository]*git.Snapshot{}}
	s.mu.Lock()
	maps.Copy(fixed.prepared, s.prepared)
	s.mu.Unlock()

	for _, repo := range s.Repositories() {
		if fixed.prepared[repo] == nil {
			if snap := s.snapshot(ctx, repo); snap != nil {
				fixed.prepared[repo] = snap
			}
		}
	}

	out := Pinned{Source: fixed, Trees: map[string]string{}, Served: true}
	entries := slices.Clone(*s.entries.Load())
	fixed.entries.Store(&entries)
	if p.Ref == "" {
		return out, nil
	}

	for i, list := range entries {
		entries[i] = slices.Clone(list)
		for j, r := range list {
			pinned, err := r.pin(ctx, fixed.prepared[r.repo], p, list, &out)
			if err != nil {
				return out, err
			}
			entries[i][j] = pinned
		}
	}

	if len(out.Trees) == 0 {
		return out, fmt.Errorf("no git pillar has the branch, tag or commit %.100q; see salt-run git.status", p.Ref)
	}
	return out, nil
}

// pin returns a copy of a remote in which the tree of a ref takes the place of a branch, or the
// remote itself if the ref does not concern it.
func (r *remote) pin(ctx context.Context, snap *git.Snapshot, p Pin, list []*remote, out *Pinned) (*remote, error) {
	if p.Remote != "" && !r.isNamed(p.Remote) || snap == nil {
		return r, nil
	}

	tree, ok, err := findTree(ctx, r.repo, snap, p.Ref)
	if err != nil || !ok {
		return r, err
	}

	into := cmp.Or(p.Into, firstBranch(r.repo, list))
	own := r.targetOf("", "")
	if r.Branch != dynamicBranch && own != into {
		return r, nil
	}

	now, there, err := r.treeOf(ctx, snap, into)
	if err != nil {
		return nil, err
	}
	out.Served = out.Served && there && now == tree

	dir, err := r.repo.Checkout(ctx, tree)
	if err != nil {
		return nil, fmt.Errorf("git pillar %s: %w", r.repo.URL(), err)
	}
	out.Trees[r.repo.URL()] = dir

	pinned := *r
	pinned.pinned = map[string]string{into: tree}
	return &pinned, nil
}

// firstBranch returns the branch of the first remote of a repository.
func firstBranch(repo *git.Repository, list []*remote) string {
	for _, r := range list {
		if r.repo == repo {
			return r.targetOf("", "")
		}
	}
	return ""
}

// isNamed reports whether name is the name of the remote, its URL, or the last part of its URL.
func (r *remote) isNamed(name string) bool {
	last := r.repo.URL()[strings.LastIndexAny(r.repo.URL(), "/:")+1:]
	return slices.Contains([]string{r.Name, r.repo.URL(), strings.TrimSuffix(last, ".git")}, name)
}

// findTree returns the tree of a branch, tag or commit that has been fetched.
func findTree(ctx context.Context, repo *git.Repository, snap *git.Snapshot, ref string) (string, bool, error) {
	if b, ok := snap.Branch(ref); ok {
		return b.Tree, true, nil
	}
	if t, ok := snap.Tag(ref); ok {
		return t.Tree, true, nil
	}
	if gitremote.IsHex(ref) {
		return repo.Resolve(ctx, strings.ToLower(ref))
	}
	return "", false, nil
}
