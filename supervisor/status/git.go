package status

import (
	"time"

	"saltern/internal/control"
)

// GitView describes the git remotes of one node's master.
type GitView struct {
	Remotes []GitRemote `json:"remotes"`
}

// GitRemote is a git remote as one master has fetched it.
type GitRemote struct {
	URL     string   `json:"url"` // without the password
	Files   bool     `json:"files"`
	Pillars bool     `json:"pillars"`
	Refs    []GitRef `json:"refs"` // the first branches and tags of the remote
	More    int      `json:"moreRefs"`
	// State identifies the commits of all branches and tags. Empty: the remote was not fetched yet.
	State    string     `json:"state"`
	Fetched  *time.Time `json:"fetched"` // last successful fetch; null: none since the master's start
	Next     *time.Time `json:"next"`
	Fetching bool       `json:"fetching"`
	Fault    *GitFault  `json:"fault"` // null: the last fetch succeeded
}

// GitRef is a branch or tag and its commit.
type GitRef struct {
	Name   string `json:"name"`
	Commit string `json:"commit"`
}

// GitFault describes why the last fetch of a remote failed.
type GitFault struct {
	Code  Code      `json:"code"`
	Kind  string    `json:"kind"`
	Text  string    `json:"text"`
	Since time.Time `json:"since"`
}

// GitList holds the git remotes of all nodes.
type GitList struct {
	Schema int                    `json:"schema"`
	Nodes  map[string][]GitRemote `json:"nodes"` // remotes by the node's name
	// Unasked holds, for each node that did not answer, the reason.
	Unasked map[string]string `json:"unasked,omitempty"`
}

// GitCode returns the code of a fault that a master reports about git. ok is false if the fault is
// not about git.
func GitCode(f control.Fault) (c Code, ok bool) {
	c, ok = map[control.Fault]Code{
		control.GitPillarFault:  GitPillars,
		control.GitFilesFault:   GitFiles,
		control.GitAwayFault:    GitAway,
		control.GitLoginFault:   GitLogin,
		control.GitHostKeyFault: GitHostKey,
		control.GitRefFault:     GitRefGone,
		control.GitSizeFault:    GitSize,
	}[f]
	return c, ok
}

// ViewOfGit returns a master's report about its remotes in the form that nodes exchange.
func ViewOfGit(g control.Git) GitView {
	v := GitView{Remotes: []GitRemote{}}
	when := func(t time.Time) *time.Time {
		if t.IsZero() {
			return nil
		}
		return &t
	}

	for _, m := range g.Remotes {
		r := GitRemote{
			URL:      m.URL,
			Files:    m.Files,
			Pillars:  m.Pillars,
			Refs:     []GitRef{},
			More:     m.More,
			State:    m.State,
			Fetched:  when(m.Fetched),
			Next:     when(m.Next),
			Fetching: m.Fetching,
		}

		for _, ref := range m.Refs {
			r.Refs = append(r.Refs, GitRef{ref.Name, ref.Commit})
		}

		if f := m.Fault; f != nil {
			code, ok := GitCode(f.What)
			if !ok {
				code = MasterProblem
			}
			r.Fault = &GitFault{Code: code, Kind: f.Kind, Text: f.Text, Since: f.Since}
		}

		v.Remotes = append(v.Remotes, r)
	}

	return v
}

// Bounded returns the view with each text shortened to one line. Callers use it for views of other
// nodes.
func (v GitView) Bounded() GitView {
	v.Remotes = v.Remotes[:min(len(v.Remotes), control.MaxGitRemotes)]
	for i := range v.Remotes {
		r := &v.Remotes[i]
		r.URL = Clip(r.URL)
		r.State = Clip(r.State)
		r.More = max(0, r.More)

		r.Refs = r.Refs[:min(len(r.Refs), control.MaxGitRefs)]
		for k := range r.Refs {
			ref := &r.Refs[k]
			ref.Name = Clip(ref.Name)
			ref.Commit = Clip(ref.Commit)
		}

		if f := r.Fault; f != nil {
			f.Code = Code(Clip(string(f.Code)))
			f.Kind = Clip(f.Kind)
			f.Text = Clip(f.Text)
		}
	}
	return v
}
