package git

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/test/check"
	"saltern/test/gitrepo"
)

// TestAttack35Remotes: what is no URL of a repository is refused before git hears
// of it, whatever brings it here; so are refspecs and ids that are options.
func TestAttack35Remotes(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "mark")
	for _, url := range []string{
		"ext::sh -c touch% " + mark, "fd::7", "transport::address", "--upload-pack=touch " +
			mark, "-oProxyCommand=touch " + mark, "ssh://-oProxyCommand=touch%20" + mark + "/x",
		"-oProxyCommand=x:y", "user@-oProxyCommand=x:y", "git@host:-x", "https://host/-x", "https://-x/y", "ssh://u@h;touch/x", "ssh://-l@h/x", "https://h\n/x", "https://h/x\x00", "", "relative/path", "ftp://h/x", "file://host/x",
		"https:///x", "https://h", strings.Repeat("https://h/x", 1000), "https://u@h@i/x y\n", "git::ext::sh",
	} {
		r := Remote{URL: url}
		if err := r.normalize(); err == nil {
			t.Errorf("%.80q is taken: %q by %s", url, r.address, r.transport)
		}
	}

	for _, spec := range []string{"--upload-pack=x", "-x", "+-x:refs/heads/x", "refs/heads/*:--x",
		"a b:refs/x", "refs/heads/*:heads/x", "refs/heads/a\n:refs/b", "", "+"} {
		r := Remote{URL: "https://h/x", Refspecs: []string{spec}}
		if err := r.normalize(); err == nil {
			t.Errorf("refspec %q is taken", spec)
		}
	}

	for _, id := range []string{"--all", "HEAD", "abc", strings.Repeat("a", 39), strings.Repeat("A", 40)} {
		r := Remote{URL: "https://h/x", Commits: []string{id}}
		if err := r.normalize(); err == nil {
			t.Errorf("commit %q is taken", id)
		}
	}

	for url, want := range map[string]string{
		"git@host.example.com:group/x.git": "git@host.example.com:group/x.git", "ssh://git@h:22/x": "ssh://git@h:22/x", "https://u:p%40@h:8443/g/x.git": "https://h:8443/g/x.git",
		"/srv/git/x": "file:///srv/git/x", "file:///srv/x": "file:///srv/x", "git://h/x": "git://h/x", "HTTPS://h/x": "https://h/x", "git+ssh://u@h/x": "ssh://u@h/x", "https://[::1]:80/x": "https://[::1]:80/x",
	} {
		r := Remote{URL: url}
		if err := r.normalize(); err != nil || r.address != want {
			t.Errorf("%s: %q, %v", url, r.address, err)
		}
	}

	clear := Remote{URL: "http://u:p@h/x"}
	if err := clear.normalize(); err == nil {
		t.Error("a password goes over http")
	}

	clear.InsecureAuth = true
	if clear.normalize() != nil {
		t.Error("a password does not go over http with insecure_auth")
	}
}

// TestAttack35Secrets: no password on a command line, and it is for its host alone.
func TestAttack35Secrets(t *testing.T) {
	r := Remote{URL: "https://u:TOP%3BSECRET@h.example.com/x"}
	check.Must(t, r.normalize())
	argv, env := r.remoteCommand("/x", "", "")
	if strings.Contains(fmt.Sprint(argv, r.Shown()), "SECRET") ||
		!slices.Contains(env, "SALTERN_GIT_PASSWORD=TOP;SECRET") || !slices.Contains(env, "GIT_ALLOW_PROTOCOL=https") {
		t.Errorf("%q %q", argv, env)
	}

	for host, want := range map[string]bool{"h.example.com": true, "other.example.com": false} {
		cmd := exec.Command("git", append(slices.Clone(argv[3:]), "credential", "fill")...)
		cmd.Env, cmd.Stdin = append(env, "HOME="+t.TempDir()), strings.NewReader("protocol=https\nhost="+host+"\n\n")
		out, _ := cmd.CombinedOutput()
		if got := bytes.Contains(out, []byte("password=TOP;SECRET\n")); got != want {
			t.Errorf("%s is told the password: %v, %s", host, got, out)
		}
	}
}

