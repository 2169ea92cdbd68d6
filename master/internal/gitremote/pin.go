package gitremote

import (
	"context"
	"slices"
	"strings"

	"saltern/master/internal/git"
)

// Pin names a ref whose tree takes the place of a branch that is served.
type Pin struct {
	Ref    string // branch, tag or commit; "": what is served now
	Remote string // URL or name of the remote; "": every remote that has Ref
	Into   string // branch of which the tree takes the place; "": the one that is served as base, or first
}

// Concerns reports whether a remote is meant, by its name, its URL, or the last part of its URL.
func (p Pin) Concerns(name, url string) bool {
	last := url[strings.LastIndexAny(url, "/:")+1:]
	return p.Remote == "" || slices.Contains([]string{name, url, strings.TrimSuffix(last, ".git")}, p.Remote)
}

// Tree returns the tree of the ref in a snapshot: a branch, a tag, or a commit that has been
// fetched. A whole id is that commit, as in git itself, also if a branch or tag is named like it. ok is
// false if there is none.
func (p Pin) Tree(ctx context.Context, repo *git.Repository, snap *git.Snapshot) (tree string, ok bool, err error) {
	if id := strings.ToLower(p.Ref); IsCommit(id) {
		return repo.Resolve(ctx, id)
	}
	if b, ok := snap.Branch(p.Ref); ok {
		return b.Tree, true, nil
	}
	if t, ok := snap.Tag(p.Ref); ok {
		return t.Tree, true, nil
	}
	if IsHex(p.Ref) {
		return repo.Resolve(ctx, strings.ToLower(p.Ref))
	}
	return "", false, nil
}
