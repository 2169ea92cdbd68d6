package fileserver

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/logged"
)

// Names that are no UTF-8 are left out of lists, since no minion can ask for them, and the first is logged.
func TestListsNameWhatTheyLeaveOut(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"caf\xe9", "b\xfc", "plain", "\u00fc"} {
		if err := os.WriteFile(filepath.Join(root, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}

	var lines logged.Buffer
	s, err := New(Config{Roots: map[string][]string{"base": {root}}, Log: slog.New(slog.NewTextHandler(&lines, nil))})
	if err != nil {
		t.Fatal(err)
	}

	for range 2 {
		list, err := s.backends[0].List(t.Context(), "base")
		if err != nil || len(list.Files) != 2 {
			t.Errorf("%q %v", list.Files, err)
		}
	}

	if text := lines.String(); strings.Count(text, "no UTF-8") != 1 || !strings.Contains(text, `b\\xfc`) {
		t.Errorf("logged: %s", text)
	}
}

// A list is never of before the time that a minion's files have to be of, and as long as no
// directory changes it is not made again.
func TestListsSeeChangesAtOnce(t *testing.T) {
	root := t.TempDir()
	write := func(name string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}

	tick := func() { // waits until directories get a later time: they are as coarse as the kernel's tick
		dir := t.TempDir()
		fi, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}

		await.That(t, "directories get a later time", func() bool {
			next, err := os.Stat(t.TempDir())
			return err == nil && next.ModTime().After(fi.ModTime())
		})
	}

	ahead := func() time.Time { return time.Now().Add(time.Second) } // directories have settled
	s, err := New(Config{Roots: map[string][]string{"base": {root, root + "/later"}}, FollowSymlinks: true, Now: ahead})
	if err != nil {
		t.Fatal(err)
	}

	list := func(cmd string) string {
		t.Helper()
		v, err := s.Call(t.Context(), cmd, "m", value.NewMap("saltenv", "base"))
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(v)
	}

	cached := func() *cachedList { return s.cached[listKey{"roots", "base"}] }

	write("a")
	if got := list("_file_list"); got != "[a]" {
		t.Errorf("listed %s", got)
	}

	first := cached()
	list("_file_list")
	if cached() != first {
		t.Error("nothing has changed, and the list was made again")
	}

	for _, c := range []struct {
		name      string
		do        func()
		cmd, want string
	}{
		{"a new file", func() { write("b") }, "_file_list", "[a b]"},
		{"one in a new directory", func() { write("d/c") }, "_file_list", "[a b d/c]"},
		{"one removed", func() { _ = os.Remove(root + "/b") }, "_file_list", "[a d/c]"},
		{"a directory moved", func() { _ = os.Rename(root+"/d", root+"/e") }, "_dir_list", "[e]"},
		{"its file removed", func() { _ = os.Remove(root + "/e/c") }, "_file_list_emptydirs", "[e]"},
		{"a link", func() { _ = os.Symlink("a", root+"/l") }, "_symlink_list", "&{[{l a}] map[]}"},
		{"a link turned", func() { _ = os.Remove(root + "/l"); _ = os.Symlink("e", root+"/l") },
			"_symlink_list", "&{[{l e}] map[]}"},
		{"a root that was missing", func() { write("later/z") }, "_file_list", "[a later/z z]"},
	} {
		tick()
		c.do()
		if got := list(c.cmd); got != c.want {
			t.Errorf("%s: %s gives %s, want %s", c.name, c.cmd, got, c.want)
		}
	}
}
