package gitfs

import (
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"saltern/master/internal/fileserver"
	"saltern/master/internal/git"
	"saltern/test/gitrepo"
)

// option is a remote's options, and where its files are then.
type option struct {
	name string
	list []any
	envs []string
	path func(string) string // nil: as in the repository
	// apart is why Salt is known to serve something else.
	apart string
}

// options are those with which each kind of repository is served.
func options(k *gitrepo.Kind) []option {
	out := []option{{name: "plain"}}
	env := func(name string, kv ...string) map[string]any {
		l := []any{}
		for o := range slices.Chunk(kv, 2) {
			l = append(l, map[string]any{o[0]: o[1]})
		}
		return map[string]any{name: l}
	}

	below := func(root, mountpoint string) func(string) string {
		return func(p string) string { return path.Join(mountpoint, strings.TrimPrefix(p, root+"/")) }
	}
	switch k.Name {
	case "links":
		out = append(out, option{name: "root", list: []any{"root", "d"}, path: below("d", "")},
			option{name: "root is a link", list: []any{"root", "dir"}, path: below("d", "")})
	case "names":
		out = append(out,
			option{name: "root", list: []any{"root", "ünï", "mountpoint", "salt://é è"}, path: below("ünï", "é è")})
	case "tags":
		for _, types := range [][]string{{"tag"}, {"branch"}, {"tag", "branch"}, {"sha"}} {
			out = append(out, option{name: strings.Join(types, " "), list: []any{"ref_types", types}})
		}
	case "nested":
		out = append(out, option{
			name: "root",
			list: []any{"root", "srv/salt"},
			path: below("srv/salt", ""),
		}, option{name: "root is a file", list: []any{"root", "file"}},
			option{
				name: "deep",
				list: []any{"root", "srv/salt/", "mountpoint", "salt://a/b/c"},
				path: below("srv/salt", "a/b/c"),
			},
			option{
				name:  "slash",
				list:  []any{"root", "/srv/salt"},
				path:  below("srv/salt", ""),
				apart: "there is no folder of such a name for Salt, which with git_pillar takes it as here",
			},
			option{name: "mountpoint", list: []any{"mountpoint", "srv"}, path: below("", "srv")},
			option{
				name: "by environment",
				list: []any{"root", "srv/salt", "mountpoint", "all", "saltenv",
					[]any{env("dev", "root", "srv/salt/d", "mountpoint", "salt://x"),
						env("prod", "ref", "dev", "mountpoint", ""), env("base", "ref", "elsewhere")}},
				envs: []string{"prod"},
				path: func(p string) string { return "x/" + strings.TrimPrefix(p, "srv/salt/d/") },
			})
	case "maps":
		saltenv := []any{env("prod", "ref", "stable"), env("qa", "ref", "v1"),
			env("also", "ref", "develop", "root", "d"), env("sha", "ref", k.Git("rev-parse", "master")),
			env("none", "ref", "nosuch")}
		for _, types := range [][]string{{"branch", "tag", "sha"}, {"tag"}, {"tag", "branch"}, {"branch"}} {
			for i, more := range [][]any{
				{},
				{"disable_saltenv_mapping", true},
				{"base", "develop"},
				{"fallback", "stable"},
				{"saltenv_blacklist", []string{"v*", "qa"}},
			} {
				if i > 0 && len(types) != 2 {
					continue
				}

				out = append(out,
					option{
						name: fmt.Sprint(types, more),
						list: append([]any{"ref_types", types, "saltenv", saltenv}, more...),
						envs: []string{"prod", "qa", "also", "sha", "none"},
					})
			}
		}

		out = append(out, option{name: "all_saltenvs", list: []any{"all_saltenvs", "v2"}})
	}

	return out
}

