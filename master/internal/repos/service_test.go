package repos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/internal/rpc"
	"saltern/master/conf"
	"saltern/master/runner"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
	"saltern/test/gitrepo"
)

// rig is the git service of a master, which is not there.
type rig struct {
	t       *testing.T
	dir     string
	service *Service

	mu       sync.Mutex
	tags     []string // of the events that it fired
	problems map[control.Fault]string
}

// newRig opens the service of a master with these options. %s in them is the rig's folder.
func newRig(t *testing.T, options string) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), problems: map[control.Fault]string{}}
	var err error
	r.service, err = Open(t.Context(), Config{
		Options: r.options(options),
		Fire: func(tag string, _ *value.Map) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.tags = append(r.tags, tag)
		},
		Problem: func(what control.Fault, err error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			delete(r.problems, what)
			if err != nil {
				r.problems[what] = err.Error()
			}
		},
		Now: time.Now,
		Log: slog.New(slog.DiscardHandler),
	})

	check.Must(t, err)
	t.Cleanup(r.service.Close)
	return r
}

// options writes the configuration file of the rig and reads it.
func (r *rig) options(text string) *conf.Master {
	r.t.Helper()
	return options(r.t, r.dir, text)
}

func options(t *testing.T, dir, text string) *conf.Master {
	t.Helper()
	path := filepath.Join(dir, "master")
	text = fmt.Sprintf("id: m1\ncachedir: %s\npki_dir: %s\n", filepath.Join(dir, "cache"),
		filepath.Join(dir, "pki")) + text
	check.Must(t, os.WriteFile(path, []byte(text), 0o600))
	c, err := conf.Load(path)
	check.Must(t, err)
	return c
}

// run lets the service fetch by itself until the test ends.
func (r *rig) run() {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { r.service.Run(ctx) })
	r.t.Cleanup(func() { cancel(); running.Wait() })
}

// call calls one of its runners.
func (r *rig) call(name string, args ...any) (any, error) {
	r.t.Helper()
	table := runner.New()
	r.service.AddRunners(table)
	return table.Call(r.t.Context(), nil, name, args, value.NewMap())
}

// fired returns how many events with this tag were fired.
func (r *rig) fired(tag string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.tags {
		if t == tag {
			n++
		}
	}
	return n
}

func (r *rig) problem(what control.Fault) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.problems[what]
}

// stateOf returns what the service says of a remote that it serves, by the URL that it shows.
func (r *rig) stateOf(remote *gitrepo.Repo) string {
	return r.service.serving().Map("remotes").Map(remote.Dir).Str("state")
}

// TestWithoutGit: a master without git in its options has nothing to fetch, and says so.
func TestWithoutGit(t *testing.T) {
	t.Parallel()
	r := newRig(t, "")
	r.service.Run(t.Context()) // returns at once
	r.service.Peer("m2", Fetch, value.NewMap())
	r.service.Peer("m2", Serving, value.NewMap("remotes", value.NewMap("file:///srv/a", value.NewMap("state", "x"))))

	if len(r.service.Backends()) != 0 || r.service.Pillars() != nil || len(r.service.Git().Remotes) != 0 {
		t.Error("something is served")
	}

	if options, pillars := r.service.ForPython(t.Context(), "base", ""); options.Len() != 0 || len(pillars) != 0 {
		t.Errorf("Python is given %v and %v", options, pillars)
	}

	for _, name := range []string{"git.fetch", "git.reload", "git_pillar.update"} {
		if v, err := r.call(name); err == nil {
			t.Errorf("%s: %v", name, v)
		}
	}

	if v, err := r.call("git.status"); err != nil || v.(*value.Map).Len() != 0 {
		t.Errorf("git.status: %v, %v", v, err)
	}

	if _, err := r.service.FetchGit(t.Context(), ""); !errors.Is(err, &rpc.Error{Code: rpc.CodeNoSuchRemote}) {
		t.Errorf("a fetch for the supervisor: %v", err)
	}
}

