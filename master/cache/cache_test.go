package cache

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/master/msgpack"
	"saltern/master/value"
)

func valid(id string) error {
	if id == "" || strings.ContainsAny(id, "/\x00") || id == ".." {
		return errors.New("invalid id")
	}
	return nil
}

func open(t *testing.T, memory int64) *Store {
	t.Helper()
	s, err := Open(t.TempDir(), memory, valid)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestCapturedEntries reads what a 3008.3 master wrote and writes the same.
func TestCapturedEntries(t *testing.T) {
	for _, tt := range []struct {
		file string
		bank Bank
		key  string
	}{{"cache_grains_p.bin", Grains, "id"}, {"cache_mine_p.bin", Mine, "test.ping"}} {
		want, err := os.ReadFile("../testdata/wire/" + tt.file)
		if err != nil {
			t.Fatal(err)
		}

		s := open(t, 1<<20)
		if err := os.WriteFile(s.entryPath(tt.bank, "min6"), want, 0o600); err != nil {
			t.Fatal(err)
		}

		m, ok := s.Get(tt.bank, "min6")
		if !ok {
			t.Fatalf("%s cannot be read", tt.file)
		}

		if _, ok := m.Get(tt.key); !ok {
			t.Errorf("%s lacks %s", tt.file, tt.key)
		}

		if _, err := s.Set(tt.bank, "copy", m); err != nil {
			t.Fatal(err)
		}

		if got, _ := os.ReadFile(s.entryPath(tt.bank, "copy")); string(got) != string(want) {
			t.Errorf("%s was written as\n%x, Python wrote\n%x", tt.file, got, want)
		}
	}
}

func TestMine(t *testing.T) {
	s := open(t, 1<<20)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	must(s.Update(Mine, "a", value.NewMap("x", int64(1), "y", int64(2)), false))
	must(s.Update(Mine, "a", value.NewMap("y", int64(3)), false))
	must(s.Remove(Mine, "a", "x"))
	must(s.Remove(Mine, "a", "nothing"))
	m, ok := s.Get(Mine, "a")
	if y, _ := m.Int("y"); !ok || m.Len() != 1 || y != 3 {
		t.Errorf("mine is %v", m)
	}

	must(s.Update(Mine, "a", value.NewMap("z", int64(1)), true))
	if m, _ := s.Get(Mine, "a"); m.Len() != 1 || m.Keys()[0] != "z" {
		t.Errorf("after clear: %v", m.Keys())
	}

	must(s.Flush(Mine, "a"))
	must(s.Flush(Mine, "a"))
	if _, ok := s.Get(Mine, "a"); ok {
		t.Error("still there")
	}
}

func TestChangesByOthersAreSeen(t *testing.T) {
	s := open(t, 1<<20)
	if changed, err := s.Set(Grains, "a", value.NewMap("os", "Debian")); !changed || err != nil {
		t.Fatal(changed, err)
	}

	if changed, err := s.Set(Grains, "a", value.NewMap("os", "Debian")); changed || err != nil {
		t.Errorf("the same grains count as changed: %v, %v", changed, err)
	}

	b, _ := msgpack.Marshal(value.NewMap("os", "Alpine Linux"), msgpack.Raw)
	if err := os.WriteFile(s.entryPath(Grains, "a"), b, 0o600); err != nil {
		t.Fatal(err)
	}

	if m, _ := s.Get(Grains, "a"); m.Str("os") != "Alpine Linux" {
		t.Errorf("still %q", m.Str("os"))
	}

	if err := os.Remove(s.entryPath(Grains, "a")); err != nil {
		t.Fatal(err)
	}

	if _, ok := s.Get(Grains, "a"); ok {
		t.Error("a removed file is still served")
	}
}

func TestAttack30Forget(t *testing.T) {
	s := open(t, 1<<20)
	for _, b := range banks {
		if _, err := s.Set(b, "a", value.NewMap("x", true)); err != nil {
			t.Fatal(err)
		}
	}

	for _, n := range []string{"a:prod.p", "ab:prod.p"} {
		if err := os.WriteFile(filepath.Join(s.dir, "pillar", n), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	if err := s.Forget("a"); err != nil {
		t.Fatal(err)
	}

	for _, b := range banks {
		if _, ok := s.Get(b, "a"); ok {
			t.Errorf("%s is still there", b)
		}
	}

	if left, _ := os.ReadDir(filepath.Join(s.dir, "pillar")); len(left) != 1 || left[0].Name() != "ab:prod.p" {
		t.Errorf("left: %v", left)
	}
}

func TestAttack16CacheFiles(t *testing.T) {
	s := open(t, 1<<20)
	if err := syscall.Mkfifo(s.entryPath(Grains, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}

	if err := os.Symlink("/etc/passwd", s.entryPath(Grains, "link")); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(s.entryPath(Grains, "bomb"), []byte{0xdf, 0xff, 0xff, 0xff, 0xff}, 0o600); err != nil {
		t.Fatal(err)
	}

	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, id := range []string{"fifo", "link", "bomb", "../grains/x", ""} {
			if _, ok := s.Get(Grains, id); ok {
				t.Errorf("%q was read", id)
			}
		}
	}()

	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Fatal("reading waits for a FIFO")
	}

	for _, id := range []string{"../x", "a/b", ""} {
		if _, err := s.Set(Grains, id, value.NewMap()); err == nil {
			t.Errorf("%q was written", id)
		}
	}

	ids, err := s.IDs(Grains)
	if err != nil || len(ids) != 1 || ids[0] != "bomb" {
		t.Errorf("ids: %v, %v", ids, err)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	s := open(t, 10_000)
	for _, id := range []string{"a", "b", "c", "d"} {
		if _, err := s.Set(Grains, id, value.NewMap("x", strings.Repeat("y", 700))); err != nil {
			t.Fatal(err)
		}
	}
	if s.mem.used > 10_000 || s.mem.order.Len() != 2 {
		t.Errorf("%d bytes in %d entries", s.mem.used, s.mem.order.Len())
	}
	if m, ok := s.Get(Grains, "a"); !ok || len(m.Str("x")) != 700 {
		t.Error("what left memory must come from its file")
	}
}

// TestSweep removes the files that a power cut has left, and keeps files that are being written and
// all others.
func TestSweep(t *testing.T) {
	s := open(t, 1<<20)
	if _, err := s.Set(Grains, "min6", value.NewMap("id", "min6")); err != nil {
		t.Fatal(err)
	}

	dir := filepath.Join(s.dir, string(Grains))
	now := time.Now()
	for name, age := range map[string]time.Duration{
		".new-1": 2 * leftover,
		".new-2": leftover / 2,
		".other": 2 * leftover,
		"min6.p": 2 * leftover,
	} {
		path := filepath.Join(dir, name)
		if name != "min6.p" {
			if err := os.WriteFile(path, []byte("half"), 0o600); err != nil {
				t.Fatal(err)
			}
		}

		if err := os.Chtimes(path, now.Add(-age), now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}

	if err := s.Sweep(now); err != nil {
		t.Fatal(err)
	}

	var names []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}

	for _, e := range entries {
		names = append(names, e.Name())
	}

	if got := strings.Join(names, " "); got != ".new-2 .other min6.p" {
		t.Error(got)
	}
}
