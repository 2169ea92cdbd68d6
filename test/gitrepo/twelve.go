package gitrepo

import (
	"fmt"
	"strings"
	"testing"
)

// Kind is a repository that has what some repositories have. Each branch has a
// top.sls of the environment that it is compiled for, with the SLS p.
type Kind struct {
	Name string
	*Repo
	Push func() // what changes later
	// Few: it has too many files to ask for each.
	Few bool
}

const top = "'{{ saltenv }}':\n  '*': [p]\n"

// begin begins a branch of a kind that is a pillar and has other files.
func (k *Kind) begin(branch string, files ...string) string {
	return k.Commit(branch,
		append([]string{"top.sls", top, "p.sls", fmt.Sprintf("repo: %s\nbranch: %q\nlist: [1, two]\n", k.Name, branch)},
			files...)...)
}

// Twelve makes a repository of each kind.
func Twelve(t testing.TB, dir string) (out []*Kind) {
	t.Helper()
	for _, c := range []struct {
		name string
		fill func(*Kind)
	}{
		{"branches", branches}, {"tags", tags}, {"links", links}, {"modes", modes}, {"large", large}, {"moves", moves}, {"names", names}, {"lfs", lfs},
		{"submodules", submodules}, {"empty", empty}, {"nested", nested}, {"maps", maps},
	} {
		k := &Kind{Name: c.name, Repo: New(t, dir, c.name)}
		k.Push = func() { k.Commit("master", "pushed", "yes", "p.sls", "repo: "+c.name+"\npushed: yes\n") }
		c.fill(k)
		out = append(out, k)
	}

	return out
}

// branches has sixty.
func branches(k *Kind) {
	k.begin("master", "f", "master", "d/g", "g")
	for _, b := range []string{"feature/x", "feature/y/z", "base", "release-1.0", "UPPER", "deadbeef", "a@b",
		"x+y", "ünï", "with.dot", "main", "__env__", "a=b", "a,b", "a%20b"} {
		k.begin(b, "f", b)
	}
	for i := range 44 {
		b := fmt.Sprint("b", i)
		k.Branch(b, "master")
		k.begin(b, "f", b)
	}
}

// tags has tags of all kinds, some of which are called like branches.
func tags(k *Kind) {
	k.begin("master", "f", "1")
	for _, t := range []string{"light", "v/1"} {
		k.Git("tag", t, "master")
	}

	k.Git("tag", "-a", "-m", "x", "annotated", "master")
	k.Git("tag", "-a", "-m", "x", "of-a-tag", "annotated")
	k.begin("master", "f", "2")
	k.begin("both", "f", "branch")
	k.Git("tag", "both", "light")
	k.Git("tag", "-a", "-m", "x", "master", "light")
	k.Push = func() {
		k.begin("master", "f", "3")
		k.Git("tag", "new", "refs/heads/master")
		k.Git("tag", "-d", "v/1")
	}
}

// links has links that lead inside, outside and nowhere.
func links(k *Kind) {
	k.begin("master", "f", "f", "d/g", "g", "d/e/h", "h", "in", "->f", "d/up", "->../f", "dir", "->d", "d/self", "->../d", "chain", "->in", "loop", "->loop", "loop1", "->loop2", "loop2", "->loop1",
		"out", "->../../../etc/passwd", "absolute", "->/etc/passwd", "dangling", "->nothing", "dangling-dir", "->nothing/", "dot", "->./d/./g", "round", "->d/../f", "through", "->dir/g", "slash", "->d/",
		"p.sls", "->real/p.sls", "real/p.sls", "linked: yes\ninclude: [more]\n", "more.sls", "->real/more.sls", "real/more.sls", "more: 1\n")
	k.Push = func() { k.Commit("master", "in", "->d/g", "f", "-", "dangling", "->d/e/h", "d/up", "no longer a link") }
}

// modes has executable files, and the mode 100664 of old repositories.
func modes(k *Kind) {
	k.begin("master", "bin/run", "+x#!/bin/sh\n", "plain", "x", "empty", "", "bin/empty", "+x", "crlf",
		"a\r\nb\r\n", "nul", "a\x00b", "bom", "\xef\xbb\xbfx")
	id := k.Git("rev-parse", "master:plain")
	tree := k.Input([]byte("100664 blob "+id+"\told\n100755 blob "+id+"\trun\n"), "mktree")
	k.Git("update-ref", "refs/heads/old", k.Git("commit-tree", "-m", "x", tree))
	k.Push = func() { k.Commit("master", "bin/run", "#!/bin/sh\n", "plain", "+xx", "empty", "-") }
}

// large has twenty thousand files.
func large(k *Kind) {
	k.Few = true
	var files []string
	for i := range 20_000 {
		files = append(files, fmt.Sprintf("d%d/s%d/f%d.sls", i%20, i%400, i), fmt.Sprint(i))
	}

	k.begin("master", files...)
	k.Branch("dev", "master")
	k.Push = func() {
		var files []string
		for i := 0; i < 20_000; i += 3 {
			files = append(files, fmt.Sprintf("d%d/s%d/f%d.sls", i%20, i%400, i), "-")
		}
		k.Commit("master", files...)
	}
}