// TestWrongOptions: Check finds what Open would refuse, without the disk and the network, and
// Open leaves nothing behind.
func TestWrongOptions(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, options string
		want          string // "": they are right
	}{
		{"nothing", "", ""},
		{"right",
			"fileserver_backend: [gitfs]\ngitfs_remotes: [file:///srv/a]\next_pillar:\n  - git:\n    - master file:///srv/b\n",
			""},
		{"files: an option",
			"fileserver_backend: [gitfs]\ngitfs_remotes:\n  - file:///srv/a:\n    - rooot: x\n",
			"option gitfs_remotes: "},
		{"files: environments",
			"fileserver_backend: [gitfs]\ngitfs_remotes: [file:///srv/a]\ngitfs_saltenv: [x]\n",
			"option gitfs_saltenv: "},
		{"files that are not served", "gitfs_remotes:\n  - file:///srv/a:\n    - rooot: x\n", ""},
		{"pillars: an option", "ext_pillar:\n  - git:\n    - master file:///srv/a:\n      - rooot: x\n",
			"option ext_pillar: "},
		{"pillars: no list", "ext_pillar:\n  - git: master file:///srv/a\n", "option ext_pillar: "},
		{"pillars: not looked at", "git_pillar_verify_config: false\next_pillar:\n  - git: master file:///srv/a\n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			c := options(t, dir, tt.options)
			err := Check(c)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Check: %v, want %q", err, tt.want)
			}

			if entries, _ := os.ReadDir(filepath.Join(dir, "cache")); len(entries) != 0 {
				t.Errorf("Check wrote %v", entries)
			}

			s, err := Open(t.Context(), Config{
				Options: c,
				Fire:    func(string, *value.Map) {},
				Problem: func(control.Fault, error) {},
				Log:     slog.New(slog.DiscardHandler),
			})
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Open: %v, want %q", err, tt.want)
			}

			s.Close() // nil as well
		})
	}
}

// TestFetchByRunner: git.fetch fetches here and asks the other masters, and git.status names
// what is served, by the same digest wherever the same commits are served.
func TestFetchByRunner(t *testing.T) {
	t.Parallel()
	up := gitrepo.New(t, t.TempDir(), "a")
	commit := up.Commit("master", "top.sls", "{}")
	options := "fileserver_backend: [gitfs]\ngitfs_remotes: ['" + up.URL() + "']\n"
	r, other := newRig(t, options), newRig(t, options)

	answer, err := r.call("git.fetch")
	check.Must(t, err)
	status := answer.(*value.Map).Map(up.Dir)
	if got := status.Map("refs").Str("refs/remotes/origin/master"); got != commit {
		t.Errorf("commit %q, want %s: %v", got, commit, answer)
	}

	if status.Str("state") == "" || status.Str("fetched") == "" {
		t.Errorf("status: %v", status)
	}

	if _, ok := status.Get("fault"); ok {
		t.Errorf("a fault: %v", status)
	}

	if r.fired(Fetch) != 1 || r.fired(Serving) == 0 {
		t.Errorf("events: %v", r.tags)
	}

	_, err = other.call("git.fetch")
	check.Must(t, err)
	if other.stateOf(up) != r.stateOf(up) {
		t.Error("two masters with the same commits differ")
	}

	up.Commit("master", "top.sls", "{a: b}")
	_, err = other.call("git.fetch")
	check.Must(t, err)
	if other.stateOf(up) == r.stateOf(up) {
		t.Error("two masters with other commits do not differ")
	}

	r.service.Peer("m2", Serving, other.service.serving())
	answer, err = r.call("git.status")
	check.Must(t, err)
	if theirs := answer.(*value.Map).Map(up.Dir).Map("other_masters").Map("m2"); theirs.Value("same") != false {
		t.Errorf("what m2 serves: %v", theirs)
	}
}