// questions are asked about a repository: everything of small ones.
func questions(k *gitrepo.Kind, o option) (calls [][]any) {
	paths := k.Paths()
	if k.Few {
		some := paths[:0]
		for i := 0; i < len(paths); i += 700 {
			some = append(some, paths[i])
		}
		paths = some
	}

	paths = append(paths, "nosuch", "../f", "d/../f", "/f", "dir/g", "dir/e/h", "d/self/g", "p.sls", "|f", "link/../f")
	envs := map[string]bool{"base": true, "nosuch": true}
	for _, e := range append(append(k.Names(), o.envs...), "master", "refs/heads/master", "HEAD", "forced", "gone") {
		envs[e] = true
	}

	each := 7 // one of so many is asked, others in each environment
	switch {
	case os.Getenv("SALTERN_TWELVE") != "":
		each = 1
	case o.name == "plain":
		each = 3
	}

	for e, env := range slices.Sorted(maps.Keys(envs)) {
		for _, cmd := range []string{"_file_list", "_dir_list", "_symlink_list", "_file_list_emptydirs"} {
			if k.Few && (cmd == "_symlink_list" || cmd == "_file_list_emptydirs") {
				continue // each takes Salt seconds
			}
			calls = append(calls, []any{cmd, map[string]any{"saltenv": env}})
		}

		for i, p := range paths {
			if o.path != nil {
				p = o.path(p)
			}

			for j, cmd := range []string{"_file_hash", "_serve_file", "_file_find", "_file_hash_and_stat"} {
				if len(envs) > 50 && j > 0 || (e+i+j)%each > 0 {
					continue // there are enough of them
				}
				calls = append(calls, []any{cmd, map[string]any{"path": p, "saltenv": env, "loc": 0}})
			}
		}
	}

	return append(calls, []any{"_file_envs", map[string]any{}})
}

// TestTwelve asks Salt's gitfs with pygit2 and this one about twelve kinds of
// repositories, and again after a push and a second fetch of both.
func TestTwelve(t *testing.T) {
	python := os.Getenv("SALTERN_PYTHON")
	if python == "" {
		t.Skip("SKIPPED: set SALTERN_PYTHON to a Python that has the Salt library to compare with Salt")
	}

	kinds := gitrepo.Twelve(t, t.TempDir())
	all := make([][]*served, len(kinds))
	for i, k := range kinds {
		dir := t.TempDir()
		for j, o := range options(k) {
			all[i] = append(all[i], newServed(t, k, o, fmt.Sprintf("%s/cache%d", dir, j)))
		}
	}

	for _, round := range []string{"at first", "after a push"} {
		// Salt is asked once about all of them: it takes seconds to start.
		var in []any
		for i, k := range kinds {
			for _, c := range all[i] {
				c.calls = questions(k, c.option)
				opts := c.salt(c.cache, c.cache, "pygit2")
				opts["fileserver_list_cache_time"] = 0 // else Salt gives lists from before the push
				in = append(in, map[string]any{"opts": opts, "calls": c.calls})
			}
		}

		want := ask(t, python, in)
		for i, k := range kinds {
			t.Run(k.Name+", "+round, func(t *testing.T) {
				asked := 0
				for j, c := range all[i] {
					c.check(t, round, want[j])
					asked += len(c.calls)
				}
				t.Logf("%d settings, %d questions", len(all[i]), asked)
			})
			want = want[len(all[i]):]
		}

		if round == "at first" {
			for _, k := range kinds {
				k.Push()
			}
		}
	}
}

// served is a repository that is served with some options, here and by Salt.
type served struct {
	option
	setting
	cache  string // of Salt
	calls  [][]any
	server *fileserver.Server
	git    *Backend
}

func newServed(t *testing.T, k *gitrepo.Kind, o option, cache string) *served {
	c := &served{option: o, setting: setting{name: k.Name, remotes: []any{k.URL()}}, cache: cache}
	if o.list != nil {
		c.remotes = []any{with(k.URL(), o.list...)}
	}
	c.server, c.git = serve(t, c.setting, t.TempDir())
	return c
}

// check fetches and compares.
func (c *served) check(t *testing.T, round string, want []map[string]any) {
	t.Helper()
	if _, err := c.git.Update(t.Context()); err != nil && git.KindOf(err) != git.RefGone {
		t.Fatalf("%s: %v", c.option.name, err)
	}

	differ, failed := differences(t, c.server, c.calls, want)
	if c.apart != "" && len(differ) > 0 {
		differ = nil
	} else if c.apart != "" {
		differ = []string{"they no longer differ, though " + c.apart}
	}

	for _, d := range differ[:min(len(differ), 10)] {
		t.Errorf("%s, %s, %d differences: %s", c.option.name, round, len(differ), d)
	}

	if len(failed) > 0 {
		t.Logf("%s, %s: Salt fails in %d of %d: %v", c.option.name, round, len(failed), len(c.calls), failed[0])
	}
}
