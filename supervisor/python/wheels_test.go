package python

import (
	"archive/zip"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	made "saltern/test/wheel"
)

// link adds an entry of a kind that is no file.
func link(name string, mode fs.FileMode) func(*zip.Writer) {
	return func(z *zip.Writer) {
		h := &zip.FileHeader{Name: name}
		h.SetMode(mode | 0o777)
		w, _ := z.CreateHeader(h)
		_, _ = w.Write([]byte("/etc/passwd"))
	}
}

func unpackOne(t testing.TB, path string) (string, error) {
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	w, err := openWheel(root, filepath.Base(path))
	if err != nil {
		return "", err
	}
	defer w.close()
	to := filepath.Join(t.TempDir(), "layer")
	return to, unpackLayer(to, []*wheel{w})
}

func TestWheelIsUnpacked(t *testing.T) {
	path := made.Wheel{Name: "two-words", Version: "1.0", Files: map[string]string{
		"two_words/__init__.py": "x = 1\n", "two_words/sub/a.txt": "a", "space/part.py": "",
		"two_words-1.0.data/purelib/pure.py": "y = 2\n", "two_words-1.0.data/scripts/run": "#!python\n",
		"two_words-1.0.data/data/etc/x.conf": "x",
	}}.Write(t, t.TempDir())

	to, err := unpackOne(t, path)
	if err != nil {
		t.Fatal(err)
	}

	for name, want := range map[string]bool{
		"two_words/sub/a.txt":              true,
		"pure.py":                          true,
		"two_words-1.0.dist-info/METADATA": true,
		"two_words-1.0.data":               false,
		"run":                              false,
		"etc":                              false,
	} {
		fi, err := os.Stat(filepath.Join(to, name))
		if (err == nil) != want || want && fi.Mode().Perm() != 0o644 {
			t.Errorf("%s: %v %v", name, fi, err)
		}
	}
}

func TestHostileWheels(t *testing.T) {
	ok := map[string]string{"m/__init__.py": ""}
	with := func(name string) map[string]string { return map[string]string{"m/__init__.py": "", name: "x"} }
	for name, tt := range map[string]struct {
		wheel made.Wheel
		want  string
	}{
		"up":          {made.Wheel{Files: with("../up.py")}, "no path inside"},
		"absolute":    {made.Wheel{Files: with("/etc/up.py")}, "no path inside"},
		"backslash":   {made.Wheel{Files: with(`m\up.py`)}, "no path inside"},
		"dot":         {made.Wheel{Files: with("m/./up.py")}, "no path inside"},
		"up in data":  {made.Wheel{Files: with("m-1.0.data/purelib/../../up.py")}, "no path inside"},
		"long":        {made.Wheel{Files: with("m/" + strings.Repeat("x", maxPath) + ".py")}, "no path inside"},
		"symlink":     {made.Wheel{Files: ok, Raw: link("m/link", fs.ModeSymlink)}, "no regular file"},
		"pipe":        {made.Wheel{Files: ok, Raw: link("m/pipe", fs.ModeNamedPipe)}, "no regular file"},
		"pth":         {made.Wheel{Files: with("m.pth")}, "run code"},
		"pth in data": {made.Wheel{Files: with("m-1.0.data/purelib/m.pth")}, "run code"},
		"not in RECORD": {made.Wheel{Files: ok, Raw: func(z *zip.Writer) { _, _ = z.Create("m/more.py") }},
			"no SHA-256"},
		"another hash": {made.Wheel{Files: ok, Record: func(s string) string { return strings.ReplaceAll(s, "sha256=4", "sha256=5") }},
			""},
		"twice": {made.Wheel{Files: ok, Raw: func(z *zip.Writer) { _, _ = z.Create("m/__init__.py") }},
			"twice"},
		"twice by data":     {made.Wheel{Files: with("m-1.0.data/purelib/m/__init__.py")}, "twice"},
		"two infos":         {made.Wheel{Files: with("other-1.0.dist-info/RECORD")}, "not one list"},
		"another's info":    {made.Wheel{Files: with("other-1.0.dist-info/METADATA")}, "another package"},
		"file and folder":   {made.Wheel{Files: with("m/__init__.py/x")}, "unpack"},
		"foreign signature": {made.Wheel{Files: ok, Record: func(string) string { return "\"" }}, "RECORD"},
	} {
		t.Run(name, func(t *testing.T) {
			tt.wheel.Name, tt.wheel.Version = "m", "1.0"
			if name == "another hash" {
				tt.wheel.Record = func(s string) string {
					i := strings.Index(s, "m/__init__.py,sha256=") + len("m/__init__.py,sha256=")
					flip := "A"
					if s[i] == 'A' {
						flip = "B"
					}
					return s[:i] + flip + s[i+1:]
				}

				tt.want = "RECORD says"
			}

			_, err := unpackOne(t, tt.wheel.Write(t, t.TempDir()))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}

	for _, file := range []string{"m-1.0.whl", "m-1.0-py3-none-any.zip", "-1.0-py3-none-any.whl"} {
		path := filepath.Join(t.TempDir(), file)
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := unpackOne(t, path); err == nil {
			t.Errorf("%s is taken", file)
		}
	}
}

// A file that says it is small and is not ends at the bound of the layer.
func TestBudget(t *testing.T) {
	w := opened(t,
		made.Wheel{
			Name:    "m",
			Version: "1.0",
			Files:   map[string]string{"m/big.txt": strings.Repeat("0", 1<<20), "m/two.txt": ""},
		})

	for _, left := range []budget{{bytes: 1 << 19, files: 100}, {bytes: 1 << 30, files: 2}} {
		to, err := os.OpenRoot(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}

		if err := w.unpack(to, &left); err == nil {
			t.Errorf("%+v is enough", left)
		}

		to.Close()
	}
}

// opened writes a wheel and opens it until the test ends.
func opened(t *testing.T, m made.Wheel) *wheel {
	t.Helper()
	path := m.Write(t, t.TempDir())
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	w, err := openWheel(root, filepath.Base(path))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.close() })
	return w
}