// TestPeerIsAhead: a master that learns that another one serves something else fetches at once,
// once for each thing it is told.
func TestPeerIsAhead(t *testing.T) {
	t.Parallel()
	up := gitrepo.New(t, t.TempDir(), "a")
	up.Commit("master", "f", "old")
	options := "fileserver_backend: [gitfs]\ngitfs_update_interval: 3600\ngitfs_remotes: ['" + up.URL() + "']\n"
	ahead, behind := newRig(t, options), newRig(t, options)
	for _, r := range []*rig{ahead, behind} {
		_, err := r.call("git.fetch")
		check.Must(t, err)
	}

	behind.run()

	up.Commit("master", "f", "new")
	_, err := ahead.call("git.fetch")
	check.Must(t, err)
	if behind.stateOf(up) == ahead.stateOf(up) {
		t.Fatal("both serve the same before one of them learns of it")
	}

	behind.service.Peer("m2", Serving, ahead.service.serving())
	await.That(t, "both serve the same", func() bool { return behind.stateOf(up) == ahead.stateOf(up) })

	up.Commit("master", "f", "newer")
	behind.service.Peer("m2", Serving, ahead.service.serving()) // nothing new
	behind.service.mu.Lock()
	if n := len(behind.service.behind); n != 0 {
		t.Errorf("%d remotes are fetched for what was told before", n)
	}
	behind.service.mu.Unlock()

	behind.service.Peer("m2", Fetch, value.NewMap())
	await.That(t, "a fetch that a peer asks for", func() bool { return behind.stateOf(up) != ahead.stateOf(up) })
}

// TestBoundsOfPeers: what others tell is kept within bounds, whoever tells it.
func TestBoundsOfPeers(t *testing.T) {
	t.Parallel()
	up := gitrepo.New(t, t.TempDir(), "a")
	r := newRig(t, "fileserver_backend: [gitfs]\ngitfs_remotes: ['"+up.URL()+"']\n")
	small := value.NewMap("remotes", value.NewMap(up.Dir, value.NewMap("state", "x")))
	large := value.NewMap()
	for i := range maxRemotes + 1 {
		large.Set(fmt.Sprint("file:///srv/", i), value.NewMap("state", "x"))
	}

	r.service.Peer("large", Serving, value.NewMap("remotes", large))
	r.service.Peer("wrong", Serving, value.NewMap("remotes", "text"))
	for i := range 3 * maxPeers {
		r.service.Peer(fmt.Sprint("m", i), Serving, small)
	}

	if n := len(r.service.peers); n != maxPeers {
		t.Errorf("%d masters are kept, want %d", n, maxPeers)
	}

	if _, kept := r.service.peers["large"]; kept {
		t.Error("a master with too many remotes is kept")
	}

	for range 100 { // nobody reads: nobody waits
		r.service.Peer("m1", Fetch, value.NewMap())
		r.service.Peer("m1", Reload, value.NewMap())
	}
}