// moves changes all that a push may change.
func moves(k *Kind) {
	k.begin("master", "old/a", "a", "old/b", "b", "stays", "s")
	for _, b := range []string{"forced", "gone", "back"} {
		k.begin(b, "f", b)
	}

	first := k.Git("rev-parse", "back")
	k.begin("back", "f", "later")
	k.Git("tag", "goes", "master")
	k.Push = func() {
		k.Commit("master", "old/a", "-", "old/b", "-", "new/a", "a", "new/c/b", "b")
		k.Rewrite("forced", "top.sls", top, "p.sls", "forced: yes\n", "other", "1")
		k.Git("update-ref", "-d", "refs/heads/gone")
		k.Git("update-ref", "refs/heads/back", first)
		k.Git("tag", "-d", "goes")
	}
}

// names has names of files that are not plain ASCII.
func names(k *Kind) {
	k.begin("master", "ünï/ñ.sls", "u", "日本/語.sls", "j", "e\u0301", "decomposed", "é", "composed", "we ird?n", "q", "|pipe", "p", "a\\b", "backslash", `quo"te`, "q", "new\nline", "n", "tab\tx", "t", "*.sls", "star", "[x]", "x",
		"-dash", "d", "a:b", "colon", "%41", "percent", "🧂/salt", "s", ".hidden/.f", "h", "x.bak", "b", "space ", "s", " lead", "l", "...", "dots", "d.d/..x", "x", "~", "tilde", "$HOME", "h", "{{ x }}", "j")
	k.begin("zweig-ü", "ö", "ö")
	k.Push = func() { k.Commit("master", "ünï/ñ.sls", "-", "ünï/ò.sls", "u2", "日本/語.sls", "j2") }
}

// lfs has pointers, and attributes that would change files.
func lfs(k *Kind) {
	pointer := func(c string) string {
		return "version https://git-lfs.github.com/spec/v1\noid sha256:" + strings.Repeat(c, 64) + "\nsize 12345\n"
	}
	k.begin("master", ".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n*.sls text eol=crlf\n*.id ident\nsecret export-ignore\n*.u16 working-tree-encoding=UTF-16\n", ".lfsconfig", "[lfs]\n url = http://127.0.0.1:1/\n",
		"a.bin", pointer("a"), "d/b.bin", pointer("b"), "x.id", "$Id$\n", "secret", "s", "c.sls", "c: 1\n", "d.u16", "text")
	k.Push = func() { k.Commit("master", "a.bin", pointer("c"), ".gitattributes", "-") }
}

// submodules has some, of which no file may be served.
func submodules(k *Kind) {
	id := strings.Repeat("a", 40)
	k.begin("master", ".gitmodules",
		"[submodule \"sub\"]\n path = sub\n url = ../tags\n[submodule \"x\"]\n path = d/deep\n url = https://127.0.0.1:1/x\n",
		"sub", "@"+id, "d/deep", "@"+id, "d/f", "f", "only/sub", "@"+id)
	own := k.begin("dev", "f", "f")
	k.Commit("dev", "own", "@"+own) // a commit that is in this very repository
	k.Push = func() { k.Commit("master", "sub", "no longer a submodule", "d/f", "@"+id) }
}

// empty has no branch at first, later one without files and one with some.
func empty(k *Kind) {
	k.Push = func() {
		k.Commit("master")
		k.begin("full", "f", "f")
	}
}

// nested has all in a folder.
func nested(k *Kind) {
	k.Commit("master", "README", "r", "top.sls", "base: {}\n", "srv/salt/top.sls", top, "srv/salt/p.sls",
		"nested: yes\n", "srv/salt/d/f", "f", "srv/salt/up", "->../../README", "srv/salt/l", "->d/f",
		"srv/salt/dl", "->d", "srv/other", "o", "file", "not a folder")
	k.Branch("dev", "master")
	k.Commit("dev", "srv/salt/d/f", "dev", "srv/salt/d/e/g", "g")
	k.Commit("elsewhere", "f", "no such folder")
	k.Push = func() {
		k.Commit("master", "srv/salt/d/f", "-", "srv/salt/e/f", "moved", "srv/salt/p.sls", "nested: pushed\n")
	}
}

// maps has branches and tags of one name, for ref_types and maps of environments.
func maps(k *Kind) {
	k.begin("master", "f", "master", "d/g", "g")
	for _, b := range []string{"develop", "stable", "v1"} {
		k.Branch(b, "master")
		k.begin(b, "f", b, "d/"+b, b)
	}
	k.Git("tag", "v1", "master")
	k.Git("tag", "v2", "develop")
	k.Git("tag", "base", "stable")
	k.Push = func() {
		k.begin("develop", "f", "pushed")
		k.Git("update-ref", "-d", "refs/heads/v1")
		k.Git("update-ref", "-d", "refs/heads/stable")
	}
}

// Paths are the files of all branches and tags.
func (r *Repo) Paths() (out []string) {
	r.t.Helper()
	seen := map[string]bool{}
	for _, ref := range strings.Fields(r.Git("for-each-ref", "--format=%(objectname)")) {
		for name := range strings.SplitSeq(r.Git("ls-tree", "-r", "-t", "-z", "--name-only", ref), "\x00") {
			if name != "" && !seen[name] {
				seen[name] = true
				out = append(out, name)
			}
		}
	}
	return out
}

// Names are its branches and tags, without the beginning of their refs.
func (r *Repo) Names() []string {
	r.t.Helper()
	return strings.Split(r.Git("for-each-ref", "--format=%(refname:lstrip=2)"), "\n")
}