func FuzzWheel(f *testing.F) {
	b, err := os.ReadFile(made.Wheel{
		Name:    "m",
		Version: "1.0",
		Files:   map[string]string{"m/__init__.py": "x", "m-1.0.data/purelib/p.py": ""},
	}.Write(f, f.TempDir()))
	if err != nil {
		f.Fatal(err)
	}

	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "m-1.0-py3-none-any.whl")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}

		to, err := unpackOne(t, path)
		if err != nil {
			return
		}

		err = filepath.WalkDir(filepath.Dir(to), func(p string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() && (!e.Type().IsRegular() || !strings.HasPrefix(p, to+"/")) {
				t.Errorf("%s outside of the layer, or no file", p)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func FuzzList(f *testing.F) {
	text, err := packList([]Package{{
		Name:    "a",
		Version: "1",
		File:    "a-1-py3-none-any.whl",
		SHA256:  strings.Repeat("a", 64),
		Size:    1,
		Asked:   true,
	}})
	if err != nil {
		f.Fatal(err)
	}

	f.Add(text)
	f.Add([]byte(`{"format":1,"packages":[{"name":"a","file":"../a.whl"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		packages, err := parseList(text)
		if err != nil {
			return
		}

		for _, p := range packages {
			if strings.ContainsAny(p.File, "/\\\x00") || strings.HasPrefix(p.File, ".") {
				t.Errorf("%q", p.File)
			}
		}

		again, err := packList(packages)
		if err != nil {
			t.Fatal(err)
		}

		if _, err := parseList(again); err != nil {
			t.Error(err)
		}
	})
}

func FuzzRequirements(f *testing.F) {
	f.Add("a==1 --hash=sha256:" + strings.Repeat("0", 64) + "\nb >= 2, <3 ; python_version > '3'\n")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := ParseRequirements(text)
		for _, r := range list {
			if err == nil && (strings.HasPrefix(r.Text, "-") || strings.ContainsAny(r.Text, "@/\n")) {
				t.Errorf("%q", r.Text)
			}
		}
	})
}

func TestRequirements(t *testing.T) {
	sum := strings.Repeat("ab", 32)
	list, err := ParseRequirements("# of vault\nsaltext.vault==1.3.0 \\\n    --hash=sha256:" + sum +
		" \\\n    --hash=sha256:" + strings.Repeat("0", 64) + "\n\nhvac[x,y] >=1,<3 ; python_version < '4' # why\n")
	if err != nil || len(list) != 2 || list[0].Text != "saltext.vault==1.3.0" || len(list[0].Hashes) != 2 ||
		list[0].Hashes[0] != sum || list[1].packageName() != "hvac" {
		t.Errorf("%+v %v", list, err)
	}
	for _, text := range []string{"", "-e .", "--index-url http://x", "-r other", "a @ file:///x",
		"git+https://x/y", "./a", "a==1 --install-option=x", "a; x == 'http://y'", "a b"} {
		if list, err := ParseRequirements(text); err == nil {
			t.Errorf("%q is taken: %+v", text, list)
		}
	}
}
