package master

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/master/value"
	"saltern/test/gitrepo"
)

// gitFile is a file that a minion gets; empty: there is none.
func (n *scriptedMinion) gitFile(path, env string) string {
	m, _ := n.ask("_serve_file", "path", path, "saltenv", env, "loc", int64(0)).(*value.Map)
	if b, ok := m.Value("data").([]byte); ok {
		return string(b)
	}
	return m.Str("data")
}

// A master serves a repository beside roots: a push within the interval, at once
// after fileserver.update; what was fetched last without the remote, and after a
// restart.
func TestGitFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	up := gitrepo.New(t, dir, "a")
	up.Commit("master", "git.sls", "one", "both.sls", "git")
	up.Commit("dev", "git.sls", "dev")
	url, stop := gitrepo.Daemon(t, dir)
	roots := t.TempDir()
	must(t, os.WriteFile(filepath.Join(roots, "both.sls"), []byte("roots"), 0o644))
	options := func(interval int) string {
		return fmt.Sprintf("fileserver_backend: [roots, git]\nfile_roots: {base: [%s]}\ngitfs_remotes: ['%sa']\ngitfs_update_interval: %d\nfileserver_events: True\n",
			roots, url, interval)
	}

	r := startMaster(t, options(1))
	events := r.m.bus.Subscribe("test", 1000, func(tag string) bool { return tag == "salt/fileserver/gitfs/update" })
	defer events.Close()

	n := r.accepted("min1", "min6")
	until(t, "the first fetch", func() bool { return n.gitFile("git.sls", "base") == "one" })
	if got := n.gitFile("both.sls", "base"); got != "roots" {
		t.Errorf("the first backend has %q", got)
	}

	if got := n.gitFile("git.sls", "dev"); got != "dev" {
		t.Errorf("the branch has %q", got)
	}

	if got := fmt.Sprint(n.ask("_file_envs")); got != "[base dev]" {
		t.Errorf("environments %s", got)
	}

	up.Commit("master", "git.sls", "two")
	up.Git("update-ref", "-d", "refs/heads/dev")
	until(t, "a push", func() bool { return n.gitFile("git.sls", "base") == "two" })
	if got := n.gitFile("git.sls", "dev"); got != "" {
		t.Errorf("a branch that is gone has %q", got)
	}

	seen := map[string]bool{}
	until(t, "events of fetches", func() bool {
		select {
		case e := <-events.C:
			if b := e.Data.Str("backend"); b != "gitfs" {
				t.Errorf("event of %q", b)
			}
			seen[fmt.Sprint(e.Data.Value("changed"))] = true
		default:
		}

		return seen["true"] && seen["false"]
	})

	stop()
	problem := func() string {
		for _, p := range r.m.problems.List() {
			if p.What == control.GitAwayFault {
				return p.Text
			}
		}
		return ""
	}

	until(t, "the fault is told of", func() bool { return strings.Contains(problem(), "(files)") })
	r.stop()
	must(t, r.start(options(1)))
	n = n.at(r)
	if got := n.gitFile("git.sls", "base"); got != "two" {
		t.Errorf("after a restart without the remote: %q", got)
	}
}

