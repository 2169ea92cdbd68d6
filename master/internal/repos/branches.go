package repos

import (
	"strings"

	"saltern/master/value"
)

// Bounds of a list of branches.
const (
	maxListedBranches = 300 // of each remote, and as many tags
	maxListedRemotes  = 20
	maxListedName     = 255 // bytes; longer names are left out
)

// branches returns the answer of the runner git.branches: for each remote what it is used for, and its
// branches and tags with their commits.
func (s *Service) branches() *value.Map {
	out := value.NewMap()
	if s.store == nil {
		return out
	}

	for _, r := range s.store.Repositories() {
		if out.Len() >= maxListedRemotes {
			break
		}
		files, pillars := s.usesOf(r)
		branches, tags := value.NewMap(), value.NewMap()
		more := int64(0)
		if snap := r.Snapshot(); snap != nil {
			for _, ref := range snap.Refs {
				list := branches
				name, ok := strings.CutPrefix(ref.Name, "refs/remotes/origin/")
				if !ok {
					list = tags
					name = strings.TrimPrefix(ref.Name, "refs/tags/")
				}
				if list.Len() >= maxListedBranches || len(name) > maxListedName {
					more++
					continue
				}
				list.Set(name, ref.Commit)
			}
		}
		out.Set(r.URL(), value.NewMap("files", files, "pillars", pillars, "branches", branches, "tags", tags, "more", more))
	}
	return out
}
