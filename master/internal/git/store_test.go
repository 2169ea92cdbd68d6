package git

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/test/await"
	"saltern/test/check"
	"saltern/test/gitrepo"
)

func open(t testing.TB, dir string, limits Limits) *Store {
	t.Helper()
	s, err := Open(Config{Dir: dir, Limits: limits, Log: slog.New(slog.DiscardHandler)})
	check.Must(t, err)
	t.Cleanup(s.Close)
	return s
}

func add(t testing.TB, s *Store, r Remote, expect ...string) *Repository {
	t.Helper()
	b := s.Batch()
	for _, old := range s.Repositories() {
		set := old.settings.Load()
		_, err := b.Add(t.Context(), set.Remote, set.expect...)
		check.Must(t, err)
	}
	repo, err := b.Add(t.Context(), r, expect...)
	check.Must(t, err)
	b.Commit()
	return repo
}

func fetch(t testing.TB, r *Repository) bool {
	t.Helper()
	changed, err := r.Fetch(t.Context())
	check.Must(t, err)
	return changed
}

// text reads a file of a branch; empty: there is none.
func text(t testing.TB, r *Repository, s *Snapshot, branch, path string) string {
	t.Helper()
	ref, ok := s.Branch(branch)
	if !ok {
		return ""
	}

	f, ok, err := r.Find(t.Context(), ref.Tree, path)
	check.Must(t, err)
	if !ok {
		return ""
	}

	h, err := r.Open(t.Context(), f.ID)
	check.Must(t, err)
	defer h.Close()

	b, err := io.ReadAll(h)
	check.Must(t, err)
	return string(b)
}

// A push, a forced one, a branch that goes and one that comes are seen at the next
// fetch; a snapshot that is in use stays what it was.
func TestSnapshots(t *testing.T) {
	dir := t.TempDir()
	up := gitrepo.New(t, dir, "a")
	up.Commit("master", "top.sls", "one", "d/f", "x")
	up.Commit("dev/x", "top.sls", "dev")
	up.Git("tag", "-a", "-m", "x", "v1", "master")
	up.Git("tag", "v2", "v1") // of a tag
	up.Git("tag", "file", "master:top.sls")
	up.Git("tag", "tree", "master^{tree}")
	url, _ := gitrepo.Daemon(t, dir)
	for _, depth := range []int{0, 1} {
		s := open(t, t.TempDir(), Limits{})
		r := add(t, s, Remote{URL: url + "a", Depth: depth})
		if r.Snapshot() != nil || !fetch(t, r) || fetch(t, r) {
			t.Fatal("the first fetch must change something, and the second must not")
		}

		first := r.Snapshot()
		if b, tags := first.Branches(), first.Tags(); !slices.Equal(b, []string{"dev/x", "master"}) ||
			!slices.Equal(tags, []string{"v1", "v2"}) {
			t.Fatalf("branches %q, tags %q", b, tags)
		}

		if v, _ := first.Tag("v2"); v.Commit != up.Git("rev-parse", "v1^{commit}") ||
			v.Tree != up.Git("rev-parse", "v1^{tree}") {
			t.Errorf("the tag leads to %+v", v)
		}

		up.Commit("master", "top.sls", "two")
		up.Rewrite("dev/x", "other", "forced")
		up.Branch("dev2", "master")
		if !fetch(t, r) {
			t.Error("a push is not seen")
		}

		second := r.Snapshot()
		for _, c := range []struct {
			s                  *Snapshot
			branch, path, want string
		}{
			{first, "master", "top.sls", "one"}, {second, "master", "top.sls", "two"}, {first, "dev/x", "top.sls", "dev"},
			{second, "dev/x", "top.sls", ""}, {second, "dev/x", "other", "forced"}, {second, "dev2", "d/f", "x"}, {second, "master", "d", ""}, {second, "master", "d/f/x", ""},
		} {
			if got := text(t, r, c.s, c.branch, c.path); got != c.want {
				t.Errorf("depth %d: %s of %s: %q, want %q", depth, c.path, c.branch, got, c.want)
			}
		}

		up.Git("update-ref", "-d", "refs/heads/dev/x")
		up.Git("update-ref", "-d", "refs/heads/dev2")
		up.Branch("dev", "master") // was a folder of refs
		if !fetch(t, r) || !slices.Equal(r.Snapshot().Branches(), []string{"dev", "master"}) {
			t.Errorf("branches that are gone: %q", r.Snapshot().Branches())
		}

		up.Git("update-ref", "-d", "refs/heads/dev")
		up.Commit("master", "top.sls", "one")
		up.Rewrite("dev/x", "top.sls", "dev")
	}
}

