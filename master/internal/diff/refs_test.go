package diff

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/master/internal/git"
	"saltern/master/internal/gitpillar"
	"saltern/master/internal/gitremote"
	"saltern/master/saltyaml"
	"saltern/master/value"
	"saltern/test/check"
	"saltern/test/gitrepo"
)

// gitService returns a Service of a master with a pillar from git, and the repository. prepare adds to
// the repository.
func gitService(t *testing.T, prepare ...func(*gitrepo.Repo)) (*Service, *gitrepo.Repo) {
	up := gitrepo.New(t, t.TempDir(), "pillar")
	up.Commit("master", "top.sls", "base: {'*': [web]}\n", "web.sls", "port: 80\n")
	up.Branch("feature", "master")
	up.Commit("feature", "web.sls", "port: 8080\nnew: 1\n")
	up.Git("tag", "v1", "feature")
	for _, f := range prepare {
		f(up)
	}

	store, err := git.Open(git.Config{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	check.Must(t, err)
	t.Cleanup(store.Close)
	option, err := saltyaml.Decode([]byte("- git:\n  - master "+up.URL()+"\n"), "ext_pillar")
	check.Must(t, err)
	defaults := &gitremote.Defaults{}
	defaults.Base = "master"
	defaults.Branch = "master"
	defaults.RefTypes = []string{"branch", "tag", "sha"}
	batch := store.Batch()
	source, err := gitpillar.New(t.Context(), batch, option.([]any), defaults, slog.New(slog.DiscardHandler))
	check.Must(t, err)
	batch.Commit()
	_, err = store.FetchAll(t.Context(), nil)
	check.Must(t, err)

	s, _ := newService(t, nil, manyMinions(2), func(c *Config) {
		c.Pillar.ExtPillar = option.([]any)
		c.Pillar.Git = source
	})
	return s, up
}

func compareRef(ctx context.Context, s *Service, pairs ...any) (*Report, error) {
	r, err := requestOf("pillar.diff", nil, value.NewMap(pairs...))
	if err != nil {
		return nil, err
	}
	return s.Compare(ctx, r, func(string) {})
}

func TestRefs(t *testing.T) {
	t.Parallel()
	s, up := gitService(t)
	feature := strings.TrimSpace(up.Git("rev-parse", "feature"))
	forth := "2 minions: m0000, m0001\n  ~ port: 80 → 8080\n  + new: 1\n"
	back := "2 minions: m0000, m0001\n  ~ port: 8080 → 80\n  - new: 1\n"
	for _, tt := range []struct {
		name  string
		pairs []any
		want  string // "": nothing differs
	}{
		{"a branch", []any{"ref", "feature"}, forth},
		{"a tag", []any{"ref", "v1"}, forth},
		{"a commit", []any{"ref", feature}, forth},
		{"a short commit", []any{"ref", feature[:8]}, forth},
		{"what is served", []any{"ref", "master"}, ""},
		{"two refs", []any{"from", "feature", "ref", "v1"}, ""},
		{"back", []any{"from", "feature", "ref", "master"}, back},
		{"of a named remote", []any{"ref", "feature", "remote", "pillar"}, forth},
	} {
		t.Run(tt.name, func(t *testing.T) {
			report, err := compareRef(t.Context(), s, tt.pairs...)
			check.Must(t, err)
			if text := report.Text(false); tt.want == "" && report.Code() != codeSame || !strings.HasSuffix(text, tt.want) {
				t.Errorf("got\n%s", text)
			}
		})
	}

	for want, pairs := range map[string][]any{
		"or commit \"nosuch\"":  {"ref", "nosuch"},
		"exclude each other":    {"ref", "feature", "folder", "/srv/x"},
		"name what to compare":  {},
		"unexpected keyword":    {"ref", "feature", "nosuch", 1},
		"too long":              {"ref", strings.Repeat("x", 5000)},
		"format is":             {"ref", "feature", "format", "html"},
		"is not below a folder": {"folder", "/etc"},
		"must be the absolute":  {"folder", "etc"},
		"no git remote of what": {"ref", "feature", "remote", "nosuch"},
	} {
		if _, err := compareRef(t.Context(), s, pairs...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", pairs, err)
		}
	}
}

// TestTurns: one comparison runs, some wait, others are refused; who leaves makes room.
func TestTurns(t *testing.T) {
	t.Parallel()
	s, _ := newService(t, served, manyMinions(1), nil)
	done, err := s.takeTurn(t.Context(), func(string) {})
	check.Must(t, err)

	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error)
	told := make(chan string, maxWaiting)
	for range maxWaiting {
		go func() {
			_, err := s.takeTurn(ctx, func(text string) { told <- text })
			left <- err
		}()
	}
	for range maxWaiting {
		<-told
	}
	if _, err := s.takeTurn(t.Context(), func(string) {}); !errors.Is(err, ErrBusy) {
		t.Errorf("one too many: %v", err)
	}

	leave()
	for range maxWaiting {
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("who left got %v", err)
		}
	}
	done()
	done, err = s.takeTurn(t.Context(), func(string) {})
	check.Must(t, err)
	done()
}

