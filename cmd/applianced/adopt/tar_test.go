package adopt

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"saltern/master/saltyaml"
	"saltern/master/value"
	"saltern/supervisor/settings"
)

func archive(t testing.TB, heads ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range heads {
		text := ""
		if h.Typeflag == tar.TypeReg {
			text = "text of " + h.Name
		}

		h.Size, h.Mode = int64(len(text)), 0o644
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}

		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}

	if err := w.Close(); err != nil {
		t.Fatal(err)
	}

	return b.Bytes()
}

func TestUnpack(t *testing.T) {
	file := func(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeReg} }
	link := func(name, to string) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: to}
	}
	for name, c := range map[string]struct {
		heads []tar.Header
		limit Limits
		bad   string // part of the error; empty: it is taken
		note  string
	}{
		"plain":              {heads: []tar.Header{file("etc/salt/master")}},
		"from a folder":      {heads: []tar.Header{{Name: "./", Typeflag: tar.TypeDir}, file("./etc/salt/master")}},
		"absolute":           {heads: []tar.Header{file("/etc/salt/master")}},
		"Latin-1, backslash": {heads: []tar.Header{file("srv/salt/caf\xe9/b\xfc.sls"), file(`srv/salt/dev\x2d.mount`)}},
		"folder again": {heads: []tar.Header{{Name: "etc/", Typeflag: tar.TypeDir},
			{Name: "etc/", Typeflag: tar.TypeDir}, file("etc/a")}},
		"caches":            {heads: []tar.Header{file("var/cache/salt/master/jobs/1")}},
		"up":                {heads: []tar.Header{file("../x")}, bad: "not plain"},
		"up inside":         {heads: []tar.Header{file("etc/../../x")}, bad: "not plain"},
		"twice":             {heads: []tar.Header{file("a"), file("a")}, bad: "twice"},
		"link then file":    {heads: []tar.Header{link("a", "/tmp"), file("a")}, bad: "twice"},
		"through a link":    {heads: []tar.Header{link("a", "/tmp"), file("a/x")}, bad: "read the archive"},
		"through a link up": {heads: []tar.Header{link("a", "../.."), file("a/x")}, bad: "read the archive"},
		"hard link out": {
			heads: []tar.Header{{Name: "a", Typeflag: tar.TypeLink, Linkname: "../../etc/passwd"}},
			bad:   "not plain",
		},
		"hard link": {heads: []tar.Header{file("b"), {Name: "a", Typeflag: tar.TypeLink, Linkname: "b"}}},
		"hard link to none": {
			heads: []tar.Header{{Name: "a", Typeflag: tar.TypeLink, Linkname: "b"}},
			note:  "another name of a file",
		},
		"device":   {heads: []tar.Header{{Name: "srv/d", Typeflag: tar.TypeBlock}}, note: "neither a file"},
		"pipe":     {heads: []tar.Header{{Name: "srv/d", Typeflag: tar.TypeFifo}}, note: "neither a file"},
		"odd name": {heads: []tar.Header{file("srv/a\nb")}, note: "characters that are not taken"},
		"too many": {
			heads: []tar.Header{file("a"), file("b"), file("c")},
			limit: Limits{Entries: 2},
			bad:   "more than 2 files",
		},
		"too large": {heads: []tar.Header{file("a"), file("b")}, limit: Limits{Bytes: 12}, bad: "too large"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, zipped := range []bool{false, true} {
				dir := t.TempDir()
				root, err := os.OpenRoot(dir)
				if err != nil {
					t.Fatal(err)
				}
				defer root.Close()

				text := archive(t, c.heads...)
				if zipped {
					var b bytes.Buffer
					z := gzip.NewWriter(&b)
					_, _ = z.Write(text)
					_ = z.Close()
					text = b.Bytes()
				}

				notes, err := Unpack(t.Context(), bytes.NewReader(text), root, c.limit)
				switch {
				case c.bad == "" && err != nil || c.bad != "" && (err == nil || !strings.Contains(err.Error(), c.bad)):
					t.Errorf("%v, not %q", err, c.bad)
				case c.note != "" && (len(notes) != 1 || !strings.Contains(notes[0].Text, c.note)):
					t.Errorf("notes %v", notes)
				}
			}
		})
	}

	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()

	for _, text := range []string{"", "no archive", strings.Repeat("x", 5000), string(archive(t, file("a"))[:600])} {
		if _, err := Unpack(t.Context(), strings.NewReader(text), root, Limits{}); err == nil {
			t.Errorf("%.20q is taken for an archive", text)
		}
	}
}

