package repos

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// Revision returns a short hash over the commits of all branches and tags that this master serves, of
// files and of pillars, or "" if there is no remote. For a single remote with one branch it is the
// commit.
func (s *Service) Revision(context.Context) (string, error) {
	if s.store == nil {
		return "", nil
	}

	var all []string
	for _, r := range s.store.Repositories() {
		snap := r.Snapshot()
		switch {
		case snap == nil:
			all = append(all, r.URL()+" nothing yet")
		case len(snap.Refs) == 1:
			all = append(all, r.URL()+" "+snap.Refs[0].Commit)
		default:
			all = append(all, r.URL()+" "+digest(snap))
		}
	}

	switch len(all) {
	case 0:
		return "", nil
	case 1:
		_, revision, _ := strings.Cut(all[0], " ")
		return "git " + revision[:min(len(revision), 12)], nil
	}

	slices.Sort(all)
	sum := sha256.Sum256(fmt.Append(nil, strings.Join(all, "\n")))
	return "git " + hex.EncodeToString(sum[:6]), nil
}
