package gitpillar

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"saltern/master/internal/git"
	"saltern/master/internal/gitremote"
	"saltern/master/saltyaml"
	"saltern/test/check"
	"saltern/test/gitrepo"
)

// sources makes sources of git pillars, all of one store.
type sources struct {
	t     *testing.T
	store *git.Store
}

func newSources(t *testing.T) *sources {
	store, err := git.Open(git.Config{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	check.Must(t, err)
	t.Cleanup(store.Close)
	return &sources{t, store}
}

// open reads the option ext_pillar, in YAML. What it names is not fetched yet.
func (s *sources) open(extPillar string) (*Source, error) {
	s.t.Helper()
	option, err := saltyaml.Decode([]byte(extPillar), "ext_pillar")
	check.Must(s.t, err)
	defaults := &gitremote.Defaults{}
	defaults.Base = "master"
	defaults.Branch = "master"
	defaults.RefTypes = []string{"branch", "tag", "sha"} // as by default
	batch := s.store.Batch()
	source, err := New(s.t.Context(), batch, option.([]any), defaults, slog.New(slog.DiscardHandler))
	if err != nil {
		batch.Drop()
		return nil, err
	}

	batch.Commit()
	return source, nil
}

// fetched is open, and a fetch of everything.
func (s *sources) fetched(extPillar string) *Source {
	s.t.Helper()
	source, err := s.open(extPillar)
	check.Must(s.t, err)
	_, err = s.store.FetchAll(s.t.Context(), nil)
	check.Must(s.t, err)
	return source
}

// read returns a file of a root, or "".
func read(root Root, name string) string {
	text, err := os.ReadFile(filepath.Join(root.Dir, name))
	if err != nil {
		return ""
	}
	return string(text)
}

// TestRootsOfEnvironments: which branch a minion gets, and as which pillar environment, for
// each way of writing a remote (salt/utils/gitfs.py GitPillar.checkout, get_checkout_target).
func TestRootsOfEnvironments(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	up := gitrepo.New(t, dir, "a")
	up.Commit("master", "x.sls", "of master", "sub/x.sls", "of sub")
	up.Commit("dev", "x.sls", "of dev")
	up.Git("tag", "v1", "dev")
	pinned := up.Commit("dev", "x.sls", "later")
	s := newSources(t)

	for _, tt := range []struct {
		name               string
		remote             string // below "- git:"; URL stands for the repository
		pillarenv, saltenv string
		env, text          string // both empty: there is no root
	}{
		{"a branch", "- master URL", "", "", "base", "of master"},
		{"a branch, whatever the environment", "- master URL", "dev", "dev", "base", "of master"},
		{"another branch is an environment", "- dev URL", "", "", "dev", "later"},
		{"a tag", "- v1 URL", "", "", "v1", "of dev"},
		{"a named environment", "- dev URL:\n      - env: base", "", "", "base", "later"},
		{"the environment of the minion", "- dev URL:\n      - env: __env__", "prod", "", "prod", "later"},
		{"any branch: base", "- __env__ URL", "", "", "base", "of master"},
		{"any branch: the pillar environment", "- __env__ URL", "dev", "", "dev", "later"},
		{"any branch: the environment of files", "- __env__ URL", "", "dev", "dev", "later"},
		{"any branch: the first of both", "- __env__ URL", "dev", "master", "dev", "later"},
		{"any branch: none of that name", "- __env__ URL", "gone", "", "", ""},
		{"any branch: a fallback", "- __env__ URL:\n      - fallback: dev", "gone", "", "gone", "later"},
		{"one branch for all environments", "- __env__ URL:\n      - all_saltenvs: dev", "prod", "", "prod", "later"},
		{"a root", "- master URL:\n      - root: sub", "", "", "base", "of sub"},
		{"a root that is not there", "- dev URL:\n      - root: sub", "", "", "", ""},
		{"a commit", "- " + pinned + " URL", "", "", pinned, "later"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			source := s.fetched("- git:\n    " + strings.ReplaceAll(tt.remote, "URL", up.URL()) + "\n")
			roots, err := source.Roots(t.Context(), 0, tt.pillarenv, tt.saltenv)
			check.Must(t, err)
			if tt.env == "" {
				if len(roots) != 0 {
					t.Errorf("roots: %+v", roots)
				}
				return
			}

			if len(roots) != 1 || roots[0].Env != tt.env || read(roots[0], "x.sls") != tt.text {
				t.Errorf("roots: %+v, want %s with %q", roots, tt.env, tt.text)
			}
		})
	}
}

// TestMountpoint: a mounted root is found below its path, and is told apart, for it has no top file.
func TestMountpoint(t *testing.T) {
	t.Parallel()
	up := gitrepo.New(t, t.TempDir(), "a")
	up.Commit("master", "x.sls", "text")
	source := newSources(t).fetched("- git:\n  - master " + up.URL() + ":\n    - mountpoint: apps/web\n")

	roots, err := source.Roots(t.Context(), 0, "", "")
	check.Must(t, err)
	if len(roots) != 1 || !roots[0].Mounted || read(roots[0], "apps/web/x.sls") != "text" {
		t.Fatalf("roots: %+v", roots)
	}

	python := ForPython(roots)
	if want := []any{"base", roots[0].Dir, true}; len(python) != 1 || !slices.Equal(python[0].([]any), want) {
		t.Errorf("for Python: %v, want %v", python, want)
	}
}

// TestOrderOfEntries: entries are told apart by their number, remotes keep their order, and
// one repository is fetched once.
func TestOrderOfEntries(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, second := gitrepo.New(t, dir, "a"), gitrepo.New(t, dir, "b")
	first.Commit("master", "x.sls", "first")
	first.Commit("dev", "x.sls", "first dev")
	second.Commit("master", "x.sls", "second")
	source := newSources(t).fetched("- cmd_json: echo\n" +
		"- git:\n  - master " + second.URL() + "\n  - master " + first.URL() + "\n" +
		"- git:\n  - dev " + first.URL() + "\n")

	if source.Len() != 2 || len(source.Repositories()) != 2 || len(source.Remotes()) != 3 {
		t.Errorf("%d entries, %d repositories, %d remotes", source.Len(), len(source.Repositories()),
			len(source.Remotes()))
	}

	for n, want := range [][]string{{"second", "first"}, {"first dev"}} {
		roots, err := source.Roots(t.Context(), n, "", "")
		check.Must(t, err)
		var got []string
		for _, root := range roots {
			got = append(got, read(root, "x.sls"))
		}

		if !slices.Equal(got, want) {
			t.Errorf("entry %d: %q, want %q", n, got, want)
		}
	}
}

// TestPreparedSnapshotServes: pillars are compiled from what was prepared, not from what a
// fetch has brought since, and a source that takes another one's remotes forgets the rest.
func TestPreparedSnapshotServes(t *testing.T) {
	t.Parallel()
	up := gitrepo.New(t, t.TempDir(), "a")
	up.Commit("master", "x.sls", "old")
	s := newSources(t)
	option := "- git:\n  - master " + up.URL() + "\n"
	source := s.fetched(option)
	repo := source.Repositories()[0]
	source.Prepare(t.Context(), repo, repo.Snapshot())
	text := func() string {
		roots, err := source.Roots(t.Context(), 0, "", "")
		check.Must(t, err)
		return read(roots[0], "x.sls")
	}

	up.Commit("master", "x.sls", "new")
	changed, err := repo.Fetch(t.Context())
	check.Must(t, err)
	if !changed || text() != "old" {
		t.Errorf("before Prepare: changed %v, %q", changed, text())
	}

	source.Prepare(t.Context(), repo, repo.Snapshot())
	if text() != "new" {
		t.Errorf("after Prepare: %q", text())
	}

	other := gitrepo.New(t, t.TempDir(), "b")
	other.Commit("master", "x.sls", "other")
	source.Replace(s.fetched("- git:\n  - master " + other.URL() + "\n"))
	if text() != "other" || len(source.prepared) != 0 {
		t.Errorf("after Replace: %q, %d snapshots are kept", text(), len(source.prepared))
	}
}

// TestUnfetchedRemote: a pillar without a remote that was never fetched is not whole, so Roots
// fails, names the remote, and says whether another master may do better.
func TestUnfetchedRemote(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	there := gitrepo.New(t, dir, "there")
	there.Commit("master", "x.sls", "text")
	s := newSources(t)
	source, err := s.open("- git:\n  - master " + there.URL() + "\n  - master file://" + dir + "/away\n")
	check.Must(t, err)

	if _, err := s.store.FetchAll(t.Context(), nil); err == nil {
		t.Fatal("a repository that is not there was fetched")
	}

	roots, err := source.Roots(t.Context(), 0, "", "")
	if err == nil || !strings.Contains(err.Error(), dir+"/away") || strings.Contains(err.Error(), "/there") {
		t.Errorf("error: %v", err)
	}

	if len(roots) != 1 || read(roots[0], "x.sls") != "text" {
		t.Errorf("the remote that is there: %+v", roots)
	}

	if Unable(err) {
		t.Error("a remote with a fault is taken for a fault of this master")
	}

	if !Unable(errors.Join(errors.New("x"), errUnfetched)) || !Unable(git.ErrNoRoom) {
		t.Error("a first fetch that goes on, or a full disk, is taken for a fault of the remote")
	}
}

// TestWrongEntries: what is wrong with ext_pillar is said, all of it at once.
func TestWrongEntries(t *testing.T) {
	t.Parallel()
	s := newSources(t)
	for _, tt := range []struct {
		name, option string
		want         []string
	}{
		{"no list", "- git: master file:///srv/a\n", []string{"is a list of remotes"}},
		{"an unknown option", "- git:\n  - master file:///srv/a:\n    - rooot: x\n", []string{"rooot"}},
		{"one remote twice", "- git:\n  - master file:///srv/a\n  - master file:///srv/a\n",
			[]string{"two remotes of one name"}},
		{"several faults", "- git: x\n- git:\n  - master file:///srv/a:\n    - rooot: x\n",
			[]string{"is a list of remotes", "rooot"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := s.open(tt.option)
			for _, want := range tt.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v, want %q in it", err, want)
				}
			}
		})
	}

	if n := len(s.store.Repositories()); n != 0 {
		t.Errorf("wrong options left %d repositories", n)
	}
}
