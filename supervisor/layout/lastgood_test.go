package layout

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"saltern/supervisor/settings"
)

// What was kept is what is there now, no more and no less; what the master need not
// read is left out.
func TestKeepGood(t *testing.T) {
	s := settings.Default("n1")
	s.DataDir, s.Storage.Path = t.TempDir(), t.TempDir()
	in := func(name string) string { return filepath.Join(s.UserConfDir(), name) }
	must := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	kept := func() (list []string) {
		t.Helper()
		must(KeepGood(&s, Account{}))
		files, _ := os.ReadDir(GoodConfDir(&s))
		for _, f := range files {
			b, err := os.ReadFile(filepath.Join(GoodConfDir(&s), f.Name()))
			st, serr := f.Info()
			must(err, serr)
			if st.Mode() != 0o600 {
				t.Errorf("%s has mode %v", f.Name(), st.Mode())
			}
			list = append(list, f.Name()+": "+string(b))
		}
		return list
	}
	if got := kept(); len(got) != 0 {
		t.Errorf("without a folder: %v", got)
	}
	must(os.MkdirAll(s.UserConfDir(), 0o755), os.WriteFile(in("a.conf"), []byte("one"), 0o644), os.WriteFile(in("b.conf"), []byte("two"), 0o640),
		os.WriteFile(in("notes.txt"), []byte("x"), 0o644), os.Symlink("nothing", in("c.conf")), os.Symlink("b.conf", in("d.conf")))
	if got := kept(); !slices.Equal(got, []string{"a.conf: one", "b.conf: two", "d.conf: two"}) {
		t.Errorf("%q", got)
	}
	must(os.Remove(in("a.conf")), os.WriteFile(in("b.conf"), []byte("three"), 0o644))
	if got := kept(); !slices.Equal(got, []string{"b.conf: three", "d.conf: three"}) {
		t.Errorf("%q", got)
	}
	must(os.Mkdir(in("e.conf"), 0o755)) // no file: nothing is kept by halves without a word
	if err := KeepGood(&s, Account{}); err == nil {
		t.Error("a folder was kept")
	}
}
