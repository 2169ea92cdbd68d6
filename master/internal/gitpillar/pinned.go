package gitpillar

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"saltern/master/internal/git"
	"saltern/master/internal/gitremote"
)

// Pinned is a Source whose trees stay the same while the remotes are fetched.
type Pinned struct {
	*Source
	// Trees are the directories of the trees that take the place of others, by the URL of the
	// remote. It is empty if no remote has the ref.
	Trees map[string]string

	borrowed []borrowed
}

type borrowed struct {
	repo *git.Repository
	tree string
}

// Release lets the trees be removed from the disk that nothing else uses. Nothing may use the Source
// afterwards.
func (p *Pinned) Release() {
	for _, b := range p.borrowed {
		b.repo.Release(b.tree)
	}
}

// Pin returns a copy of s that stays with the present snapshots, except that the tree of a ref takes
// the place of a branch. Its trees remain on disk for as long as they are used. The caller must call
// Release.
func (s *Source) Pin(ctx context.Context, p gitremote.Pin) (Pinned, error) {
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

	out := Pinned{Source: fixed, Trees: map[string]string{}}
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

	return out, nil
}

// pin returns a copy of a remote in which the tree of a ref takes the place of a branch, or the
// remote itself if the ref does not concern it.
func (r *remote) pin(ctx context.Context, snap *git.Snapshot, p gitremote.Pin, list []*remote, out *Pinned) (*remote, error) {
	if snap == nil || !p.Concerns(r.Name, r.repo.URL()) {
		return r, nil
	}

	tree, ok, err := p.Tree(ctx, r.repo, snap)
	if err != nil || !ok {
		return r, err
	}

	into := cmp.Or(p.Into, firstBranch(r.repo, list))
	own := r.targetOf("", "")
	if r.Branch != dynamicBranch && own != into {
		return r, nil
	}

	dir, err := r.repo.Borrow(ctx, tree)
	if err != nil {
		return nil, fmt.Errorf("git pillar %s: %w", r.repo.URL(), err)
	}
	out.Trees[r.repo.URL()] = dir
	out.borrowed = append(out.borrowed, borrowed{r.repo, tree})

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