// TestUpdatePillars: git_pillar.update answers as Salt's runner does: true for a remote with
// something new, none without, false for one that failed, by its name in the option.
func TestUpdatePillars(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	up := gitrepo.New(t, dir, "a")
	up.Commit("master", "x.sls", "1")
	up.Commit("dev", "x.sls", "1")
	r := newRig(t, "ext_pillar:\n  - git:\n    - master "+up.URL()+":\n      - name: first\n    - dev "+up.URL()+
		"\n    - master file://"+dir+"/away\n")
	away := "master file://" + dir + "/away"

	for _, tt := range []struct {
		name string
		args []any
		want map[string]any
	}{
		{"all", nil, map[string]any{"master " + up.URL(): true, "dev " + up.URL(): nil, away: false}},
		{"again", nil, map[string]any{"master " + up.URL(): nil, "dev " + up.URL(): nil, away: false}},
		{"a branch", []any{"dev"}, map[string]any{"dev " + up.URL(): nil}},
		{"a name", []any{"master", "first"}, map[string]any{"master " + up.URL(): nil}},
		{"a URL", []any{"", up.URL()}, map[string]any{"master " + up.URL(): nil, "dev " + up.URL(): nil}},
	} {
		answer, err := r.call("git_pillar.update", tt.args...)
		check.Must(t, err)
		got := map[string]any{}
		for k, v := range answer.(*value.Map).All() {
			got[k.(string)] = v
		}

		if fmt.Sprint(got) != fmt.Sprint(tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}

	var exception *runner.Exception
	_, err := r.call("git_pillar.update", "gone")
	if !errors.As(err, &exception) || exception.Name != "SaltRunnerError" ||
		exception.Message != "Specified git branch/repo not found in ext_pillar config" {
		t.Errorf("no such remote: %v", err)
	}
}

// TestFaultIsToldUntilItEnds: a remote that cannot be reached is a problem that says what the
// remote is for, until a fetch succeeds.
func TestFaultIsToldUntilItEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := newRig(t,
		"fileserver_backend: [gitfs]\ngitfs_remotes: ['file://"+dir+
			"/a']\next_pillar:\n  - git:\n    - master file://"+dir+"/a\n")
	if _, err := r.call("git.fetch"); err == nil {
		t.Fatal("a repository that is not there was fetched")
	}

	if text := r.problem(control.GitAwayFault); !strings.Contains(text, dir+"/a (files and pillars): ") {
		t.Errorf("problem: %q", text)
	}

	git := r.service.Git()
	if len(git.Remotes) != 1 || git.Remotes[0].Fault == nil || git.Remotes[0].Fault.What != control.GitAwayFault {
		t.Errorf("for the supervisor: %+v", git)
	}

	gitrepo.New(t, dir, "a").Commit("master", "f", "text")
	_, err := r.call("git.fetch")
	check.Must(t, err)
	if text := r.problem(control.GitAwayFault); text != "" {
		t.Errorf("after a fetch: %q", text)
	}

	git = r.service.Git()
	if m := git.Remotes[0]; m.Fault != nil || !m.Files || !m.Pillars || len(m.Refs) != 1 || m.Refs[0].Name != "master" {
		t.Errorf("for the supervisor: %+v", m)
	}
}

// TestFetchForTheSupervisor: a fetch that the supervisor asks for is of the remotes that it
// names, waits for them, and is refused when too many are under way.
func TestFetchForTheSupervisor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	one, two := gitrepo.New(t, dir, "one.git"), gitrepo.New(t, dir, "two.git")
	one.Commit("master", "f", "1")
	two.Commit("master", "f", "2")
	r := newRig(t,
		"fileserver_backend: [gitfs]\ngitfs_update_interval: 3600\ngitfs_remotes: ['"+one.URL()+"', '"+two.URL()+"']\n")
	if _, err := r.service.FetchGit(t.Context(), "three"); !errors.Is(err,
		&rpc.Error{Code: rpc.CodeNoSuchRemote}) {
		t.Errorf("no such remote: %v", err)
	}

	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range maxAsked { // nobody fetches yet
		_, err := r.service.FetchGit(gone, "one")
		check.Must(t, err)
	}

	if _, err := r.service.FetchGit(gone, "one"); !errors.Is(err, &rpc.Error{Code: rpc.CodeFailed}) {
		t.Errorf("one more than there is room for: %v", err)
	}

	r.run()
	await.That(t, "room again", func() bool { return len(r.service.requestSlots) == 0 })
	changed := one.Commit("master", "f", "3")
	got, err := r.service.FetchGit(t.Context(), "one")
	check.Must(t, err)

	if len(got.Remotes) != 1 || len(got.Remotes[0].Refs) != 1 || got.Remotes[0].Refs[0].Commit != changed {
		t.Errorf("remotes: %+v, want %s", got.Remotes, changed)
	}
}

