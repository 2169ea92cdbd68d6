package pillar

import (
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"saltern/master/internal/git"
	"saltern/master/internal/pillar/renderer"
	"saltern/master/value"
	"saltern/test/gitrepo"
)

// TestGitAggregateParity compiles git pillars whose values are aggregated, which only
// Salt's own objects can, with Salt's Pillar class and its own checkouts and here: at
// first, after pushes, and after a branch is gone.
func TestGitAggregateParity(t *testing.T) {
	withPygit2(t)
	root := t.TempDir()
	a, b := gitrepo.New(t, root, "a"), gitrepo.New(t, root, "b")
	yamlex := func(of string) string {
		return "#!jinja|yamlex\nusers: !aggregate {all: [" + of + "], " + of +
			": {uid: {{ grains.uid }}}}\npackages: !aggregate [" + of + ", common]\nwho: !reset " + of + "\nplain: {" + of + ": 1}\nenv: {{ saltenv }}\n"
	}

	for _, env := range []string{"master", "dev"} {
		top := map[string]string{"master": "base", "dev": "dev"}[env] + ":\n  '*': [%s, %[1]s2, shared]\n"
		a.Commit(env, "top.sls", fmt.Sprintf(top, "x"), "x.sls", yamlex("a"+env), "x2.sls",
			"#!yamlex\npackages: !aggregate [second]\nusers: !aggregate {all: [x2]}\n", "shared.sls",
			"shared: {{ sls }}\n", "sub/own.sls", "own: 1\n")
		b.Commit(env, "top.sls", fmt.Sprintf(top, "y"), "y.sls", yamlex("b"+env), "y2.sls",
			"include: [sub.own]\nplain: {y2: 1}\nlist: [1]\n")
	}

	// Branches of one tree: one directory here, two of Salt's.
	for _, name := range []string{"old", "same"} {
		a.Branch(name, a.Git("rev-parse", "dev"))
	}

	store, err := git.Open(git.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()

	files := tree(t,
		map[string]string{
			"p/top.sls":   "base:\n  '*': [local]\n",
			"p/local.sls": "#!yamlex\npackages: !aggregate [local]\nusers: !aggregate {all: [local]}\nplain: {local: 1}\n",
		})

	with := func(remote string, options ...any) any {
		l := []any{}
		for i := 0; i < len(options); i += 2 {
			l = append(l, map[string]any{options[i].(string): options[i+1]})
		}
		return map[string]any{remote: l}
	}

	entry := func(remotes ...any) map[string]any { return map[string]any{"git": remotes} }
	cases := func(round string) (out []parityCase) {
		for name, ext := range map[string][]any{
			"one": {entry("master " + a.URL())},
			"two": {entry("master "+a.URL(), "master "+b.URL())},
			"two entries": {entry("master " + a.URL()),
				map[string]any{"cmd_yaml": "echo 'plain: {between: 1}'"}, entry("master " + b.URL())},
			"mapped":         {entry(with("dev "+a.URL(), "env", "base"), "master "+b.URL(), "dev "+b.URL())},
			"by environment": {entry("__env__ "+a.URL(), with("__env__ "+b.URL(), "fallback", "master"))},
			"mounted":        {entry("master "+a.URL(), with("master "+b.URL(), "mountpoint", "deep/er"))},
			"same tree": {entry(with("old "+a.URL(), "env", "base"), "dev "+a.URL(), "same "+a.URL(),
				"master "+b.URL())},
		} {
			if again := name == "two" || name == "mapped" || name == "by environment"; round != "at first" && !again {
				continue
			}

			for _, strategy := range []string{"aggregate", "smart"} {
				for _, env := range []string{"", "dev"} {
					if strategy == "smart" && (env != "" || name != "two") {
						continue
					}

					opts := map[string]any{
						"git_pillar_provider":            "pygit2",
						"ext_pillar":                     ext,
						"pillar_source_merging_strategy": strategy,
						"cachedir":                       root + "/cache/" + round + name + strategy,
					}

					rend := "jinja|yaml"
					if strategy == "smart" { // which is aggregate where everything is yamlex
						rend = "jinja|yamlex"
						opts["renderer"] = rend
					}

					// Salt has a checkout for each case. Ours is the same Python before and after a push.
					ofPython := maps.Clone(opts)
					ofPython["cachedir"] = root + "/cache/" + name + strategy

					out = append(out,
						parityCase{
							python:    ofPython,
							name:      strings.Join([]string{round, name, strategy, env}, ", "),
							id:        "web1",
							pillarenv: env,
							opts:      opts,
							grains:    map[string]any{"uid": 7},
							roots:     map[string][]string{"base": {files + "/p"}},
							override:  map[string]any{"plain": map[string]any{"override": 1}},
							change: func(cfg *Config) {
								cfg.Strategy, cfg.Renderer = strategy, rend
								cfg.ExtPillar, cfg.Git, cfg.GitIncludes = toMap(ext).([]any), gitSource(t, store, opts), true
								if _, err := store.FetchAll(t.Context(), nil); err != nil &&
									git.KindOf(err) != git.RefGone {
									t.Error(err)
								}
							},
						})
				}
			}
		}

		return out
	}

	started := pools{}
	parityWith(t, started, root, cases("at first"), 1)
	own := t.TempDir()
	pool := renderer.New(renderer.Config{
		Python: []string{python(t)},
		Overrides: value.NewMap("root_dir", own, "pillar_source_merging_strategy", "aggregate",
			"ext_pillar", toMap([]any{entry("master "+a.URL(), "master "+b.URL())})),
		MaxWorkers: 1,
	})
	defer pool.Close()

	whole := Config{
		Renderers: pool,
		Strategy:  "aggregate",
		Git: gitSource(t, store,
			map[string]any{"ext_pillar": []any{entry("master "+a.URL(), "master "+b.URL())}}),
	}

	if _, err := store.FetchAll(t.Context(), nil); err != nil {
		t.Error(err)
	}

	if text := plainText(compile(t, New(whole), Request{
		ID:     "web1",
		Grains: value.NewMap("uid", 7),
	})); !strings.Contains(text, "packages:[amaster common second bmaster]") || strings.Contains(text, "_errors") {
		t.Errorf("two remotes give %s", text)
	}

	err = filepath.WalkDir(own, func(path string, _ fs.DirEntry, err error) error {
		if filepath.Base(path) == "git_pillar" {
			t.Errorf("Python has a checkout of its own: %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}

	a.Commit("master", "x2.sls", "#!yamlex\npackages: !aggregate [pushed]\nnew: !aggregate {of: a}\n")
	b.Commit("master", "y2.sls", "plain: {y2: 2}\n")
	parityWith(t, started, root, cases("after a push"), 1)
	a.Git("update-ref", "-d", "refs/heads/old")
	b.Git("update-ref", "-d", "refs/heads/dev")
	parityWith(t, started, root, cases("a branch is gone"), 1)
}

// TestGitAggregateNotFetched: a repository that cannot be fetched is an error of the
// pillar, which has what else there is.
func TestGitAggregateNotFetched(t *testing.T) {
	root := t.TempDir()
	a := gitrepo.New(t, root, "a")
	a.Commit("master", "top.sls", "base:\n  '*': [x]\n", "x.sls", "#!yamlex\nlist: !aggregate [a]\n")
	store, err := git.Open(git.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()

	ext := []any{map[string]any{"git": []any{"master " + a.URL(), "master file://" + root + "/nosuch"}}}
	opts := map[string]any{"ext_pillar": ext, "pillar_source_merging_strategy": "aggregate", "root_dir": root}
	pool := renderer.New(renderer.Config{
		Python:     []string{python(t)},
		Overrides:  toMap(opts).(*value.Map),
		MaxWorkers: 1,
	})
	defer pool.Close()

	source := gitSource(t, store, opts)
	if _, err := store.FetchAll(t.Context(), nil); err == nil {
		t.Fatal("a repository that is not there was fetched")
	}

	c := New(Config{Renderers: pool, Strategy: "aggregate", ExtPillar: toMap(ext).([]any), Git: source})
	for range 2 {
		p := compile(t, c, Request{ID: "web1"})
		if text := plainText(p); len(p.List("list")) != 1 ||
			!strings.Contains(text, "Failed to load ext_pillar git") || !strings.Contains(text, "nosuch") {
			t.Errorf("got %s", text)
		}
	}
}