// A new process serves the last snapshot without the remote.
func TestRestart(t *testing.T) {
	dir, own := t.TempDir(), t.TempDir()
	up := gitrepo.New(t, dir, "a")
	up.Commit("master", "f", "one")
	url, stop := gitrepo.Daemon(t, dir)
	s := open(t, own, Limits{})
	r := add(t, s, Remote{URL: url + "a"})
	fetch(t, r)
	text(t, r, r.Snapshot(), "master", "f")
	s.Close()
	stop()
	s = open(t, own, Limits{})
	r = add(t, s, Remote{URL: url + "a"})
	if got := text(t, r, r.Snapshot(), "master", "f"); got != "one" {
		t.Errorf("after a restart: %q", got)
	}

	_, err := r.Fetch(t.Context())
	if KindOf(err) != Unreachable {
		t.Errorf("without a remote: %v", err)
	}

	if st := r.Status(); st.Fault == nil || st.Fault.Kind != Unreachable || st.Snapshot == nil ||
		text(t, r, st.Snapshot, "master", "f") != "one" {
		t.Errorf("without a remote: %+v", st)
	}

	// Another remote's copy goes, once the fetches begin.
	s.Close()
	s = open(t, own, Limits{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { s.Run(ctx); close(done) }()
	await.That(t, "the end of a former remote's copy",
		func() bool { list, _ := os.ReadDir(filepath.Join(own, "remotes")); return len(list) == 0 })
	cancel()
	<-done
}

// What a fetch that was killed left behind stops no later one.
func TestLeftBehind(t *testing.T) {
	dir, own := t.TempDir(), t.TempDir()
	up := gitrepo.New(t, dir, "a")
	up.Commit("master", "f", "one")
	s := open(t, own, Limits{})
	r := add(t, s, Remote{URL: up.URL()})
	fetch(t, r)
	up.Commit("master", "f", "two")
	up.Branch("new", "master")
	left := []string{"HEAD.lock", "config.lock", "packed-refs.lock", "shallow.lock", "gc.pid",
		"refs/remotes/origin/master.lock", "refs/remotes/origin/new.lock", "objects/pack/tmp_pack_x",
		"objects/pack/tmp_idx_x"}
	for _, name := range left {
		check.Must(t, os.WriteFile(filepath.Join(r.bareDir(), name), []byte("x"), 0o600))
	}

	fetch(t, r)
	if got := text(t, r, r.Snapshot(), "master", "f"); got != "two" {
		t.Errorf("after a fetch that was killed: %q", got)
	}

	for _, name := range left {
		if _, err := os.Stat(filepath.Join(r.bareDir(), name)); err == nil {
			t.Errorf("%s is still there", name)
		}
	}

	// A copy that is broken is fetched anew.
	packs, _ := filepath.Glob(filepath.Join(r.bareDir(), "objects/pack/*"))
	s.Close()
	for _, p := range packs {
		check.Must(t, os.Remove(p))
	}

	s = open(t, own, Limits{})
	r = add(t, s, Remote{URL: up.URL()})
	if r.Snapshot() != nil {
		t.Error("a snapshot without its objects serves")
	}

	fetch(t, r)
	if got := text(t, r, r.Snapshot(), "master", "f"); got != "two" {
		t.Errorf("after a broken copy: %q", got)
	}
}

// Kinds of faults.
func TestFaults(t *testing.T) {
	dir := t.TempDir()
	up := gitrepo.New(t, dir, "a")
	gitrepo.New(t, dir, "empty")
	up.Commit("master", "f", "one")

	for i := range 30 {
		up.Branch(fmt.Sprintf("b%d", i), "master")
	}

	url, _ := gitrepo.Daemon(t, dir)
	for _, c := range []struct {
		remote Remote
		limits Limits
		expect string
		want   Kind
	}{
		{Remote{URL: url + "nosuch"}, Limits{}, "", Unreachable},
		{Remote{URL: "git://127.0.0.1:1/x"}, Limits{}, "", Unreachable},
		{Remote{URL: url + "a"}, Limits{Refs: 10}, "", TooLarge},
		{Remote{URL: url + "a"}, Limits{Size: 10}, "", TooLarge},
		{Remote{URL: url + "a"}, Limits{}, "nosuch", RefGone},
		{Remote{URL: url + "a", Commits: []string{strings.Repeat("a", 40)}}, Limits{}, "", RefGone},
		{Remote{URL: url + "empty"}, Limits{}, "", RefGone},
	} {
		s := open(t, t.TempDir(), c.limits)
		r := add(t, s, c.remote, c.expect)
		if _, err := r.Fetch(t.Context()); KindOf(err) != c.want {
			t.Errorf("%s with %+v: %v, want %q", c.remote.URL, c.limits, err, c.want)
		}
	}
}

// A commit that only the configuration names is fetched, and found by a part of
// its id.
func TestCommit(t *testing.T) {
	dir := t.TempDir()
	up := gitrepo.New(t, dir, "a")
	old := up.Commit("master", "f", "one")
	up.Commit("master", "f", "two")
	up.Git("config", "uploadpack.allowReachableSHA1InWant", "true")
	r := add(t, open(t, t.TempDir(), Limits{}), Remote{URL: up.URL(), Depth: 1, Commits: []string{old}})
	fetch(t, r)

	for _, id := range []string{old, old[:8]} {
		tree, ok, err := r.Resolve(t.Context(), id)
		if err != nil || !ok || tree != up.Git("rev-parse", old+"^{tree}") {
			t.Errorf("%s: %q %v %v", id, tree, ok, err)
		}
	}

	for _, id := range []string{"master", "", old[:6], old + "x", "HEAD", strings.Repeat("0", 40),
		old + "\n" + old, up.Git("rev-parse", old+"^{tree}")} {
		if _, ok, err := r.Resolve(t.Context(), id); ok || err != nil {
			t.Errorf("%q: %v %v", id, ok, err)
		}
	}
}

// Equal remotes share a repository; others do not.
func TestShared(t *testing.T) {
	s := open(t, t.TempDir(), Limits{})
	a := add(t, s, Remote{URL: "https://h/x", User: "u", Password: "p", Interval: time.Minute}, "master")
	b := add(t, s, Remote{URL: "https://u:p@h/x", Interval: time.Second}, "dev")
	if a != b || a.settings.Load().Interval != time.Second ||
		!slices.Equal(a.settings.Load().expect, []string{"master", "dev"}) {
		t.Errorf("equal remotes: %+v", a.settings.Load())
	}

	for _, r := range []Remote{
		{URL: "https://u:q@h/x"},
		{URL: "https://h/x"},
		{URL: "https://u:p@h/x", Depth: 1},
		{URL: "https://u:p@h/y"},
	} {
		if add(t, s, r) == a {
			t.Errorf("%+v shares a repository", r)
		}
	}

	dirs := map[string]bool{}
	for _, r := range s.Repositories() {
		dirs[r.dir] = true
	}

	if len(dirs) != len(s.Repositories()) {
		t.Error("two repositories share a directory")
	}
}

// Many packs become one.
func TestTidy(t *testing.T) {
	up := gitrepo.New(t, t.TempDir(), "a")
	r := add(t, open(t, t.TempDir(), Limits{}), Remote{URL: up.URL(), Depth: 1})
	for i := range maxPacks + 3 {
		up.Commit("master", "f", fmt.Sprint(i))
		fetch(t, r)
	}

	packs, _ := filepath.Glob(filepath.Join(r.bareDir(), "objects/pack/*.pack"))
	if len(packs) > 5 {
		t.Errorf("%d packs", len(packs))
	}

	if got := text(t, r, r.Snapshot(), "master", "f"); got != fmt.Sprint(maxPacks+2) {
		t.Error(got)
	}

	up.Commit("master", "f", "after")
	fetch(t, r)
	if got := text(t, r, r.Snapshot(), "master", "f"); got != "after" {
		t.Error(got)
	}
}

// TestKilled kills a process in its fetches, again and again.
func TestKilled(t *testing.T) {
	if dir := os.Getenv("SALTERN_TEST_GIT_DIR"); dir != "" {
		s := open(t, dir, Limits{})
		r := add(t, s, Remote{URL: os.Getenv("SALTERN_TEST_GIT_URL")})
		for {
			_, err := r.Fetch(t.Context())
			check.Must(t, err)
		}
	}

	base, own := t.TempDir(), t.TempDir()
	up := gitrepo.New(t, base, "a")
	noise := func(n int) (out []string) {
		for i := range 200 {
			out = append(out, fmt.Sprintf("d%d/f%d", i%10, i), strings.Repeat(fmt.Sprint(n, i), 300))
		}
		return out
	}

	up.Commit("master", noise(0)...)
	url, _ := gitrepo.Daemon(t, base)
	for n := range 12 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilled$")
		cmd.Env = append(os.Environ(), "SALTERN_TEST_GIT_DIR="+own, "SALTERN_TEST_GIT_URL="+url+"a")
		check.Must(t, cmd.Start())
		up.Commit("master", append(noise(n), "n", fmt.Sprint(n))...)
		time.Sleep(time.Duration(40+n*35) * time.Millisecond) // anywhere in a fetch
		check.Must(t, cmd.Process.Kill())
		_ = cmd.Wait()
	}

	s := open(t, own, Limits{})
	r := add(t, s, Remote{URL: url + "a"})
	if snap := r.Snapshot(); snap != nil {
		ref, _ := snap.Branch("master")
		check.Must(t, r.Walk(t.Context(), ref.Tree, func(i Item) error {
			if i.Dir {
				return nil
			}

			f, err := r.Open(t.Context(), i.ID)
			if err == nil {
				err = f.Close()
			}

			return err
		}))
	}

	fetch(t, r)
	if got := text(t, r, r.Snapshot(), "master", "n"); got != "11" {
		t.Errorf("after kills: %q", got)
	}

	if rest, _ := filepath.Glob(filepath.Join(r.bareDir(), "objects/pack/tmp_*")); len(rest) > 0 {
		t.Errorf("left behind: %q", rest)
	}
}

// An object that is missing while it serves is there again after the next fetch,
// although the remote has nothing new; without the remote the rest still serves.
func TestLacking(t *testing.T) {
	dir := t.TempDir()
	up := gitrepo.New(t, dir, "a")
	up.Commit("master", "f", "one", "d/g", "two")
	url, stop := gitrepo.Daemon(t, dir)
	r := add(t, open(t, t.TempDir(), Limits{}), Remote{URL: url + "a"})
	fetch(t, r)

	if got := text(t, r, r.Snapshot(), "master", "f"); got != "one" {
		t.Fatal(got)
	}

	lose := func() {
		t.Helper()
		r.reader.close()
		packs, _ := filepath.Glob(filepath.Join(r.bareDir(), "objects/pack/*"))
		for _, p := range packs {
			check.Must(t, os.Remove(p))
		}

		r.store.trees.clear()
		ref, _ := r.Snapshot().Branch("master")
		if _, _, err := r.Find(t.Context(), ref.Tree, "d/g"); !isMissing(err) {
			t.Fatalf("the object is still there: %v", err)
		}
	}

	lose()
	fetch(t, r)
	if got := text(t, r, r.Snapshot(), "master", "d/g"); got != "two" {
		t.Errorf("after the fetch: %q", got)
	}

	lose()
	stop()
	if _, err := r.Fetch(t.Context()); KindOf(err) != Unreachable {
		t.Errorf("without the remote: %v", err)
	}

	if _, err := os.Stat(filepath.Join(r.bareDir(), "HEAD")); err != nil {
		t.Errorf("the damaged copy is gone: %v", err)
	}
}

// What a process that was killed left running ends before the next one begins.
func TestOrphans(t *testing.T) {
	own := t.TempDir()
	r := add(t, open(t, own, Limits{}), Remote{URL: "https://h/x"})
	other := t.TempDir()
	start := func(dir string) *exec.Cmd {
		cmd := exec.Command("git", "--no-pager", "--git-dir="+dir, "hash-object", "--stdin")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		_, err := cmd.StdinPipe() // it waits for the end of its input
		check.Must(t, err)
		check.Must(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		return cmd
	}

	ours, theirs := start(r.bareDir()), start(other)
	done := make(chan struct{})
	go func() { _ = ours.Wait(); close(done) }()
	open(t, own, Limits{})

	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("the process still runs")
	}

	if err := theirs.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("another process: %v", err)
	}
}

