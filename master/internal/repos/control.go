package repos

import (
	"context"
	"net/url"
	"path"
	"strings"

	"saltern/internal/control"
	"saltern/internal/rpc"
	"saltern/master/internal/git"
)

// maxAsked bounds the requests of FetchGit in progress. Overflow policy: further requests are
// refused.
const maxAsked = 16

// fetchRequest asks Run to fetch some remotes.
type fetchRequest struct {
	want func(*git.Repository) bool
	done chan struct{} // closed when the fetch has ended, with or without success
}

// Git returns the state of all remotes, for the supervisor.
func (s *Service) Git() control.Git {
	out := control.Git{Remotes: []control.GitRemote{}}
	if s.store == nil {
		return out
	}

	list := s.store.Repositories()
	for _, r := range list[:min(len(list), control.MaxGitRemotes)] {
		st := r.Status()
		m := control.GitRemote{
			URL:      st.URL,
			Fetched:  st.Fetched,
			Next:     st.Next,
			Fetching: st.Fetching,
			Refs:     []control.GitRef{},
		}

		m.Files, m.Pillars = s.usesOf(r)
		if snap := st.Snapshot; snap != nil {
			m.State = digest(snap)
			m.More = max(0, len(snap.Refs)-control.MaxGitRefs)
			for _, ref := range snap.Refs[:len(snap.Refs)-m.More] {
				name := strings.TrimPrefix(strings.TrimPrefix(ref.Name, "refs/remotes/origin/"), "refs/tags/")
				m.Refs = append(m.Refs, control.GitRef{Name: name, Commit: ref.Commit})
			}
		}

		if f := st.Fault; f != nil {
			fault, ok := faults()[f.Kind]
			if !ok {
				fault = control.GitFilesFault
				if !m.Files {
					fault = control.GitPillarFault
				}
			}

			m.Fault = &control.GitFault{What: fault, Kind: string(f.Kind), Text: f.Text, Since: st.Since}
		}

		out.Remotes = append(out.Remotes, m)
	}

	return out
}

// FetchGit fetches the remotes whose URL or name is remote; "" means all remotes. It returns the
// state of the remotes after the fetch. If the fetch takes longer than [control.GitTakes], FetchGit
// returns the current state, and the fetch continues.
func (s *Service) FetchGit(ctx context.Context, remote string) (control.Git, error) {
	want := func(r *git.Repository) bool { return remote == "" || sameRemote(r.URL(), remote) }
	any := false
	if s.store != nil {
		for _, r := range s.store.Repositories() {
			any = any || want(r)
		}
	}

	if !any {
		return control.Git{}, &rpc.Error{Code: rpc.CodeNoSuchRemote, Text: "no such git remote is configured"}
	}

	select {
	case s.requestSlots <- struct{}{}:
	default:
		return control.Git{}, &rpc.Error{
			Code: rpc.CodeFailed,
			Text: "too many fetches are asked for: try again later",
		}
	}

	a := fetchRequest{want, make(chan struct{})}
	s.fetchRequests <- a // does not block: the channel's capacity is maxAsked
	ctx, cancel := context.WithTimeout(ctx, control.GitTakes)
	defer cancel()

	select {
	case <-a.done:
	case <-ctx.Done():
	}

	out := control.Git{Remotes: []control.GitRemote{}}
	for _, r := range s.Git().Remotes {
		if remote == "" || sameRemote(r.URL, remote) {
			out.Remotes = append(out.Remotes, r)
		}
	}

	return out, nil
}

// sameRemote reports whether name means the remote with the URL remoteURL, which contains no
// password. name may be the URL, for ssh in either form, with or without .git and the user. It may
// also be the last part of the URL's path.
func sameRemote(remoteURL, name string) bool {
	return hostAndPath(remoteURL) == hostAndPath(name) ||
		name != "" && !strings.ContainsAny(name, "/:") &&
			path.Base(hostAndPath(remoteURL)) == strings.TrimSuffix(name, ".git")
}

// hostAndPath returns the host and the path of a URL, without user, port and .git.
func hostAndPath(u string) string {
	if p, err := url.Parse(u); err == nil && p.Host != "" {
		u = p.Hostname() + "/" + strings.TrimPrefix(p.Path, "/")
	} else if host, rest, ok := strings.Cut(u, ":"); ok && !strings.Contains(host, "/") &&
		!strings.HasPrefix(rest, "//") {
		u = host[strings.LastIndex(host, "@")+1:] + "/" + strings.TrimPrefix(rest, "/")
	}
	return strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(u, "file://"), "/"), ".git")
}
