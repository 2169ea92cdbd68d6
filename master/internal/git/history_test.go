package git

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/test/check"
	"saltern/test/gitrepo"
)

// history returns a copy of a remote, and the last commit of its branch master.
func history(t *testing.T, depth int, fill func(up *gitrepo.Repo)) (*Repository, string) {
	t.Helper()
	up := gitrepo.New(t, t.TempDir(), "a")
	fill(up)
	r := add(t, open(t, t.TempDir(), Limits{}), Remote{URL: up.URL(), Depth: depth})
	fetch(t, r)
	return r, strings.TrimSpace(up.Git("rev-parse", "master"))
}

// TestLastChangeOfHostilePaths: a path is one file, whatever its name looks like, and no option of git's.
func TestLastChangeOfHostilePaths(t *testing.T) {
	t.Parallel()
	outside := filepath.Join(t.TempDir(), "outside")
	hostile := []string{"--output=" + outside, "-L1,1", ":(glob)*", ":!x", "*", "a b", "ä", `q"t`, "a\\b", "$(touch x)", "HEAD", strings.Repeat("n", 255)}
	r, commit := history(t, 0, func(up *gitrepo.Repo) {
		up.Commit("master", "other", "x\n")
		for _, path := range hostile {
			up.Commit("master", path, "one: 1\ntwo: 2\n")
		}
		up.Commit("master", ".mailmap", "Somebody Else <x@x> <test@example.com>\n", ".gitattributes", "* diff=run\n")
	})

	seen := map[string]bool{}
	for _, path := range hostile {
		var commits []string
		for _, line := range []int{0, 1, 2} {
			c, err := r.LastChange(t.Context(), commit, path, line)
			if err != nil {
				t.Errorf("%q, line %d: %v", path, line, err)
				continue
			}
			commits = append(commits, c.Commit)
			if c.Cut || c.Author == "" || strings.Contains(c.Author, "Somebody") || time.Since(c.Time) < 0 {
				t.Errorf("%q: %+v", path, c)
			}
		}
		if len(commits) != 3 || commits[0] != commits[1] || commits[0] != commits[2] || seen[commits[0]] {
			t.Errorf("%q: commits %q, each file has one of its own", path, commits)
			continue
		}
		seen[commits[0]] = true
	}
	if _, err := os.Lstat(outside); err == nil {
		t.Error("a path was an option")
	}

	for _, tt := range []struct {
		commit, path string
		line         int
	}{
		{commit, "../other", 0},
		{commit, "/etc/passwd", 0},
		{commit, "", 0},
		{commit, "nosuch", 1},
		{commit, "nosuch", 0},
		{commit, "other", 2},
		{commit, "other", -1},
		{commit, "other\x00", 1},
		{commit, strings.Repeat("d/", 3000) + "f", 1},
		{"HEAD", "other", 0},
		{"--all", "other", 0},
		{strings.Repeat("0", 40), "other", 1},
		{commit + "^", "other", 0},
	} {
		began := time.Now()
		c, err := r.LastChange(t.Context(), tt.commit, tt.path, tt.line)
		if err == nil {
			t.Errorf("%.20q %.20q line %d: %+v", tt.commit, tt.path, tt.line, c)
		}
		if took := time.Since(began); took > 2*historyTakes {
			t.Errorf("%.20q: %v", tt.path, took)
		}
	}
}

// TestLastChangeOfShallowClones: of a commit without its parents it is not known whether it has made the change.
func TestLastChangeOfShallowClones(t *testing.T) {
	t.Parallel()
	var first, second string
	fill := func(up *gitrepo.Repo) {
		up.Commit("master", "f", "one\ntwo\n")
		up.Commit("master", "other", "x\n")
		up.Commit("master", "f", "one\nthree\n")
		first = strings.TrimSpace(up.Git("rev-parse", "master~2"))
		second = strings.TrimSpace(up.Git("rev-parse", "master"))
	}
	clones := map[int]*Repository{}
	commit := ""
	for _, depth := range []int{0, 1, 2, 4} {
		clones[depth], commit = history(t, depth, fill)
	}
	for _, tt := range []struct {
		depth, line int
		cut         bool
		commit      *string
	}{
		{0, 1, false, &first},
		{0, 2, false, &second},
		{0, 0, false, &second},
		{1, 1, true, &second},
		{1, 2, true, &second},
		{1, 0, true, &second},
		{2, 2, false, &second},
		{4, 1, false, &first},
	} {
		t.Run(fmt.Sprintf("depth %d, line %d", tt.depth, tt.line), func(t *testing.T) {
			c, err := clones[tt.depth].LastChange(t.Context(), commit, "f", tt.line)
			check.Must(t, err)
			if c.Commit != *tt.commit || c.Cut != tt.cut {
				t.Errorf("%+v, want %s, cut %v", c, *tt.commit, tt.cut)
			}
		})
	}
}