// TestAttack35Hooks: nothing that a repository or a copy brings along is run.
func TestAttack35Hooks(t *testing.T) {
	dir := t.TempDir()
	mark := filepath.Join(dir, "mark")
	up := gitrepo.New(t, dir, "a")
	up.Commit("master", ".gitattributes", "* filter=evil\n", ".gitmodules", "[submodule \"x\"]\n path = x\n url = ext::sh -c touch% "+mark+"\n", "x", "@"+strings.Repeat("a", 40), "f", "one",
		".gitconfig", "x", "hooks/post-checkout", "+x#!/bin/sh\ntouch "+mark)
	r := add(t, open(t, t.TempDir(), Limits{}), Remote{URL: up.URL()})
	fetch(t, r)
	script := []byte("#!/bin/sh\ntouch " + mark + "\n")
	check.Must(t, os.MkdirAll(filepath.Join(r.bareDir(), "hooks"), 0o700))

	for _, hook := range []string{"reference-transaction", "post-checkout", "post-update", "pre-auto-gc",
		"fsmonitor-watchman"} {
		check.Must(t, os.WriteFile(filepath.Join(r.bareDir(), "hooks", hook), script, 0o700))
	}

	up.Commit("master", "f", "two")
	fetch(t, r)
	ref, _ := r.Snapshot().Branch("master")
	work, err := r.Checkout(t.Context(), ref.Tree)
	check.Must(t, err)

	if b, err := os.ReadFile(filepath.Join(work, "f")); string(b) != "two" {
		t.Error(string(b), err)
	}

	for _, gone := range []string{"x", ".git"} {
		if _, err := os.Lstat(filepath.Join(work, gone)); err == nil {
			t.Errorf("%s was checked out", gone)
		}
	}

	if _, err := os.Stat(mark); err == nil {
		t.Error("a hook was run")
	}
}

// hostile writes a tree object that git itself would not write.
func hostile(t *testing.T, up *gitrepo.Repo, entries ...string) string {
	var b bytes.Buffer
	for e := range slices.Chunk(entries, 3) {
		id, err := hex.DecodeString(e[2])
		check.Must(t, err)
		fmt.Fprintf(&b, "%s %s\x00%s", e[0], e[1], id)
	}
	return up.Input(b.Bytes(), "hash-object", "-t", "tree", "-w", "--stdin", "--literally")
}

// TestAttack35Names: names and links in a tree lead nowhere else.
func TestAttack35Names(t *testing.T) {
	dir := t.TempDir()
	check.Must(t, os.WriteFile(filepath.Join(dir, "secret"), []byte("SECRET"), 0o600))
	up := gitrepo.New(t, dir, "a")
	up.Commit("master", "f", "one")
	blob := up.Git("rev-parse", "master:f")
	link := func(to string) string { return up.Input([]byte(to), "hash-object", "-w", "--stdin") }
	inner := hostile(t, up, "120000", "back", link("up/../../secret"), "120000", "up", link(".."), "100644", "g", blob)
	root := hostile(t, up, "100644", "..", blob, "100644", ".", blob, "40000", ".git", inner, "40000", ".GIT", inner, "100644", "a/b", blob, "100644", "../x", blob, "100644", "/abs", blob, "100644", "no\xfftext", blob,
		"120000", "abs", link(dir+"/secret"), "120000", "etc", link("/etc/passwd"), "120000", "out", link("../secret"), "120000", "outer", link("d/../../secret"), "120000", "loop", link("loop"), "120000", "ok", link("d/g"), "120000", "dir", link("d"),
		"40000", "d", inner, "100644", "f", blob, "160000", "sub", blob, "100664", "old", blob, "140000", "socket", blob)
	commit := up.Git("commit-tree", "-m", "x", root)
	up.Git("update-ref", "refs/heads/master", commit)
	r := add(t, open(t, t.TempDir(), Limits{}), Remote{URL: up.URL()})
	fetch(t, r)
	var seen []string
	check.Must(t, r.Walk(t.Context(), root, func(i Item) error { seen = append(seen, i.Path); return nil }))

	if want := []string{"abs", "d", "d/back", "d/g", "d/up", "dir", "etc", "f", "loop", "ok", "old", "out",
		"outer"}; !slices.Equal(seen, want) {
		t.Errorf("seen %q", seen)
	}

	for path, want := range map[string]string{
		"ok":        "one",
		"f":         "one",
		"d/g":       "one",
		"old":       "one",
		"abs":       "",
		"etc":       "",
		"out":       "",
		"outer":     "",
		"loop":      "",
		"d/back":    "",
		"d/up/f":    "",
		"dir/g":     "",
		"..":        "",
		"../secret": "",
		"d/../f":    "",
		".git/g":    "",
		"sub":       "",
		"":          "",
		"/":         "",
		"socket":    "",
	} {
		if got := text(t, r, r.Snapshot(), "master", path); got != want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}

	work, err := r.Checkout(t.Context(), root)
	check.Must(t, err)
	check.Must(t, filepath.WalkDir(work, func(p string, e os.DirEntry, err error) error {
		check.Must(t, err)
		if real, err := filepath.EvalSymlinks(p); err == nil && real != work && !strings.HasPrefix(real, work+"/") {
			t.Errorf("%s leads to %s", p, real)
		}
		return nil
	}))

	for _, p := range []string{"ok", "dir/g", "d/up/f"} {
		if b, err := os.ReadFile(filepath.Join(work, p)); string(b) != "one" {
			t.Error(p, string(b), err)
		}
	}
}