// The runners about git.
func TestGitRunners(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	up := gitrepo.New(t, dir, "a")
	first := up.Commit("master", "top.sls", "base:\n  '*': [x]\n", "x.sls", "from_git: 1\n", "d/f", "x", "l", "->x.sls")
	r := startMaster(t,
		"fileserver_backend: [gitfs]\ngitfs_remotes: ['"+up.URL()+
			"']\ngitfs_update_interval: 3600\ngit_pillar_update_interval: 3600\next_pillar: [{git: ['master "+up.URL()+"']}]\n")
	call := func(fun string, kv ...any) any {
		t.Helper()
		v, err := r.m.runs.Call(t.Context(), fun, nil, value.NewMap(kv...))
		must(t, err)
		return v
	}

	n := r.accepted("min1", "min6")
	until(t, "the first fetch", func() bool { return n.gitFile("x.sls", "base") != "" })
	commit := func() string {
		m, _ := call("git.status").(*value.Map)
		return m.Map(up.Dir).Map("refs").Str("refs/remotes/origin/master")
	}

	if got := commit(); got != first {
		t.Errorf("serves %q", got)
	}

	for _, c := range []struct {
		fun, want string
	}{
		{"fileserver.envs", "[base]"}, {"fileserver.file_list", "[d/f l top.sls x.sls]"}, {"fileserver.dir_list", "[d]"}, {"fileserver.symlink_list", "map[l:x.sls]"}, {"fileserver.empty_dir_list", "[]"},
		{"fileserver.lock", "No locks were set"}, {"fileserver.clear_lock", "No locks were removed"}, {"fileserver.clear_cache", "map[cleared:[The gitfs fileserver cache was successfully cleared]]"},
	} {
		if got := fmt.Sprint(plainValue(call(c.fun))); got != c.want {
			t.Errorf("%s: %s", c.fun, got)
		}
	}

	if m, _ := call("cache.clear_git_lock", "role", "gitfs").(*value.Map); len(m.List("cleared")) != 0 ||
		m.Str("note") == "" {
		t.Errorf("clear_git_lock: %v", m)
	}

	for i, fun := range []string{"fileserver.update", "git_pillar.update", "git.fetch"} {
		want := up.Commit("master", "x.sls", fmt.Sprintf("from_git: %d\n", i+2))
		call(fun)
		if got := commit(); got != want {
			t.Errorf("%s: serves %s, not %s", fun, got, want)
		}

		if v, _ := n.pillar().Int("from_git"); v != int64(i+2) {
			t.Errorf("%s: the pillar has %d", fun, v)
		}
	}

	for _, c := range []struct{ branch, repo, want string }{
		{"master", "", "map[master " + up.URL() + ":<nil>]"},
		{"", up.URL(), "map[master " + up.URL() + ":<nil>]"},
	} {
		if got := fmt.Sprint(plainValue(call("git_pillar.update", "branch", c.branch, "repo", c.repo))); got != c.want {
			t.Errorf("git_pillar.update %s %s: %s", c.branch, c.repo, got)
		}
	}

	if _, err := r.m.runs.Call(t.Context(), "git_pillar.update", nil, value.NewMap("branch", "nosuch")); err == nil || !strings.Contains(err.Error(), "not found in ext_pillar") {
		t.Errorf("an unknown branch: %v", err)
	}
}

// plainValue makes maps of values comparable.
func plainValue(v any) any {
	switch v := v.(type) {
	case *value.Map:
		out := map[string]any{}
		for k, x := range v.All() {
			out[fmt.Sprint(k)] = plainValue(x)
		}
		return out
	case []any:
		out := slices.Clone(v)
		for i := range out {
			out[i] = plainValue(out[i])
		}
		return out
	}

	return v
}

