package control

import (
	"context"
	"time"

	"saltern/internal/rpc"
)

// Bounds of what is told of git remotes.
const (
	MaxGitRemotes = 1000
	MaxGitRefs    = 20 // of one remote
	// GitTakes is how long a master waits for a fetch that it was asked for. The
	// fetch goes on after it.
	GitTakes = 10 * time.Second
)

// Git is the git remotes of a master.
type Git struct {
	Remotes []GitRemote `json:"remotes"`
}

// GitRemote is one repository elsewhere, as a master has fetched it.
type GitRemote struct {
	URL     string   `json:"url"` // without a password
	Files   bool     `json:"files,omitempty"`
	Pillars bool     `json:"pillars,omitempty"`
	Refs    []GitRef `json:"refs"` // the first [MaxGitRefs]
	More    int      `json:"more_refs,omitempty"`
	// State is a digest of all refs: masters with the same one serve the same.
	// Empty: nothing was fetched yet.
	State    string    `json:"state,omitempty"`
	Fetched  time.Time `json:"fetched,omitzero"` // last success; zero: none since the start
	Next     time.Time `json:"next,omitzero"`
	Fetching bool      `json:"fetching,omitempty"`
	Fault    *GitFault `json:"fault,omitempty"` // nil: the last fetch succeeded
}

// GitRef is a branch or tag, by its short name, and its commit.
type GitRef struct {
	Name   string `json:"name"`
	Commit string `json:"commit"`
}

// GitFault is the fault of a remote.
type GitFault struct {
	What  Fault     `json:"what"`
	Kind  string    `json:"kind"`
	Text  string    `json:"text"`
	Since time.Time `json:"since"`
}

// gitRequest is the body of POST /v1/git/fetch.
type gitRequest struct {
	Remote string `json:"remote"`
}

// Git returns the git remotes of the master.
func (c *Client) Git(ctx context.Context) (Git, error) {
	g, err := ask(ctx, &c.rpc, readGit, rpc.None{})
	return g.clean(), err
}

// FetchGit has the master fetch the remotes of that URL or name, "" for all, and
// returns how they are after at most [GitTakes]. The error matches
// [ErrNoSuchRemote] if there is none.
func (c *Client) FetchGit(ctx context.Context, remote string) (Git, error) {
	g, err := ask(ctx, &c.rpc, fetchGit, gitRequest{remote})
	return g.clean(), err
}

// clean bounds what the other side says and makes it fit for one line each.
func (g Git) clean() Git {
	g.Remotes = g.Remotes[:min(len(g.Remotes), MaxGitRemotes)]
	for i := range g.Remotes {
		r := &g.Remotes[i]
		r.URL, r.State = oneLine(r.URL), oneLine(r.State)
		r.Refs = r.Refs[:min(len(r.Refs), MaxGitRefs)]
		for k := range r.Refs {
			r.Refs[k].Name, r.Refs[k].Commit = oneLine(r.Refs[k].Name), oneLine(r.Refs[k].Commit)
		}

		r.More = max(r.More, 0)
		if f := r.Fault; f != nil {
			f.What = Fault(oneLine(string(f.What)))
			cleanLines(&f.Kind, &f.Text)
		}
	}

	return g
}
