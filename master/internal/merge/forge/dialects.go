package forge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
)

// gitHub is GitHub's form.
type gitHub struct{ repository string }

func (gitHub) authorize(h http.Header, token string) { h.Set("Authorization", "Bearer "+token) }

func (d gitHub) statusPath(commit string) string { return d.repository + "/statuses/" + commit }

func (gitHub) status(s Status) any {
	return struct {
		State       State  `json:"state"`
		Target      string `json:"target_url,omitempty"`
		Description string `json:"description"`
		Context     string `json:"context"`
	}{s.State, s.Target, s.Description, s.Context}
}

func (gitHub) isSet(Status, []byte) bool { return false }

func (d gitHub) mergesPath(size, page int) string {
	return fmt.Sprintf("%s/pulls?state=open&sort=updated&direction=desc&per_page=%d&page=%d", d.repository, size, page)
}

func (gitHub) merges(body []byte) (all []Merge, err error) {
	var list []struct {
		Number int64 `json:"number"`
		Head   struct {
			SHA string `json:"sha"`
		} `json:"head"`
	}
	err = json.Unmarshal(body, &list)
	for _, m := range list {
		all = append(all, Merge{Number: m.Number, Commit: m.Head.SHA})
	}
	return all, err
}

func (d gitHub) commentPath(number, id int64) (method, path string) {
	if id != 0 {
		return http.MethodPatch, fmt.Sprintf("%s/issues/comments/%d", d.repository, id)
	}
	return http.MethodPost, fmt.Sprintf("%s/issues/%d/comments", d.repository, number)
}

// gitea is the form of Gitea and Forgejo, which is GitHub's but for a few names.
type gitea struct{ gitHub }

func (gitea) authorize(h http.Header, token string) { h.Set("Authorization", "token "+token) }

func (d gitea) mergesPath(size, page int) string {
	return fmt.Sprintf("%s/pulls?state=open&sort=recentupdate&limit=%d&page=%d", d.repository, size, page)
}

// gitLab is GitLab's form.
type gitLab struct{ project string }

func (gitLab) authorize(h http.Header, token string) { h.Set("PRIVATE-TOKEN", token) }

func (d gitLab) statusPath(commit string) string { return d.project + "/statuses/" + commit }

// state returns GitLab's word for a state. It has one for failures and errors.
func (gitLab) state(s State) string {
	if s == Failure || s == Error {
		return "failed"
	}
	return string(s)
}

func (d gitLab) status(s Status) any {
	return struct {
		State       string `json:"state"`
		Target      string `json:"target_url,omitempty"`
		Description string `json:"description"`
		Name        string `json:"name"`
		// Without it GitLab takes the first branch that has the commit, such as a protected one, and
		// finds none for the head of a merge request from a fork.
		Ref string `json:"ref,omitempty"`
	}{d.state(s.State), s.Target, s.Description, s.Context, s.Branch}
}

// isSet implements dialect. GitLab refuses to set the state that a status has already.
func (d gitLab) isSet(s Status, refusal []byte) bool {
	return bytes.Contains(refusal, []byte("Cannot transition status")) &&
		bytes.Contains(refusal, []byte("from :"+d.state(s.State)))
}

func (d gitLab) mergesPath(size, page int) string {
	return fmt.Sprintf("%s/merge_requests?state=opened&order_by=updated_at&per_page=%d&page=%d", d.project, size, page)
}

func (gitLab) merges(body []byte) (all []Merge, err error) {
	var list []struct {
		Number int64  `json:"iid"`
		Commit string `json:"sha"`
	}
	err = json.Unmarshal(body, &list)
	for _, m := range list {
		all = append(all, Merge{Number: m.Number, Commit: m.Commit})
	}
	return all, err
}

func (d gitLab) commentPath(number, id int64) (method, path string) {
	notes := fmt.Sprintf("%s/merge_requests/%d/notes", d.project, number)
	if id != 0 {
		return http.MethodPut, fmt.Sprintf("%s/%d", notes, id)
	}
	return http.MethodPost, notes
}

// generic is a server of the administrator's own.
type generic struct{}

func (generic) authorize(h http.Header, token string) { h.Set("Authorization", "Bearer "+token) }

func (generic) statusPath(string) string { return "" }

func (generic) status(s Status) any {
	return struct {
		Remote      string `json:"remote"`
		Branch      string `json:"branch"`
		Commit      string `json:"commit"`
		State       State  `json:"state"`
		Description string `json:"description"`
		Context     string `json:"context"`
		Target      string `json:"target_url,omitempty"`
	}{s.Remote, s.Branch, s.Commit, s.State, s.Description, s.Context, s.Target}
}

func (generic) isSet(Status, []byte) bool { return false }

func (generic) mergesPath(_, _ int) string { return "" }

func (generic) merges([]byte) ([]Merge, error) { return nil, nil }

func (generic) commentPath(_, _ int64) (method, path string) { return http.MethodPost, "" }
