package files

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"saltern/internal/control"
	"saltern/master/internal/mastertest"
	"saltern/master/runner"
	"saltern/test/await"
	"saltern/test/check"
)

// repository is a git repository with a work tree.
type repository struct {
	t   testing.TB
	dir string
}

func newRepository(t testing.TB) repository {
	t.Helper()
	mastertest.SaltPython(t)
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("SKIPPED: git is not installed")
	}
	r := repository{t, filepath.Join(t.TempDir(), "repository")}
	check.Must(t, os.MkdirAll(r.dir, 0o755))
	r.git("init", "-q", "-b", "master")
	return r
}

func (r repository) git(args ...string) {
	r.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a",
		"GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
	if out, err := cmd.CombinedOutput(); err != nil {
		r.t.Fatalf("git %v: %v: %s", args, err, out)
	}
}

// commit writes files, given as path and text, and commits them.
func (r repository) commit(files ...string) {
	r.t.Helper()
	for i := 0; i < len(files); i += 2 {
		check.Must(r.t, os.WriteFile(filepath.Join(r.dir, files[i]), []byte(files[i+1]), 0o644))
	}
	r.git("add", "-A")
	r.git("commit", "-q", "-m", "x")
}

// gitPillarMaster runs a master with git pillars that are fetched every
// second.
func gitPillarMaster(t testing.TB, options string) *mastertest.Master {
	return mastertest.Start(t,
		"saltern_renderer_python: "+mastertest.SaltPython(t)+"\nloop_interval: 1\ngit_pillar_update_interval: 1\n"+options)
}

// A commit reaches pillars within the interval. A remote that cannot be fetched
// is told of while it lasts, and the last commit is served meanwhile.
func TestGitPillarFetches(t *testing.T) {
	repo := newRepository(t)
	repo.commit("top.sls", "base:\n  '*': [x]\n", "x.sls", "from_git: 1\n")
	r := gitPillarMaster(t, "ext_pillar:\n  - git:\n    - master file://"+repo.dir+"\n")
	n := r.AcceptedMinion("min1", "min6")
	value := func() int64 { v, _ := n.Pillar().Int("from_git"); return v }
	problem := func() string {
		for _, p := range r.Parts.Problems.List() {
			if p.What == control.GitAwayFault {
				return p.Text
			}
		}
		return ""
	}

	if got := value(); got != 1 {
		t.Fatalf("before a commit: %d", got)
	}

	repo.commit("x.sls", "from_git: 2\n")
	await.That(t, "a commit is seen", func() bool { return value() == 2 })

	check.Must(t, os.Rename(repo.dir, repo.dir+".away"))
	await.That(t, "a fetch that failed is told of", func() bool { return problem() != "" })
	if got := problem(); !strings.Contains(got, repo.dir) ||
		!strings.Contains(got, "does not appear to be a git repository") || strings.Contains(got, "\n") {
		t.Errorf("the problem is %q", got)
	}

	if got := value(); got != 2 {
		t.Errorf("without the remote: %d", got)
	}

	check.Must(t, os.Rename(repo.dir+".away", repo.dir))
	repo.commit("x.sls", "from_git: 3\n")
	await.That(t, "a fetch works again", func() bool { return problem() == "" })
	await.That(t, "the commit is seen", func() bool { return value() == 3 })

	if !strings.Contains(r.Log.String(), "problem is over") {
		t.Error("the log does not tell of the end")
	}
}

// Values that are aggregated come from two repositories, and follow a commit.
func TestGitPillarAggregate(t *testing.T) {
	a, b := newRepository(t), newRepository(t)
	for name, repo := range map[string]repository{"a": a, "b": b} {
		repo.commit("top.sls", "base:\n  '*': ["+name+"]\n", name+".sls",
			"#!jinja|yamlex\nlist: !aggregate ["+name+"]\nof: {{ grains['id'] }}\n")
	}

	r := gitPillarMaster(t,
		"pillar_source_merging_strategy: aggregate\next_pillar:\n  - git:\n    - master file://"+a.dir+
			"\n    - master file://"+b.dir+"\n")
	n := r.AcceptedMinion("min1", "min6")
	has := func(want string) bool { return fmt.Sprint(n.Pillar().List("list")) == want }
	if p := n.Pillar(); !has("[a b]") || p.Str("of") != "min1" || len(p.List("_errors")) != 0 {
		t.Errorf("pillar %v", mastertest.PlainValue(p))
	}

	b.commit("b.sls", "#!yamlex\nlist: !aggregate [b, more]\n")
	await.That(t, "a commit is seen", func() bool { return has("[a b more]") })
}

