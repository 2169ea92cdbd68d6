package gitfs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"saltern/master/internal/gitremote"
	"saltern/test/check"
	"saltern/test/gitrepo"
)

// TestPin: a ref takes the place of the branch of an environment, in the remotes that it concerns, and
// what is served stays as it is.
func TestPin(t *testing.T) {
	t.Parallel()
	up := gitrepo.New(t, t.TempDir(), "states")
	up.Commit("master", "a.sls", "served\n", "sub/b.sls", "served\n")
	up.Branch("feature", "master")
	up.Commit("feature", "a.sls", "feature\n", "sub/b.sls", "feature\n")
	up.Git("tag", "v1", "feature")
	commit := strings.TrimSpace(up.Git("rev-parse", "feature"))
	gone := strings.Repeat("ab", 20)
	for _, id := range []string{commit, gone} { // branches that are named like commits
		up.Branch(id, "master")
		up.Commit(id, "a.sls", "another\n", "sub/b.sls", "another\n")
	}

	for _, tt := range []struct {
		name   string
		pin    gitremote.Pin
		want   string
		pinned bool
	}{
		{"nothing", gitremote.Pin{}, "served", false},
		{"a branch", gitremote.Pin{Ref: "feature"}, "feature", true},
		{"a tag", gitremote.Pin{Ref: "v1"}, "feature", true},
		{"a commit", gitremote.Pin{Ref: commit[:8]}, "feature", true},
		{"a whole id", gitremote.Pin{Ref: commit}, "feature", true},
		{"a whole id, in capitals", gitremote.Pin{Ref: strings.ToUpper(commit)}, "feature", true},
		{"the id of no commit", gitremote.Pin{Ref: gone}, "served", false},
		{"into its branch", gitremote.Pin{Ref: "feature", Into: "master"}, "feature", true},
		{"into another branch", gitremote.Pin{Ref: "feature", Into: "v1"}, "served", false},
		{"another remote", gitremote.Pin{Ref: "feature", Remote: "nosuch"}, "served", false},
		{"no such ref", gitremote.Pin{Ref: "nosuch"}, "served", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, b := serve(t, setting{remotes: []any{up.URL()}}, t.TempDir())
			_, err := b.update(t.Context())
			check.Must(t, err)
			p, err := b.Pin(t.Context(), "base", tt.pin)
			check.Must(t, err)
			if len(p.Dirs) != 1 || len(p.Refs) > 0 != tt.pinned {
				t.Fatalf("got %+v", p)
			}
			for _, name := range []string{"a.sls", "sub/b.sls"} {
				text, err := os.ReadFile(filepath.Join(p.Dirs[0], name))
				check.Must(t, err)
				if string(text) != tt.want+"\n" {
					t.Errorf("%s: %q", name, text)
				}
			}
			check.Must(t, p.Keep(t.Context()))
		})
	}
}
