package pillar

import (
	"log/slog"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"saltern/master/internal/git"
	"saltern/master/internal/gitpillar"
	"saltern/master/internal/gitremote"
	"saltern/test/gitrepo"
)

// gitTree makes two repositories with branches, one of them with a slash, and
// a tag, beside plain pillars.
const gitTree = `
repo() { git init -q -b master "$1"; cd "$1"; git config user.name a; git config user.email a@example.com; }
save() { git add -A; git commit -qm x; }
cd "$1"
mkdir p dev ext salt
printf "base:\n  '*': [plain]\ndev:\n  '*': [plain]\n" >p/top.sls; cp p/top.sls dev/
printf 'plain: base\nlist: [p]\nwho: plain\n' >p/plain.sls
printf 'plain: dev\nlist: [d]\nwho: plaindev\n' >dev/plain.sls
(
	repo "$1/a"
	printf "base:\n  '*': [x, b.shared]\n" >top.sls
	printf 'branch: master\nlist: [a]\nwho: a\nenv: {{ saltenv }}\npenv: {{ opts.pillarenv }}\nseen: {{ pillar.get("plain", "nothing") }}\n' >x.sls
	mkdir sub; printf "base:\n  '*': [y]\n" >sub/top.sls; echo 'sub: 1' >sub/y.sls; save
	git tag v1
	git checkout -qb dev; sed -i 's/^base/dev/' top.sls; sed -i 's/branch: .*/branch: dev/' x.sls; save
	git checkout -qb feature/x; sed -i 's/^dev/feature\/x/' top.sls; sed -i 's/branch: .*/branch: feature/' x.sls; save
	git checkout -q master
)
(
	repo "$1/b"
	printf "base:\n  '*': [bx]\n" >top.sls; printf 'b: 1\nlist: [b]\nwho: b\n' >bx.sls
	mkdir b; echo 'shared: {{ sls }}' >b/shared.sls; save
	git checkout -qb dev; sed -i 's/^base/dev/' top.sls; save; git checkout -q master
)
`

// gitSource fetches the git pillars of a case.
func gitSource(t *testing.T, store *git.Store, opts map[string]any) *gitpillar.Source {
	t.Helper()
	d := &gitremote.Defaults{}
	d.Base = "master"
	d.Branch = "master"
	d.Depth = 1
	d.RefTypes = []string{"branch", "tag", "sha"}

	if b, ok := opts["git_pillar_branch"].(string); ok {
		d.Branch = b
	}

	if e, ok := opts["git_pillar_env"].(string); ok {
		d.Env = e
	}

	batch := store.Batch()
	s, err := gitpillar.New(t.Context(), batch, toMap(opts["ext_pillar"]).([]any), d, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}

	batch.Commit()
	return s
}

// withPygit2 lets Salt have pygit2.
func withPygit2(t *testing.T) {
	name, path, _ := strings.Cut(gitrepo.Pygit2(t, python(t)), "=")
	t.Setenv(name, path)
}