// TestAttack35Bombs: trees that unfold without end, and files that do.
func TestAttack35Bombs(t *testing.T) {
	up := gitrepo.New(t, t.TempDir(), "a")
	up.Commit("master", "f", strings.Repeat("0", 1<<20))
	tree := up.Git("rev-parse", "master^{tree}")
	deep := tree

	for range 30 { // 2^30 files
		tree = hostile(t, up, "40000", "a", tree, "40000", "b", tree)
	}

	for range 200 {
		deep = hostile(t, up, "40000", "a", deep)
	}

	r := add(t, open(t, t.TempDir(), Limits{Entries: 10000, File: 1000, Checkout: 8192}), Remote{URL: up.URL()})
	for _, root := range []string{tree, deep} {
		up.Git("update-ref", "refs/heads/master", up.Git("commit-tree", "-m", "x", root))
		fetch(t, r)
		ref, _ := r.Snapshot().Branch("master")
		if err := r.Walk(t.Context(), ref.Tree, func(Item) error { return nil }); KindOf(err) != TooLarge {
			t.Errorf("a tree without end: %v", err)
		}

		if _, err := r.Checkout(t.Context(), ref.Tree); KindOf(err) != TooLarge {
			t.Errorf("a tree without end is checked out: %v", err)
		}
	}

	blob := up.Input([]byte(strings.Repeat("0", 1<<20)), "hash-object", "-w", "--stdin")
	if _, err := r.Open(t.Context(), blob); KindOf(err) != TooLarge {
		t.Errorf("a large file: %v", err)
	}

	if left, _ := filepath.Glob(filepath.Join(r.store.cfg.Dir, "blobs/*/*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// TestAttack35Local: the git daemon's answer cannot make git speak another protocol.
func TestAttack35Local(t *testing.T) {
	dir := t.TempDir()
	up := gitrepo.New(t, dir, "a")
	up.Commit("master", "f", "one")
	r := Remote{URL: "https://h/x"}
	check.Must(t, r.normalize())
	argv, env := r.remoteCommand("", "", "")
	for _, url := range []string{"ext::sh -c touch% " + dir + "/mark", up.URL(), "http://127.0.0.1:1/x",
		"git://127.0.0.1:1/x", "ssh://h/x"} {
		_, err := runGit(t.Context(), r.Interval, env, append(slices.Clone(argv), "ls-remote", "--", url), 1000)
		if err == nil || !strings.Contains(err.Error(), "not allowed") {
			t.Errorf("%s is spoken to: %v", url, err)
		}
	}
}

// TestAttack35Checkouts: many trees do not fill the disk, and one in use stays.
func TestAttack35Checkouts(t *testing.T) {
	up := gitrepo.New(t, t.TempDir(), "a")
	now := time.Now()
	s, err := Open(Config{
		Dir:    t.TempDir(),
		Limits: Limits{Work: 64 << 10, Checkouts: 100},
		Now:    func() time.Time { return now },
	})

	check.Must(t, err)
	t.Cleanup(s.Close)
	for i := range 30 {
		up.Commit(fmt.Sprintf("b%d", i), "f", fmt.Sprint(i), "g", "x")
	}

	r := add(t, s, Remote{URL: up.URL()})
	fetch(t, r)
	out := func(i int) (string, error) {
		ref, ok := r.Snapshot().Branch(fmt.Sprintf("b%d", i))
		if !ok {
			t.Fatal(i)
		}
		return r.Checkout(t.Context(), ref.Tree)
	}

	refused := 0
	for i := range 30 {
		if _, err := out(i); errors.Is(err, ErrNoRoom) {
			refused++
		}
	}

	if refused != 22 || s.checkouts.size > 64<<10 {
		t.Errorf("%d were refused, %d bytes are kept", refused, s.checkouts.size)
	}

	now = now.Add(keepTreeFor - time.Second)
	first, err := out(0)
	check.Must(t, err)
	now = now.Add(2 * time.Second)

	for i := range 7 {
		if _, err := out(20 + i); err != nil {
			t.Error(err)
		}
	}

	if _, err := os.Stat(filepath.Join(first, "f")); err != nil {
		t.Errorf("a tree in use is gone: %v", err)
	}

	if list, _ := os.ReadDir(s.checkouts.dir); len(list) != 8 {
		t.Errorf("%d trees are on disk", len(list))
	}

	now = now.Add(time.Hour)
	s.checkouts.dropUnused(now.Add(-unusedFor))
	if list, _ := os.ReadDir(s.checkouts.dir); len(list) != 4 {
		t.Errorf("%d trees are on disk after a while", len(list))
	}
}