// TestFolders: links are left out, and nothing of a copy remains.
func TestFolders(t *testing.T) {
	t.Parallel()
	s, root := newService(t, served, manyMinions(1), nil)
	dir := write(t, root+"/linked", map[string]string{"top.sls": served["top.sls"], "secret.txt": "x"})
	check.Must(t, os.Symlink("/etc/hostname", dir+"/deb.sls"))
	check.Must(t, os.Symlink("/", dir+"/up"))
	check.Must(t, os.Symlink(root+"/linked", root+"/alias"))
	report, err := compareRef(t.Context(), s, "folder", root+"/alias")
	check.Must(t, err)
	if text := report.Text(false); !strings.Contains(text, `SLS 'deb' in environment 'base' is not available`) {
		t.Errorf("a link is followed:\n%s", text)
	}
	left, err := os.ReadDir(root + "/work")
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}

	check.Must(t, os.MkdirAll(filepath.Join(dir, strings.Repeat("d/", maxFolderDepth+2)), 0o755))
	if _, err := compareRef(t.Context(), s, "folder", dir); err == nil || !strings.Contains(err.Error(), "nested") {
		t.Errorf("a deep folder: %v", err)
	}
}

// TestEnds: a comparison ends in time, and when its caller leaves.
func TestEnds(t *testing.T) {
	t.Parallel()
	python(t)
	loop := with(served, "common.sls", "{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}\n")
	s, root := newService(t, loop, manyMinions(1), func(c *Config) { c.Takes = 3 * time.Second })
	write(t, root+"/other", loop)
	began := time.Now()
	_, err := compareRef(t.Context(), s, "folder", root+"/other")
	if err == nil || !strings.Contains(err.Error(), "saltern_diff_timeout") {
		t.Errorf("after %v: %v", time.Since(began), err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := compareRef(ctx, s, "folder", root+"/other"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("left: %v", err)
	}
	if took := time.Since(began); took > 40*time.Second {
		t.Errorf("it took %v", took)
	}
}

// TestRootsWithTheSameName: two roots have a file of the same name, and only that of git is of the ref.
func TestRootsWithTheSameName(t *testing.T) {
	t.Parallel()
	python(t)
	names := []string{"top.sls", "web.sls"}
	s, _ := gitService(t, func(up *gitrepo.Repo) {
		for _, name := range names {
			up.Branch("hides-"+name, "master")
			up.Commit("hides-"+name, name, "# {{ salt['cmd.run']('id') }}\nbase: {'*': [other]}\n", "other.sls", "x: 1\n")
		}
	})
	roots := write(t, t.TempDir(), map[string]string{"top.sls": "base: {'*': [web]}\n", "web.sls": "own: 1\n"})
	s.cfg.Pillar.Roots = map[string][]string{"base": {roots}}

	for _, name := range names {
		report, err := compareRef(t.Context(), s, "ref", "hides-"+name)
		check.Must(t, err)
		if report.Code() != codeDiffers {
			t.Errorf("%s: %s", name, report.Text(false))
		}
	}
}