// An update on one master reaches all within 5 s, and each knows what the others
// serve.
func TestGitInCluster(t *testing.T) {
	dir := t.TempDir()
	up := gitrepo.New(t, dir, "a")
	up.Commit("master", "f", "one")
	ms := masters(t, 3, "fileserver_backend: [gitfs]\ngitfs_remotes: ['"+up.URL()+"']\ngitfs_update_interval: 3600\n")
	joined(t, ms)
	state := func(r *running) *value.Map {
		v, err := r.m.runs.Call(t.Context(), "git.status", nil, nil)
		must(t, err)
		return v.(*value.Map).Map(up.Dir)
	}

	serves := func(r *running) string { return state(r).Map("refs").Str("refs/remotes/origin/master") }
	for _, r := range ms {
		until(t, "the first fetch", func() bool { return serves(r) != "" })
	}

	for how, fetch := range map[string]func() error{
		"fileserver.update": func() error {
			_, err := ms[1].m.runs.Call(t.Context(), "fileserver.update", nil, nil)
			return err
		},
		// As after the interval: one master fetches, and asks nobody to.
		"one fetches": func() error {
			got, err := ms[2].m.repos.FetchGit(t.Context(), "a")
			if err == nil && (len(got.Remotes) != 1 || !got.Remotes[0].Files || got.Remotes[0].Fetched.IsZero()) {
				t.Errorf("%+v", got)
			}
			return err
		},
	} {
		want := up.Commit("master", "f", how)
		begun := time.Now()
		if err := fetch(); err != nil {
			t.Fatalf("%s: %v", how, err)
		}

		for _, r := range ms {
			until(t, how+": the push is on all masters", func() bool { return serves(r) == want })
		}

		if d := time.Since(begun); d > 5*time.Second {
			t.Errorf("%s: it took %v", how, d)
		}
	}

	if _, err := ms[0].m.repos.FetchGit(t.Context(), "nosuch"); !errors.Is(err, control.ErrNoSuchRemote) {
		t.Errorf("an unknown remote: %v", err)
	}

	for _, r := range ms {
		until(t, "each knows the others", func() bool {
			same := 0
			for _, v := range state(r).Map("other_masters").All() {
				if m, _ := v.(*value.Map); m.Bool("same") {
					same++
				}
			}
			return same == len(ms)-1
		})
	}
}

// Wrong remotes keep a master from starting, and say what to write.
func TestGitWrongOptions(t *testing.T) {
	t.Parallel()
	for options, want := range map[string]string{
		"fileserver_backend: [gitfs]\ngitfs_remotes: ['ext::sh -c id']\n":                             "not the URL",
		"fileserver_backend: [gitfs]\ngitfs_remotes: [{'https://u:TOPSECRET@h/x': [{nosuch: 1}]}]\n":  "there is no option",
		"ext_pillar: [{git: [{'master https://h/x': [{root: ../x}]}]}]\n":                             "leads out",
		"ext_pillar: [{git: ['master https://u:TOPSECRET@h/x', 'master https://u:TOPSECRET@h/x']}]\n": "two remotes of one name",
	} {
		dir, err := os.MkdirTemp("", "saltern")
		must(t, err)
		t.Cleanup(func() { os.RemoveAll(dir) })
		r := &running{t: t, dir: dir, log: &logLines{}, host: "127.0.0.1"}
		err = r.start(options)
		if err == nil {
			r.stop()
		}

		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "TOPSECRET") {
			t.Errorf("%s: %v", options, err)
		}
	}

	r := startMaster(t, "git_pillar_verify_config: False\next_pillar: [{git: ['master ext::x']}]\n")
	if !strings.Contains(r.log.String(), "git pillars are left out") {
		t.Error("the log does not say that git pillars are left out")
	}
}

// An orchestration and a reaction find their files, what these import, and pillars
// in git.
func TestGitForPython(t *testing.T) {
	t.Parallel()
	python := saltPython(t)
	dir := t.TempDir()
	up := gitrepo.New(t, dir, "a")
	up.Commit("master", "orch/map.jinja", "{% set word = 'imported' %}", "orch/x.sls", "{% from 'orch/map.jinja' import word %}\nhello:\n  test.succeed_with_changes:\n    - name: {{ word }}-{{ pillar.get('from_git', 'missing') }}\n",
		"react.sls", "{% from 'orch/map.jinja' import word %}\nx:\n  runner.event.send:\n    - tag: reacted/{{ word }}\n")
	up.Commit("dev", "orch/x.sls", "hello:\n  test.succeed_with_changes:\n    - name: of-dev\n")
	pillars := gitrepo.New(t, dir, "p")

	// Branches of one tree are one directory.
	pillars.Branch("dev",
		pillars.Commit("master", "top.sls", "base:\n  '*': [x]\n", "x.sls", "from_git: {{ 6 * 7 }}\n"))
	r := startMaster(t,
		"saltern_renderer_python: "+python+"\nfileserver_backend: [gitfs, roots]\ngitfs_remotes: ['"+
			up.URL()+"']\next_pillar: [{git: ['master "+pillars.URL()+"', 'dev "+pillars.URL()+"']}]\nreactor: [{my/event: ['salt://react.sls']}]\n")
	n := r.accepted("min1", "min6")
	until(t, "the first fetch", func() bool { return n.gitFile("react.sls", "base") != "" })

	for env, want := range map[string]string{"base": "imported-42", "dev": "of-dev"} {
		v, err := r.m.runs.Call(t.Context(), "state.orchestrate", []any{"orch.x"}, value.NewMap("saltenv", env))
		if text := fmt.Sprint(plainValue(v)); err != nil || !strings.Contains(text, want) {
			t.Errorf("orchestration in %s: %s %v", env, text, err)
		}
	}

	events := r.m.bus.Subscribe("test", 1000, func(tag string) bool { return strings.HasPrefix(tag, "reacted/") })
	defer events.Close()
	r.m.fire("my/event", value.NewMap())
	until(t, "a reaction", func() bool {
		select {
		case e := <-events.C:
			return e.Tag == "reacted/imported"
		default:
			return false
		}
	})
}

