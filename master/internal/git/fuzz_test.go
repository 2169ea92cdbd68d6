package git

import (
	"io/fs"
	"path"
	"regexp"
	"strings"
	"testing"
)

func FuzzTree(f *testing.F) {
	id := strings.Repeat("\x01", 20)
	f.Add([]byte("100644 a\x00"+id+"40000 d\x00"+id), 20)
	f.Add([]byte("120000 ..\x00"+id), 20)
	f.Add([]byte("1 a"), 32)
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		if size != 20 {
			size = 32
		}

		tree, err := parseTree(b, size)
		if err != nil {
			return
		}

		for i, e := range tree.entries {
			if !plainName(e.name) || len(e.id) != 2*size || i > 0 && tree.entries[i-1].name >= e.name {
				t.Fatalf("%+v", e)
			}
			if got, ok := tree.findEntry(e.name); !ok || got != e {
				t.Fatalf("%q is not found", e.name)
			}
		}
	})
}

func FuzzRefs(f *testing.F) {
	f.Add([]byte(strings.Repeat("a", 40) + "\trefs/heads/x\n" + strings.Repeat("b", 64) + " refs/tags/y^{}\n"))
	f.Add([]byte("x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		refs, err := parseRefs(b, 100)
		if err == nil && len(refs) > 100 {
			t.Fatal("too many")
		}

		for _, r := range refs {
			if !objectID.MatchString(r.id) || r.name == "" || len(r.name) > maxRefName ||
				strings.Contains(r.name, "\n") {
				t.Fatalf("%+v", r)
			}
		}
	})
}

func FuzzObjects(f *testing.F) {
	f.Add([]byte(strings.Repeat("a", 40) + " blob 12\n"))
	f.Add([]byte("x missing\n"))
	f.Add([]byte("tree " + strings.Repeat("a", 40) + "\n"))
	f.Add([]byte("object " + strings.Repeat("a", 40) + "\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := parseHeader(string(b)); err == nil && !h.missing && (h.size < 0 || !objectID.MatchString(h.id)) {
			t.Fatalf("%+v", h)
		}

		for _, parse := range []func([]byte) (string, error){parseCommit, parseTagged} {
			if id, err := parse(b); err == nil && !objectID.MatchString(id) {
				t.Fatalf("%q", id)
			}
		}
	})
}

// helper is how git is told to run a helper for a URL.
var helper = regexp.MustCompile(`^[A-Za-z0-9+.-]*::`)

func FuzzRemote(f *testing.F) {
	for _, s := range []string{"https://u:p@h/x", "git@h:x", "ssh://u@h:22/x", "ext::sh", "-x", "/srv/x", "file:///x"} {
		f.Add(s, "+refs/heads/*:refs/remotes/origin/*")
	}

	f.Fuzz(func(t *testing.T, url, spec string) {
		r := Remote{URL: url, Refspecs: []string{spec}}
		if r.normalize() != nil {
			return
		}

		argv, _ := r.remoteCommand("/d", "", "")
		for _, a := range append(argv, r.address, r.Refspecs[0]) {
			if strings.ContainsAny(a, "\x00\n") {
				t.Fatalf("%q", a)
			}
		}

		if strings.HasPrefix(r.address, "-") || strings.HasPrefix(spec, "-") || helper.MatchString(r.address) {
			t.Fatalf("%q %q", r.address, spec)
		}
	})
}

func FuzzInside(f *testing.F) {
	f.Add("a/b", "../c")
	f.Add("a", "../../x")
	f.Add("a/b", "../.../")
	f.Fuzz(func(t *testing.T, at, target string) {
		if !fs.ValidPath(at) { // no path of a tree
			return
		}
		to := path.Join(path.Dir(at), target)
		if out := path.IsAbs(target) || to == ".." || strings.HasPrefix(to, "../"); out && linkStaysInside(at, target) {
			t.Fatalf("%q at %q leads to %q", target, at, to)
		}
	})
}