// TestReload: remotes come and go while the master runs; what needs a restart is refused, and
// everything stays as it was then.
func TestReload(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	one, two := gitrepo.New(t, dir, "one"), gitrepo.New(t, dir, "two")
	one.Commit("master", "f", "1")
	two.Commit("master", "f", "2")
	options := func(backends string, remotes ...*gitrepo.Repo) string {
		text := "fileserver_backend: [" + backends + "]\ngitfs_remotes:\n"
		for _, remote := range remotes {
			text += "  - " + remote.URL() + "\n"
		}
		return text
	}

	r := newRig(t, options("gitfs", one))
	served := func() (urls []string) {
		for _, m := range r.service.Git().Remotes {
			urls = append(urls, m.URL)
		}
		slices.Sort(urls)
		return urls
	}

	r.options(options("gitfs", one, two))
	v, err := r.call("git.reload")
	check.Must(t, err)
	if v != true || r.fired(Reload) != 1 || !slices.Equal(served(), []string{one.Dir, two.Dir}) {
		t.Errorf("answer %v, events %v, remotes %v", v, r.tags, served())
	}

	for name, text := range map[string]string{
		"wrong options":     options("gitfs", two) + "  - " + one.URL() + ":\n    - rooot: x\n",
		"no files any more": options("roots", two),
		"pillars as well":   options("gitfs", two) + "ext_pillar:\n  - git:\n    - master " + one.URL() + "\n",
	} {
		r.options(text)
		if _, err := r.call("git.reload"); err == nil {
			t.Errorf("%s: taken", name)
		}
		if !slices.Equal(served(), []string{one.Dir, two.Dir}) {
			t.Errorf("%s: remotes %v", name, served())
		}
	}

	if r.fired(Reload) != 1 {
		t.Error("other masters are asked for what this one has refused")
	}

	r.run()
	r.options(options("gitfs", two))
	r.service.Peer("m2", Reload, value.NewMap())
	await.That(t, "a peer's reload", func() bool { return slices.Equal(served(), []string{two.Dir}) })
}

// TestFoldersForPython: Salt's library finds the files of git below folders, in the order of
// the backends, and reads nothing from git itself.
func TestFoldersForPython(t *testing.T) {
	t.Parallel()
	up := gitrepo.New(t, t.TempDir(), "a")
	up.Commit("master", "f", "of git", "x.sls", "{a: b}")
	for _, tt := range []struct {
		backends string
		first    string // of the folders of base
		rest     string // of the option fileserver_backend
	}{
		{"gitfs, roots, minionfs", "git", "[roots minionfs]"},
		{"roots, gitfs", "/srv/own", "[roots]"},
		{"gitfs", "git", "[roots]"},
	} {
		t.Run(tt.backends, func(t *testing.T) {
			r := newRig(t,
				"fileserver_backend: ["+tt.backends+"]\nfile_roots: {base: [/srv/own]}\ngitfs_remotes: ['"+up.URL()+
					"']\next_pillar:\n  - git:\n    - master "+up.URL()+"\n")
			_, err := r.call("git.fetch")
			check.Must(t, err)
			options, pillars := r.service.ForPython(t.Context(), "base", "")
			folders := options.Map("file_roots").List("base")
			if len(folders) == 0 || !strings.Contains(folders[0].(string), tt.first) {
				t.Fatalf("folders of base: %v, want %s first", folders, tt.first)
			}

			if got := fmt.Sprint(options.List("fileserver_backend")); got != tt.rest {
				t.Errorf("backends %s, want %s", got, tt.rest)
			}

			found := slices.ContainsFunc(folders, func(dir any) bool {
				text, err := os.ReadFile(filepath.Join(dir.(string), "f"))
				return err == nil && string(text) == "of git"
			})
			if !found {
				t.Errorf("the file of git is in none of %v", folders)
			}

			if len(pillars) != 1 || len(pillars[0].([]any)) != 1 {
				t.Errorf("pillars: %v", pillars)
			}
		})
	}
}