// A branch that a minion's environment chooses is fetched as well.
func TestGitPillarFetchesEnvironments(t *testing.T) {
	repo := newRepository(t)
	repo.commit("top.sls", "base:\n  '*': [x]\n", "x.sls", "from_git: 1\n")
	repo.git("checkout", "-q", "-b", "feature/x")
	repo.commit("top.sls", "feature/x:\n  '*': [x]\n", "x.sls", "from_git: 10\n")
	r := gitPillarMaster(t, "ext_pillar:\n  - git:\n    - __env__ file://"+repo.dir+"\n")
	n := r.AcceptedMinion("min1", "min6")
	value := func(env any) int64 { v, _ := n.Pillar("pillarenv", env).Int("from_git"); return v }
	if base, dev := value(nil), value("feature/x"); base != 1 || dev != 10 {
		t.Fatalf("before a commit: %d and %d", base, dev)
	}

	repo.commit("x.sls", "from_git: 20\n")
	await.That(t, "a commit of the branch is seen", func() bool { return value("feature/x") == 20 })
	if got := value(nil); got != 1 {
		t.Errorf("the other branch: %d", got)
	}
}

// Minions that ask while a branch is cloned get whole pillars.
func TestGitPillarCloned(t *testing.T) {
	repo := newRepository(t)
	repo.commit("top.sls", "{{ saltenv }}:\n  '*': [x]\n", "x.sls", "from_git: 1\n")
	envs := []string{"e1", "e2", "e3"}
	for _, env := range envs {
		repo.git("branch", env)
	}

	r := gitPillarMaster(t, "saltern_renderer_max: 3\next_pillar:\n  - git:\n    - __env__ file://"+repo.dir+"\n")
	ns := []*mastertest.Minion{r.AcceptedMinion("min1", "min6"), r.AcceptedMinion("min2", "min7"), r.AcceptedMinion("min3", "min8")}
	for _, env := range append([]string{"base"}, envs...) {
		var wg sync.WaitGroup
		for _, n := range ns {
			wg.Go(func() {
				if p := n.Pillar("pillarenv", env); fmt.Sprint(p.Value("from_git")) != "1" {
					t.Errorf("%s of %s: %s", env, n.ID, runner.JSON(p, false))
				}
			})
		}

		wg.Wait()
	}
}

// With pillar_opts every ext_pillar gives what it has, whatever the others do,
// and the log says which of them failed.
func TestExtPillarsWithPillarOpts(t *testing.T) {
	repo := newRepository(t)
	repo.commit("top.sls", "base:\n  '*': [x]\n", "x.sls", "from_git: 1\n")
	dir := t.TempDir()
	check.Must(t, os.MkdirAll(filepath.Join(dir, "pillar"), 0o755))
	check.Must(t,
		os.WriteFile(filepath.Join(dir, "pillar", "unpackable.py"),
			[]byte("def ext_pillar(minion_id, pillar, *args):\n    return {'unpackable': object()}\n"),
			0o644))

	check.Must(t,
		os.WriteFile(filepath.Join(dir, "pillar", "raises.py"),
			[]byte("def ext_pillar(minion_id, pillar, *args):\n    raise ValueError('as asked')\n"),
			0o644))

	r := gitPillarMaster(t,
		"pillar_opts: True\nextension_modules: "+dir+
			"\next_pillar:\n  - cmd_yaml: 'echo first: 1'\n  - unpackable: 1\n  - raises: 1\n  - git:\n    - master file://"+repo.dir+"\n  - cmd_yaml: 'echo last: 1'\n")
	p := r.AcceptedMinion("min1", "min6").Pillar()
	for _, k := range []string{"first", "from_git", "last"} {
		if v, _ := p.Int(k); v != 1 {
			t.Errorf("%s: %v", k, v)
		}
	}

	if got := p.Map("master").Str("state_top"); got != "salt://top.sls" {
		t.Errorf("the options have state_top %q", got)
	}

	if errs := fmt.Sprint(p.List("_errors")); !strings.Contains(errs, "ext_pillar unpackable:") ||
		!strings.Contains(errs, "ext_pillar raises:") || strings.Contains(errs, "git") {
		t.Errorf("errors %s", errs)
	}

	for _, name := range []string{"'unpackable'", "'raises'"} {
		if !regexp.MustCompile(`level=ERROR.*ext_pillar ` + name).MatchString(r.Log.String()) {
			t.Errorf("the log does not name %s", name)
		}
	}
}
