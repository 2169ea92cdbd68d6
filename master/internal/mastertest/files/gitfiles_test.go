package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/master/internal/mastertest"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
	"saltern/test/gitrepo"
	"saltern/test/logged"
)

// fileFromGit returns a file as a minion gets it, or "" when there is none.
func fileFromGit(n *mastertest.Minion, path, env string) string {
	m, _ := n.Ask("_serve_file", "path", path, "saltenv", env, "loc", int64(0)).(*value.Map)
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
	check.Must(t, os.WriteFile(filepath.Join(roots, "both.sls"), []byte("roots"), 0o644))
	options := func(interval int) string {
		return fmt.Sprintf("fileserver_backend: [roots, git]\nfile_roots: {base: [%s]}\ngitfs_remotes: ['%sa']\ngitfs_update_interval: %d\nfileserver_events: True\n",
			roots, url, interval)
	}

	r := mastertest.Start(t, options(1))
	events := r.Parts.Bus.Subscribe("test", 1000, func(tag string) bool { return tag == "salt/fileserver/gitfs/update" })
	defer events.Close()

	n := r.AcceptedMinion("min1", "min6")
	await.That(t, "the first fetch", func() bool { return fileFromGit(n, "git.sls", "base") == "one" })
	if got := fileFromGit(n, "both.sls", "base"); got != "roots" {
		t.Errorf("the first backend has %q", got)
	}

	if got := fileFromGit(n, "git.sls", "dev"); got != "dev" {
		t.Errorf("the branch has %q", got)
	}

	if got := fmt.Sprint(n.Ask("_file_envs")); got != "[base dev]" {
		t.Errorf("environments %s", got)
	}

	up.Commit("master", "git.sls", "two")
	up.Git("update-ref", "-d", "refs/heads/dev")
	await.That(t, "a push", func() bool { return fileFromGit(n, "git.sls", "base") == "two" })
	if got := fileFromGit(n, "git.sls", "dev"); got != "" {
		t.Errorf("a branch that is gone has %q", got)
	}

	seen := map[string]bool{}
	await.That(t, "events of fetches", func() bool {
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
		for _, p := range r.Parts.Problems.List() {
			if p.What == control.GitAwayFault {
				return p.Text
			}
		}
		return ""
	}

	await.That(t, "the fault is told of", func() bool { return strings.Contains(problem(), "(files)") })
	r.Stop()
	check.Must(t, r.TryStart(options(1)))
	n = n.TalkTo(r)
	if got := fileFromGit(n, "git.sls", "base"); got != "two" {
		t.Errorf("after a restart without the remote: %q", got)
	}
}

// The runners about git.
func TestGitRunners(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	up := gitrepo.New(t, dir, "a")
	first := up.Commit("master", "top.sls", "base:\n  '*': [x]\n", "x.sls", "from_git: 1\n", "d/f", "x", "l", "->x.sls")
	r := mastertest.Start(t,
		"fileserver_backend: [gitfs]\ngitfs_remotes: ['"+up.URL()+
			"']\ngitfs_update_interval: 3600\ngit_pillar_update_interval: 3600\next_pillar: [{git: ['master "+up.URL()+"']}]\n")
	call := func(fun string, kv ...any) any {
		t.Helper()
		v, err := r.Parts.Runs.Call(t.Context(), fun, nil, value.NewMap(kv...))
		check.Must(t, err)
		return v
	}

	n := r.AcceptedMinion("min1", "min6")
	await.That(t, "the first fetch", func() bool { return fileFromGit(n, "x.sls", "base") != "" })
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
		if got := fmt.Sprint(mastertest.PlainValue(call(c.fun))); got != c.want {
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

		if v, _ := n.Pillar().Int("from_git"); v != int64(i+2) {
			t.Errorf("%s: the pillar has %d", fun, v)
		}
	}

	for _, c := range []struct{ branch, repo, want string }{
		{"master", "", "map[master " + up.URL() + ":<nil>]"},
		{"", up.URL(), "map[master " + up.URL() + ":<nil>]"},
	} {
		if got := fmt.Sprint(mastertest.PlainValue(call("git_pillar.update", "branch", c.branch, "repo", c.repo))); got != c.want {
			t.Errorf("git_pillar.update %s %s: %s", c.branch, c.repo, got)
		}
	}

	if _, err := r.Parts.Runs.Call(t.Context(), "git_pillar.update", nil, value.NewMap("branch", "nosuch")); err == nil || !strings.Contains(err.Error(), "not found in ext_pillar") {
		t.Errorf("an unknown branch: %v", err)
	}
}

// An update on one master reaches all within 5 s, and each knows what the others
// serve.
func TestGitInCluster(t *testing.T) {
	dir := t.TempDir()
	up := gitrepo.New(t, dir, "a")
	up.Commit("master", "f", "one")
	ms := mastertest.StartCluster(t, 3, "fileserver_backend: [gitfs]\ngitfs_remotes: ['"+up.URL()+"']\ngitfs_update_interval: 3600\n")
	mastertest.AwaitLinks(t, ms)
	state := func(r *mastertest.Master) *value.Map {
		v, err := r.Parts.Runs.Call(t.Context(), "git.status", nil, nil)
		check.Must(t, err)
		return v.(*value.Map).Map(up.Dir)
	}

	serves := func(r *mastertest.Master) string { return state(r).Map("refs").Str("refs/remotes/origin/master") }
	for _, r := range ms {
		await.That(t, "the first fetch", func() bool { return serves(r) != "" })
	}

	for how, fetch := range map[string]func() error{
		"fileserver.update": func() error {
			_, err := ms[1].Parts.Runs.Call(t.Context(), "fileserver.update", nil, nil)
			return err
		},
		// As after the interval: one master fetches, and asks nobody to.
		"one fetches": func() error {
			got, err := ms[2].Parts.Repos.FetchGit(t.Context(), "a")
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
			await.That(t, how+": the push is on all masters", func() bool { return serves(r) == want })
		}

		if d := time.Since(begun); d > 5*time.Second {
			t.Errorf("%s: it took %v", how, d)
		}
	}

	if _, err := ms[0].Parts.Repos.FetchGit(t.Context(), "nosuch"); !errors.Is(err, control.ErrNoSuchRemote) {
		t.Errorf("an unknown remote: %v", err)
	}

	for _, r := range ms {
		await.That(t, "each knows the others", func() bool {
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
		check.Must(t, err)
		t.Cleanup(func() { os.RemoveAll(dir) })
		r := &mastertest.Master{T: t, Dir: dir, Log: &logged.Buffer{}, Host: "127.0.0.1"}
		err = r.TryStart(options)
		if err == nil {
			r.Stop()
		}

		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "TOPSECRET") {
			t.Errorf("%s: %v", options, err)
		}
	}

	r := mastertest.Start(t, "git_pillar_verify_config: False\next_pillar: [{git: ['master ext::x']}]\n")
	if !strings.Contains(r.Log.String(), "git pillars are left out") {
		t.Error("the log does not say that git pillars are left out")
	}
}

// An orchestration and a reaction find their files, what these import, and pillars
// in git.
func TestGitForPython(t *testing.T) {
	t.Parallel()
	python := mastertest.SaltPython(t)
	dir := t.TempDir()
	up := gitrepo.New(t, dir, "a")
	up.Commit("master", "orch/map.jinja", "{% set word = 'imported' %}", "orch/x.sls", "{% from 'orch/map.jinja' import word %}\nhello:\n  test.succeed_with_changes:\n    - name: {{ word }}-{{ pillar.get('from_git', 'missing') }}\n",
		"react.sls", "{% from 'orch/map.jinja' import word %}\nx:\n  runner.event.send:\n    - tag: reacted/{{ word }}\n")
	up.Commit("dev", "orch/x.sls", "hello:\n  test.succeed_with_changes:\n    - name: of-dev\n")
	pillars := gitrepo.New(t, dir, "p")

	// Branches of one tree are one directory.
	pillars.Branch("dev",
		pillars.Commit("master", "top.sls", "base:\n  '*': [x]\n", "x.sls", "from_git: {{ 6 * 7 }}\n"))
	r := mastertest.Start(t,
		"saltern_renderer_python: "+python+"\nfileserver_backend: [gitfs, roots]\ngitfs_remotes: ['"+
			up.URL()+"']\next_pillar: [{git: ['master "+pillars.URL()+"', 'dev "+pillars.URL()+"']}]\nreactor: [{my/event: ['salt://react.sls']}]\n")
	n := r.AcceptedMinion("min1", "min6")
	await.That(t, "the first fetch", func() bool { return fileFromGit(n, "react.sls", "base") != "" })

	for env, want := range map[string]string{"base": "imported-42", "dev": "of-dev"} {
		v, err := r.Parts.Runs.Call(t.Context(), "state.orchestrate", []any{"orch.x"}, value.NewMap("saltenv", env))
		if text := fmt.Sprint(mastertest.PlainValue(v)); err != nil || !strings.Contains(text, want) {
			t.Errorf("orchestration in %s: %s %v", env, text, err)
		}
	}

	events := r.Parts.Bus.Subscribe("test", 1000, func(tag string) bool { return strings.HasPrefix(tag, "reacted/") })
	defer events.Close()
	r.Parts.Fire("my/event", value.NewMap())
	await.That(t, "a reaction", func() bool {
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
	r := mastertest.Start(t, first)
	n := r.AcceptedMinion("min1", "min6")
	await.That(t, "the first fetch", func() bool { return fileFromGit(n, "a.sls", "base") == "one" })

	if got := fmt.Sprint(n.Ask("_file_list", "saltenv", "base")); got != "[a.sls p.sls top.sls]" {
		t.Errorf("files %s", got)
	}

	head, err := os.ReadFile(r.Path("master"))
	check.Must(t, err)
	reload := func(text string) error {
		t.Helper()
		check.Must(t, os.WriteFile(r.Path("master"), []byte(strings.Replace(string(head), first, text, 1)), 0o600))
		_, err := r.Parts.Runs.Call(t.Context(), "git.reload", nil, nil)
		return err
	}

	check.Must(t, reload(options("'"+a.URL()+"', '"+b.URL()+"'", "master "+a.URL()+", master "+b.URL())))
	await.That(t, "the new remote", func() bool { return fileFromGit(n, "b.sls", "base") == "two" })
	if got := fmt.Sprint(n.Ask("_file_list", "saltenv", "base")); got != "[a.sls b.sls p.sls q.sls top.sls]" {
		t.Errorf("files %s", got)
	}

	if p := n.Pillar(); p.Str("of") != "a" || p.Str("more") != "b" {
		t.Errorf("pillar %v", mastertest.PlainValue(p))
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

	if got := fileFromGit(n, "b.sls", "base"); got != "two" {
		t.Errorf("after wrong options: %q", got)
	}

	check.Must(t, reload(options("'"+b.URL()+"'", "master "+a.URL())))
	await.That(t, "a remote is gone", func() bool { return fileFromGit(n, "a.sls", "base") == "" })
	if got := fileFromGit(n, "b.sls", "base"); got != "two" {
		t.Errorf("the other: %q", got)
	}

	if p := n.Pillar(); p.Str("of") != "a" || p.Str("more") != "" {
		t.Errorf("pillar %v", mastertest.PlainValue(p))
	}
}