// Whatever a tree holds, a path in it leads nowhere else.
func TestTreeStaysInside(t *testing.T) {
	top := t.TempDir()
	write(t, top, map[string]string{"secret": "outside", "in/etc/secret": "inside"})
	for link, to := range map[string]string{
		"in/a": filepath.Join(top, "secret"),
		"in/b": "../secret",
		"in/c": "/etc/secret",
		"in/d": "../../../etc/secret",
		"in/e": "e",
		"in/f": "/",
	} {
		if err := os.Symlink(to, filepath.Join(top, link)); err != nil {
			t.Fatal(err)
		}
	}

	tree, err := Open(filepath.Join(top, "in"))
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()

	for name, want := range map[string]string{
		"/a":            "",
		"/b":            "",
		"/c":            "inside",
		"/d":            "inside",
		"/e":            "",
		"/f/etc/secret": "inside",
		"/../secret":    "",
		"/etc":          "",
		"/etc/secret/x": "",
	} {
		if b, err := tree.readFile(name, 100); string(b) != want || err == nil != (want != "") {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}

	if _, err := tree.readFile("/etc/secret", 3); err == nil {
		t.Error("a file is read beyond its bound")
	}
}

// FuzzUnpack: whatever an archive holds, it ends, stays within its bounds and below its
// folder, and makes no devices.
func FuzzUnpack(f *testing.F) {
	f.Add(archive(f, tar.Header{Name: "etc/salt/master", Typeflag: tar.TypeReg}))
	f.Add(archive(f, tar.Header{Name: "a", Typeflag: tar.TypeSymlink, Linkname: "/tmp"},
		tar.Header{Name: "a/x", Typeflag: tar.TypeReg}))
	f.Add(archive(f, tar.Header{Name: "b", Typeflag: tar.TypeReg},
		tar.Header{Name: "a", Typeflag: tar.TypeLink, Linkname: "b"},
		tar.Header{Name: "../x", Typeflag: tar.TypeReg}))
	f.Fuzz(func(t *testing.T, text []byte) {
		top := t.TempDir()
		if err := os.Mkdir(filepath.Join(top, "in"), 0o700); err != nil {
			t.Fatal(err)
		}

		root, err := os.OpenRoot(filepath.Join(top, "in"))
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()

		const most = 64 << 10
		_, _ = Unpack(t.Context(), bytes.NewReader(text), root, Limits{Bytes: most, Entries: 50})
		entries, err := os.ReadDir(top)
		if err != nil || len(entries) != 1 {
			t.Fatalf("%v %v", entries, err)
		}

		for _, n := range names(t, filepath.Join(top, "in")) {
			fi, err := os.Lstat(filepath.Join(top, "in", n))
			if err != nil || !fi.Mode().IsRegular() && fi.Mode()&os.ModeSymlink == 0 || fi.Size() > most {
				t.Errorf("%s: %v %v", n, fi.Mode(), err)
			}
		}
	})
}

// FuzzOptions: whatever a file of options holds, what is written of it says the same
// but for what is left out.
func FuzzOptions(f *testing.F) {
	for _, s := range []string{"user: salt\ntimeout: 5 # five\n", "{a: 1, user: 2}",
		"a: &x [1]\nuser: x\nb: *x\n", "user: |\n  a\n  b\nc: |\n  user: 1\n", "---\nuser: a\n...\n",
		"\"a\\nuser\": 1\nuser: 2", "? user\n: 1\nb: /srv/salt/x\n"} {
		f.Add(s)
	}

	f.Fuzz(func(t *testing.T, text string) {
		dir := t.TempDir()
		write(t, dir, map[string]string{"etc/salt/master": text})
		tree, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer tree.Close()

		c, err := readConfs(tree, "/etc/salt")
		if err != nil {
			return
		}

		s := settings.Default("n1")
		o := &sorter{
			settings: &s,
			confs:    c,
			tree:     tree,
			roots:    []*root{{kind: States, env: "base", dir: "/srv/salt", served: "/x/srv/salt"}},
		}

		if err := o.sortOptions(); err != nil {
			return
		}

		for _, out := range o.files {
			want := out.from.options.Clone()
			for n := range out.drop {
				want.Delete(n)
			}

			for n, v := range out.change {
				want.Set(n, v)
			}

			if len(out.text) == 0 {
				if want.Len() > 0 {
					t.Errorf("%q is lost", text)
				}
				continue
			}

			got, err := saltyaml.Decode(out.text, "out")
			if err != nil || !value.Equal(got, want) && value.Equal(want, want) {
				t.Errorf("%q became %q: %v", text, out.text, err)
			}
		}
	})
}
