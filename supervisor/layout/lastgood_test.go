package layout

import (
	"errors"
	"io/fs"
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
		o, err := UserOptions(&s, map[string]any{"timeout": 7})
		must(err)
		must(KeepGood(&s, o, Account{}))
		good, err := GoodOptions(&s)
		must(err)

		if good.Mark != o.Mark || good.Dir == o.Dir || good.Own["timeout"] != 7 {
			t.Errorf("kept %+v of %+v", good, o)
		}

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
	if _, err := UserOptions(&s, nil); err == nil {
		t.Error("a folder has a mark")
	}

	if err := KeepGood(&s, Options{Dir: s.UserConfDir()}, Account{}); err == nil {
		t.Error("a folder was kept")
	}
}

// The options of appliance.yaml belong to those that are kept, also where the ones
// of now are others; a version that kept none leaves those of now.
func TestKeptOptions(t *testing.T) {
	s := settings.Default("n1")
	s.DataDir, s.Storage.Path = t.TempDir(), t.TempDir()
	s.Master.Options = map[string]any{"timeout": 5, "nodegroups": map[string]any{"a": "L@b"}}
	if _, err := HeldOptions(&s); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing is held: %v", err)
	}

	before, err := UserOptions(&s, s.Master.Options)
	if err == nil {
		err = errors.Join(Hold(&s, before, Account{}), KeepGood(&s, before, Account{}))
	}

	if err != nil {
		t.Fatal(err)
	}

	s.Master.Options = map[string]any{"timeout": 6}
	now, _ := UserOptions(&s, s.Master.Options)
	held, err := HeldOptions(&s)
	if err != nil || held.Mark != before.Mark || now.Mark == before.Mark || held.Own["timeout"] != 5 {
		t.Errorf("%v: held %+v, before %+v, now %+v", err, held, before, now)
	}

	if err := Release(&s); err != nil {
		t.Fatal(err)
	}

	if _, err := HeldOptions(&s); !errors.Is(err, fs.ErrNotExist) || Release(&s) != nil {
		t.Errorf("after the release: %v", err)
	}

	if err := os.Remove(ownFile(GoodConfDir(&s))); err != nil {
		t.Fatal(err)
	}

	if good, err := GoodOptions(&s); err != nil || good.Own["timeout"] != 6 {
		t.Errorf("kept by an older version: %+v, %v", good, err)
	}

	for _, r := range []Refusal{{Mark: now.Mark, Why: "no"}, {}} {
		if err := Refuse(&s, r); err != nil {
			t.Fatal(err)
		}
		if got, err := Refused(&s); err != nil || got != r {
			t.Errorf("%+v, %v", got, err)
		}
	}
}