// A remote is added and taken away without a restart; wrong options change nothing.
func TestGitReload(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b := gitrepo.New(t, dir, "a"), gitrepo.New(t, dir, "b")
	a.Commit("master", "a.sls", "one", "top.sls", "base:\n  '*': [p]\n", "p.sls", "of: a\n")
	b.Commit("master", "b.sls", "two", "top.sls", "base:\n  '*': [q]\n", "q.sls", "more: b\n")
	options := func(files, pillars string) string {
		return "fileserver_backend: [gitfs]\ngitfs_remotes: [" + files + "]\next_pillar: [{git: [" +
			pillars + "]}]\ngitfs_update_interval: 3600\n"
	}

	first := options("'"+a.URL()+"'", "master "+a.URL())
	r := startMaster(t, first)
	n := r.accepted("min1", "min6")
	until(t, "the first fetch", func() bool { return n.gitFile("a.sls", "base") == "one" })

	if got := fmt.Sprint(n.ask("_file_list", "saltenv", "base")); got != "[a.sls p.sls top.sls]" {
		t.Errorf("files %s", got)
	}

	head, err := os.ReadFile(r.path("master"))
	must(t, err)
	reload := func(text string) error {
		t.Helper()
		must(t, os.WriteFile(r.path("master"), []byte(strings.Replace(string(head), first, text, 1)), 0o600))
		_, err := r.m.runs.Call(t.Context(), "git.reload", nil, nil)
		return err
	}

	must(t, reload(options("'"+a.URL()+"', '"+b.URL()+"'", "master "+a.URL()+", master "+b.URL())))
	until(t, "the new remote", func() bool { return n.gitFile("b.sls", "base") == "two" })
	if got := fmt.Sprint(n.ask("_file_list", "saltenv", "base")); got != "[a.sls b.sls p.sls q.sls top.sls]" {
		t.Errorf("files %s", got)
	}

	if p := n.pillar(); p.Str("of") != "a" || p.Str("more") != "b" {
		t.Errorf("pillar %v", plainValue(p))
	}

	for text, want := range map[string]string{
		options("'ext::x'", "master "+a.URL()): "not the URL", "gitfs_remotes: []\n": "restart", options("'"+
			a.URL()+"'", "master "+a.URL()) + "ext_pillar_first: [\n": "",
		"fileserver_backend: [gitfs]\n": "restart",
	} {
		if err := reload(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}

	if got := n.gitFile("b.sls", "base"); got != "two" {
		t.Errorf("after wrong options: %q", got)
	}

	must(t, reload(options("'"+b.URL()+"'", "master "+a.URL())))
	until(t, "a remote is gone", func() bool { return n.gitFile("a.sls", "base") == "" })
	if got := n.gitFile("b.sls", "base"); got != "two" {
		t.Errorf("the other: %q", got)
	}

	if p := n.pillar(); p.Str("of") != "a" || p.Str("more") != "" {
		t.Errorf("pillar %v", plainValue(p))
	}
}
