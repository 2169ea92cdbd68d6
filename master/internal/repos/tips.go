package repos

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"saltern/master/internal/git"
)

// Tip is the latest commit of a branch.
type Tip struct {
	Branch, Commit string
	// Served means that the configuration names the branch: it is served already.
	Served bool
	// Foreign means that a refspec fetches it from elsewhere than the branches of the remote
	// (refs/heads), such as the head of a merge request, which a stranger may have written.
	Foreign bool
}

// Tips are the latest commits of a remote.
type Tips struct {
	URL            string        // without a password
	Files, Pillars bool          // what the remote is used for
	Fetched        time.Time     // of the last fetch that succeeded
	Snapshot       *git.Snapshot // it is the same while nothing has changed
	Foreign        []string      // refspecs that fetch from elsewhere than the branches of the remote
	All            []Tip         // sorted by branch
}

var (
	errNoRemote    = errors.New("no git remote of gitfs_remotes or ext_pillar has this URL or name; see salt-run git.status")
	errManyRemotes = errors.New("several git remotes have this name: write the URL")
	errUnfetched   = errors.New("the git remote has not been fetched yet; see salt-run git.status")
)

// Tips returns the latest commits of the remote with a URL or name. If known is the present
// snapshot, All is empty.
func (s *Service) Tips(remote string, known *git.Snapshot) (Tips, error) {
	var found *git.Repository
	if s.store != nil {
		for _, r := range s.store.Repositories() {
			switch {
			case !sameRemote(r.URL(), remote):
			case found != nil:
				return Tips{}, fmt.Errorf("%.200q: %w", remote, errManyRemotes)
			default:
				found = r
			}
		}
	}
	if found == nil {
		return Tips{}, fmt.Errorf("%.200q: %w", remote, errNoRemote)
	}

	st := found.Status()
	t := Tips{URL: st.URL, Snapshot: st.Snapshot, Fetched: st.Fetched, Foreign: found.ForeignRefspecs()}
	t.Files, t.Pillars = s.usesOf(found)
	if t.Snapshot == nil {
		return t, fmt.Errorf("%.200q: %w", remote, errUnfetched)
	}
	if t.Snapshot == known {
		return t, nil
	}

	for _, ref := range t.Snapshot.Refs {
		branch, ok := strings.CutPrefix(ref.Name, "refs/remotes/origin/")
		if !ok {
			continue
		}
		t.All = append(t.All, Tip{
			Branch:  branch,
			Commit:  ref.Commit,
			Served:  found.Expects(branch),
			Foreign: found.Foreign(ref.Name),
		})
	}
	return t, nil
}