// What git says is sorted by what can be done.
func TestFaultOf(t *testing.T) {
	for said, want := range map[string]Fault{
		"fatal: unable to access 'https://h/x/': Could not resolve host: h":                            {Kind: Unreachable},
		"ERROR: Repository not found.\nfatal: Could not read from remote repository.":                  {Kind: Unreachable},
		"git@h: Permission denied (publickey).\nfatal: Could not read from remote repository.":         {Kind: Authentication},
		"fatal: Authentication failed for 'https://h/x/'":                                              {Kind: Authentication},
		"fatal: could not read Username for 'https://h': terminal prompts disabled":                    {Kind: Authentication},
		"fatal: unable to access 'https://h/x/': server certificate verification failed. CAfile: none": {Kind: HostKey},
		"Host key verification failed.\nfatal: Could not read from remote repository.":                 {Kind: HostKey},
		"fatal: couldn't find remote ref refs/heads/x":                                                 {Kind: RefGone},
		"error: file write error: No space left on device\nfatal: unable to write loose object file":   {Kind: Broken},
		"error: inflate: data stream error\nfatal: loose object ab (stored in x) is corrupt": {
			Kind:    Broken,
			corrupt: true,
		},
		"hint: x\nfatal: not a git repository: '/x/repo'": {
			Kind:    Broken,
			corrupt: true,
		},
	} {
		if f := faultOf(said); f.Kind != want.Kind || f.corrupt != want.corrupt || f.Text == "" ||
			strings.Contains(f.Text, "\n") || strings.Contains(f.Text, "hint") {
			t.Errorf("%q: %+v", said, f)
		}
	}
}

// A remote that takes the connection and says nothing is given up, and keeps no
// other waiting.
func TestSilent(t *testing.T) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	check.Must(t, err)
	defer ln.Close()

	s := open(t, t.TempDir(), Limits{List: 500 * time.Millisecond})
	up := gitrepo.New(t, t.TempDir(), "a")
	up.Commit("master", "f", "one")
	for range maxFetches - 1 {
		add(t, s, Remote{URL: "git://" + ln.Addr().String() + "/x", Depth: len(s.Repositories())})
	}

	good := add(t, s, Remote{URL: up.URL()})
	done := make(chan error, 1)
	go func() {
		_, err := s.FetchAll(t.Context(), func(r *Repository) bool { return r != good })
		done <- err
	}()

	fetch(t, good)
	if err := <-done; KindOf(err) != Unreachable || !strings.Contains(err.Error(), "no answer within 500ms") {
		t.Errorf("a silent remote: %v", err)
	}
}
