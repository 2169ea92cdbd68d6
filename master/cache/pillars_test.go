package cache

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/master/value"
)

func TestCompiled(t *testing.T) {
	for name, where := range map[string]Pillars{
		"files":       {},
		"memory":      {Memory: 1 << 20},
		"memory only": {Memory: 1 << 20, Only: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, 1<<20)
			if err := s.KeepPillars(where); err != nil {
				t.Fatal(err)
			}
			testCompiled(t, s)
		})
	}
}

func testCompiled(t *testing.T, s *Store) {
	now := time.Now().Add(time.Second)
	has := func(id, env string) bool { _, ok := s.Compiled(id, env, now, time.Minute); return ok }
	envs := []string{"", "base", "feature/x", "../../y", strings.Repeat("e", 255)}
	for i, env := range envs {
		if err := s.KeepCompiled("web1", env, value.NewMap("n", i), now); err != nil {
			t.Fatal(err)
		}
	}

	for i, env := range envs {
		p, _ := s.Compiled("web1", env, now, time.Minute)
		if n, ok := p.Int("n"); !ok || n != int64(i) {
			t.Errorf("environment %q: %v", env, p)
		}
	}

	// No minion gets the pillar of another one, whatever its name.
	for _, id := range []string{"web", "web1:base", "web1.p", "../web1"} {
		if has(id, "") || has(id, "base") {
			t.Errorf("%q has a pillar", id)
		}
	}

	if _, ok := s.Compiled("web1", "", now.Add(time.Minute), time.Minute); ok {
		t.Error("it does not end")
	}

	if _, ok := s.Compiled("web1", "", now.Add(-time.Hour), time.Minute); ok {
		t.Error("one of the future counts")
	}

	for i := range 3 * maxCompiled {
		if err := s.KeepCompiled("web1", fmt.Sprint(i), value.NewMap("n", i), now); err != nil {
			t.Fatal(err)
		}
	}

	kept := 0
	for i := range 3 * maxCompiled {
		if has("web1", fmt.Sprint(i)) {
			kept++
		}
	}

	if kept == 0 || kept > maxCompiled {
		t.Errorf("%d environments are kept", kept)
	}

	if err := s.Forget("web1"); err != nil {
		t.Fatal(err)
	}

	if found, _ := filepath.Glob(filepath.Join(s.dir, "*", "web1*")); len(found) != 0 || has("web1", "1") {
		t.Errorf("left: %v", found)
	}

	if s.KeepCompiled("../x", "", value.NewMap(), now) == nil || s.FlushCompiled("..") == nil {
		t.Error("any id is taken")
	}
}

// Several minions and environments alternate, and none gets a pillar that was stored for another.
func TestCompiledTurns(t *testing.T) {
	for _, where := range []Pillars{{}, {Memory: 1 << 20}, {Memory: 20_000}} {
		s, now := open(t, 1<<20), time.Now().Add(time.Second)
		if err := s.KeepPillars(where); err != nil {
			t.Fatal(err)
		}

		hits := 0
		for i := range 600 {
			id, env := fmt.Sprintf("m%d", i%7), []string{"", "dev"}[i%2]
			if p, ok := s.Compiled(id, env, now, time.Minute); ok {
				hits++
				if p.Str("id") != id || p.Str("env") != env {
					t.Fatalf("%s in %q gets the pillar of %s in %q", id, env, p.Str("id"), p.Str("env"))
				}
				continue
			}

			if err := s.KeepCompiled(id, env, value.NewMap("id", id, "env", env), now.Add(-time.Second)); err != nil {
				t.Fatal(err)
			}
		}

		if hits < 500 {
			t.Errorf("%+v: %d of 600 are given again", where, hits)
		}
	}
}

// Only the owner can read pillars in files, and these survive the process. If pillars are stored in
// memory, no file is left, not even one of an earlier setting.
func TestCompiledFiles(t *testing.T) {
	s, now := open(t, 1<<20), time.Now().Add(time.Second)
	if err := s.KeepCompiled("web1", "", value.NewMap("a", 1), now); err != nil {
		t.Fatal(err)
	}

	files, _ := filepath.Glob(filepath.Join(s.dir, "*", "web1*", "*.p"))
	more, _ := filepath.Glob(filepath.Join(s.dir, "*", "web1.p"))
	if files = append(files, more...); len(files) != 2 {
		t.Fatalf("%v", files)
	}

	for _, f := range files {
		if fi, err := os.Stat(f); err != nil || fi.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", f, fi.Mode(), err)
		}
	}

	again := func(where Pillars) *Store {
		t.Helper()
		s, err := Open(s.dir, 1<<20, valid)
		if err == nil {
			err = s.KeepPillars(where)
		}

		if err != nil {
			t.Fatal(err)
		}

		return s
	}

	if _, ok := again(Pillars{}).Compiled("web1", "", now, time.Minute); !ok {
		t.Error("it does not outlive the process")
	}

	for _, where := range []Pillars{{Memory: 1 << 20}, {Off: true}} {
		if err := again(Pillars{}).KeepCompiled("web1", "", value.NewMap("a", 1), now); err != nil {
			t.Fatal(err)
		}

		if _, ok := again(where).Compiled("web1", "", now, time.Minute); ok {
			t.Errorf("%+v: one of before counts", where)
		}

		if _, err := os.Stat(filepath.Join(s.dir, string(compiled))); !os.IsNotExist(err) {
			t.Errorf("%+v: files are left: %v", where, err)
		}
	}
}

func TestCompiledBounds(t *testing.T) {
	now := time.Now()
	p := newPillars(60_000)
	for i := range 1000 {
		p.put(fmt.Sprintf("m%d", i), "", value.NewMap("i", i), 100, now)
		if p.used > p.limit {
			t.Fatalf("%d bytes", p.used)
		}
		p.get("m0", "", now, time.Minute) // is used all the time
	}

	if _, ok := p.get("m0", "", now, time.Minute); !ok {
		t.Error("what is used goes first")
	}

	for id := range p.byID {
		p.dropMinion(id)
	}

	if p.used != 0 || p.order.Len() != 0 {
		t.Errorf("%d bytes of nothing", p.used)
	}

	dir := t.TempDir()
	for i := range 10 {
		sub := filepath.Join(dir, fmt.Sprint(i))
		file, at := filepath.Join(sub, "x.p"), now.Add(time.Duration(i)*time.Hour)
		for _, err := range []error{os.Mkdir(sub, 0o700), os.WriteFile(file, make([]byte, 100), 0o600),
			os.Chtimes(file, at, at)} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}

	for _, c := range []struct {
		bytes int64
		files int
		left  int
	}{{1 << 20, 100, 10}, {1000, 100, 7}, {1 << 20, 4, 3}} {
		if size, n, err := boundFolders(dir, c.bytes, c.files); err != nil || n != c.left || size != int64(100*c.left) {
			t.Errorf("%+v: %d bytes in %d: %v", c, size, n, err)
		}
	}

	if _, err := os.Stat(filepath.Join(dir, "9")); err != nil {
		t.Error("the newest is gone")
	}
}
