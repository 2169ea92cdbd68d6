package control

import (
	"context"
	"time"

	"saltern/internal/rpc"
)

// Bounds of reports about git remotes.
const (
	MaxGitRemotes = 1000
	MaxGitRefs    = 20 // refs of one remote
	// GitTakes is how long a request to fetch waits for the fetch. The fetch continues after that.
	GitTakes = 10 * time.Second
)

// Git lists the git remotes of a master.
type Git struct {
	Remotes []GitRemote `json:"remotes"`
}

// GitRemote is one remote repository, in the state in which a master last fetched it.
type GitRemote struct {
	URL     string   `json:"url"` // the URL without its password
	Files   bool     `json:"files,omitempty"`
	Pillars bool     `json:"pillars,omitempty"`
	Refs    []GitRef `json:"refs"` // the first [MaxGitRefs]
	More    int      `json:"more_refs,omitempty"`
	// State is a digest of all refs: two masters with equal State serve equal content. It is empty
	// until the first fetch.
	State    string    `json:"state,omitempty"`
	Fetched  time.Time `json:"fetched,omitzero"` // time of the last success; zero: none since the start
	Next     time.Time `json:"next,omitzero"`
	Fetching bool      `json:"fetching,omitempty"`
	Fault    *GitFault `json:"fault,omitempty"` // nil: the last fetch succeeded
}

// GitRef is a branch or tag, by its short name, and its commit.
type GitRef struct {
	Name   string `json:"name"`
	Commit string `json:"commit"`
}

// GitFault is the fault of the last fetch from a remote.
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

// FetchGit asks the master to fetch the remotes with that URL or name ("" for all). It waits for at
// most [GitTakes] and returns the state of the remotes. If there is no such remote, the error
// matches [ErrNoSuchRemote].
func (c *Client) FetchGit(ctx context.Context, remote string) (Git, error) {
	g, err := ask(ctx, &c.rpc, fetchGit, gitRequest{remote})
	return g.clean(), err
}

// clean returns g with its lists cut to their bounds and each text made safe for one line.
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