// TestGitParity compiles git pillars with Salt's own Pillar class and here.
func TestGitParity(t *testing.T) {
	withPygit2(t)
	root := t.TempDir()
	cmd := exec.Command("sh", "-ec", gitTree, "sh", root)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	a, b := "file://"+root+"/a", "file://"+root+"/b"
	with := func(remote string, options ...any) map[string]any {
		l := []any{}
		for i := 0; i < len(options); i += 2 {
			l = append(l, map[string]any{options[i].(string): options[i+1]})
		}
		return map[string]any{remote: l}
	}

	store, err := git.Open(git.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()

	everywhere := []string{"branches", "by environment, fallback"}
	var cases []parityCase
	for _, c := range []struct {
		name    string
		remotes []any
		opts    map[string]any
	}{
		{"one", []any{"master " + a}, nil},
		{"no branch named", []any{a}, nil},
		{"branches", []any{"master " + a, "dev " + a}, nil},
		{"a branch as base", []any{with("dev "+a, "env", "base")}, nil},
		{"a tag", []any{with("v1 "+a, "env", "base")}, nil},
		{"no such branch", []any{"nosuch " + a, "master " + b}, nil},
		{"root", []any{with("master "+a, "root", "sub")}, nil},
		{"by environment", []any{"__env__ " + a}, nil},
		{"by environment, base", []any{with("__env__ "+a, "base", "dev")}, nil},
		{"by environment, fallback", []any{with("__env__ "+a, "fallback", "master")}, nil},
		{"by environment, one for all", []any{with("__env__ "+a, "all_saltenvs", "master")}, nil},
		{"two", []any{"master " + a, "master " + b, "dev " + a, "dev " + b}, nil},
		{"two by environment", []any{"__env__ " + a, "__env__ " + b}, nil},
		{"without includes", []any{"master " + a, "master " + b}, map[string]any{"git_pillar_includes": false}},
		{"mounted", []any{"master " + a, with("master "+b, "mountpoint", "deep/er")}, nil},
		{"global options", []any{a}, map[string]any{"git_pillar_branch": "dev", "git_pillar_env": "base"}},
		{"among others", nil,
			map[string]any{"ext_pillar": []any{
				map[string]any{"cmd_yaml": "echo 'plain: before\nlist: [x]\nbefore: 1'"},
				map[string]any{"git": []any{"master " + a}},
				map[string]any{"cmd_yaml": "echo 'who: after\nlist: [z]\nafter: 1'"}, map[string]any{"git": []any{"master " + b}}}}},
		{"override", []any{"master " + a}, map[string]any{"pillar_merge_lists": true}},
		{"merged lists", []any{"master " + a, "master " + b}, map[string]any{"pillar_merge_lists": true}},
	} {
		for _, first := range []bool{false, true} {
			if first && c.name != "two" && c.name != "by environment" {
				continue
			}

			for _, env := range []struct {
				name, saltenv, pillarenv string
				from                     bool
			}{
				{name: "none"}, {
					name:      "pillarenv dev",
					pillarenv: "dev",
				}, {name: "pillarenv base", pillarenv: "base"}, {name: "pillarenv feature", pillarenv: "feature/x"},
				{
					name:      "pillarenv nosuch",
					pillarenv: "nosuch",
				}, {name: "saltenv dev", saltenv: "dev"}, {name: "from saltenv", saltenv: "dev", from: true},
			} {
				if env.name != "none" && (first || !slices.Contains(everywhere, c.name)) {
					continue
				}

				opts := map[string]any{
					"git_pillar_provider": "pygit2",
					"ext_pillar":          []any{map[string]any{"git": c.remotes}},
					"ext_pillar_first":    first,
				}

				for k, v := range c.opts {
					opts[k] = v
				}

				if env.from {
					opts["pillarenv_from_saltenv"] = true
				}

				var override map[string]any
				if c.name == "override" || c.name == "among others" {
					override = map[string]any{"who": "override", "list": []any{"o"}, "new": 1}
				}

				var ofPython map[string]any
				if c.name != "two" && c.name != "among others" {
					ofPython = map[string]any{}
				}

				cases = append(cases, parityCase{override: override, python: ofPython,
					name: c.name + ", " +
						env.name, id: "web1", saltenv: env.saltenv, pillarenv: env.pillarenv, opts: opts,
					roots: map[string][]string{
						"base": {root + "/p"},
						"dev":  {root + "/dev"},
					}, order: []string{"base", "dev"}, grains: map[string]any{"os": "Debian"},
					change: func(cfg *Config) {
						cfg.ExtPillar, cfg.ExtPillarFirst = toMap(opts["ext_pillar"]).([]any), first
						cfg.Git = gitSource(t, store, opts)
						cfg.GitIncludes = opts["git_pillar_includes"] != false
						if _, err := store.FetchAll(t.Context(), nil); err != nil && git.KindOf(err) != git.RefGone {
							t.Error(err)
						}

						cfg.MergeLists = opts["pillar_merge_lists"] == true
						cfg.PillarenvFromEnv = env.from
					},
				})
			}
		}
	}

	parity(t, root, cases, 1)
}
