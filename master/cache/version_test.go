package cache

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"saltern/master/value"
)

// share opens a store that tells of its changes.
func share(t *testing.T, dir string, told *[]string) *Store {
	t.Helper()
	s, err := Open(dir, 1<<20, valid)
	if err == nil {
		err = s.Share(func(b Bank, id string) {
			if told != nil {
				*told = append(*told, string(b)+" "+id)
			}
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func get(t *testing.T, s *Store, b Bank, id string) Entry {
	t.Helper()
	e, ok := s.Entry(b, id)
	if !ok {
		t.Fatalf("nothing is known of the %s of %s", b, id)
	}
	return e
}

func put(t *testing.T, s *Store, b Bank, id string, m *value.Map) Entry {
	t.Helper()
	if _, err := s.Set(b, id, m); err != nil {
		t.Fatal(err)
	}
	return get(t, s, b, id)
}

func take(t *testing.T, s *Store, e Entry, want Outcome) {
	t.Helper()
	if got, err := s.Take(e); err != nil || got != want {
		t.Errorf("take: %v, %v; want %v", got, err, want)
	}
}

// An entry that one master stores reaches the other master once, and no older entry replaces it,
// also after restarts and with a clock that was ahead.
func TestVersions(t *testing.T) {
	var told []string
	dirA, dirB := t.TempDir(), t.TempDir()
	a, b := share(t, dirA, &told), share(t, dirB, nil)
	first := put(t, a, Grains, "min", value.NewMap("role", "old"))
	second := put(t, a, Grains, "min", value.NewMap("role", "web"))
	if len(told) != 2 || first.At >= second.At {
		t.Errorf("told %v; versions %d, %d", told, first.At, second.At)
	}

	take(t, b, Entry{Bank: Grains, ID: "min", At: second.At}, Wanted)
	take(t, b, second, Taken)
	take(t, b, first, Old)
	take(t, b, second, Old)

	if m, _ := b.Get(Grains, "min"); m.Str("role") != "web" || a.Sums() != b.Sums() {
		t.Errorf("the other master has %q", m.Str("role"))
	}

	// Written by a master whose clock is an hour ahead.
	ahead := second
	ahead.At += int64(time.Hour)
	take(t, b, ahead, Taken)
	b = share(t, dirB, nil)
	if now := put(t, b, Grains, "min", value.NewMap("role", "db")); now.At <= ahead.At {
		t.Error("a change after a restart is older than what it replaces")
	} else {
		take(t, a, now, Taken)
	}

	a = share(t, dirA, nil)
	if m, _ := a.Get(Grains, "min"); m.Str("role") != "db" || a.Sums() != b.Sums() {
		t.Errorf("after the restart: %q", m.Str("role"))
	}
}

// A machine that lost power may have kept the name and the time of a file and not its data.
func TestVersionsOfEmptyFiles(t *testing.T) {
	dir := t.TempDir()
	e := put(t, share(t, dir, nil), Pillar, "m1", value.NewMap("a", 1))
	path := filepath.Join(dir, string(Pillar), "m1.p")
	if err := errors.Join(os.Truncate(path, 0), os.Chtimes(path, time.Unix(0, e.At), time.Unix(0, e.At))); err != nil {
		t.Fatal(err)
	}

	s := share(t, dir, nil)
	if got, ok := s.Entry(Pillar, "m1"); ok {
		t.Errorf("known: %+v", got)
	}

	take(t, s, e, Taken)
	if got := get(t, s, Pillar, "m1"); !reflect.DeepEqual(got, e) {
		t.Errorf("%+v, not %+v", got, e)
	}

	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Errorf("left over: %v", left)
	}
}

// A removal counts as a change, outlives a restart, and is forgotten some day.
func TestVersionsOfRemoved(t *testing.T) {
	dirA, dirB := t.TempDir(), t.TempDir()
	a, b := share(t, dirA, nil), share(t, dirB, nil)
	e := put(t, a, Pillar, "min", value.NewMap("secret", "x"))
	take(t, b, e, Taken)

	if err := a.Forget("min"); err != nil {
		t.Fatal(err)
	}

	gone := get(t, a, Pillar, "min")
	take(t, b, gone, Taken)
	b = share(t, dirB, nil)
	take(t, b, e, Old)

	if _, ok := b.Get(Pillar, "min"); ok || !gone.Gone || a.Sums() != b.Sums() {
		t.Error("the pillar is back")
	}

	// The machine failed between the two steps of a removal.
	if err := os.WriteFile(b.entryPath(Pillar, "min"), e.Packed, 0o600); err != nil {
		t.Fatal(err)
	}

	if err := os.Chtimes(b.entryPath(Pillar, "min"), time.Unix(0, e.At), time.Unix(0, e.At)); err != nil {
		t.Fatal(err)
	}

	b = share(t, dirB, nil)
	if _, ok := b.Get(Pillar, "min"); ok {
		t.Error("the pillar is back after a removal that was cut short")
	}

	again := put(t, b, Pillar, "min", value.NewMap("secret", "y"))
	take(t, a, again, Taken)
	if left, _ := filepath.Glob(filepath.Join(dirA, goneDir, "*", "*")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}

	if err := b.Flush(Pillar, "min"); err != nil {
		t.Fatal(err)
	}

	if err := b.Rescan(time.Now().Add(keepGone + time.Hour)); err != nil {
		t.Fatal(err)
	}

	if _, known := b.Entry(Pillar, "min"); known {
		t.Error("a removal is remembered for ever")
	}
}

// Each of two masters adds a function to a mine at the same moment: both functions stay, and all
// masters have the same mine in the end.
func TestVersionsOfMines(t *testing.T) {
	a, b, c := share(t, t.TempDir(), nil), share(t, t.TempDir(), nil), share(t, t.TempDir(), nil)
	all := []*Store{a, b, c}
	e := put(t, a, Mine, "min", value.NewMap("f", int64(1)))
	take(t, b, e, Taken)
	take(t, c, e, Taken)

	for i, s := range all {
		if err := s.Update(Mine, "min", value.NewMap([]any{"a", "b", "c"}[i], int64(i)), false); err != nil {
			t.Fatal(err)
		}
	}

	for range 6 {
		for _, from := range all {
			for _, to := range all {
				if _, err := to.Take(get(t, from, Mine, "min")); err != nil {
					t.Fatal(err)
				}
			}
		}
	}

	for i, s := range all {
		if m, _ := s.Get(Mine, "min"); m.Len() != 4 || s.Sums() != a.Sums() {
			t.Errorf("master %d has %v", i, m.Keys())
		}
	}

	// What is removed, or replaced, stays so.
	if err := b.Remove(Mine, "min", "f"); err != nil {
		t.Fatal(err)
	}

	take(t, a, get(t, b, Mine, "min"), Taken)
	take(t, a, e, Old)
	if err := c.Update(Mine, "min", value.NewMap("z", true), true); err != nil {
		t.Fatal(err)
	}

	take(t, a, get(t, c, Mine, "min"), Taken)
	if m, _ := a.Get(Mine, "min"); m.Len() != 1 {
		t.Errorf("after clear: %v", m.Keys())
	}
}

// Files that other programs have written or removed.
func TestVersionsOfOthersFiles(t *testing.T) {
	var told []string
	s := share(t, t.TempDir(), &told)
	e := put(t, s, Grains, "min", value.NewMap("os", "Debian"))
	put(t, s, Grains, "two", value.NewMap("os", "Debian"))
	told = nil

	if err := os.WriteFile(s.entryPath(Grains, "min"), e.Packed, 0o600); err != nil {
		t.Fatal(err)
	}

	old := time.Unix(0, e.At).Add(-time.Hour)
	if err := os.Chtimes(s.entryPath(Grains, "min"), old, old); err != nil {
		t.Fatal(err)
	}

	if err := os.Remove(s.entryPath(Grains, "two")); err != nil {
		t.Fatal(err)
	}

	if err := s.Rescan(time.Now()); err != nil {
		t.Fatal(err)
	}

	if now := get(t, s, Grains, "min"); now.At <= e.At || len(told) != 1 {
		t.Errorf("version %d after %d, told %v", now.At, e.At, told)
	}

	if _, known := s.Entry(Grains, "two"); known {
		t.Error("what another program has removed is to come back from the other masters")
	}

	if err := s.Rescan(time.Now()); err != nil || len(told) != 1 {
		t.Errorf("told again: %v, %v", told, err)
	}
}

// Tokens are files of package eauth. A token that any master or program removes is removed on all
// masters.
func TestVersionsOfTokens(t *testing.T) {
	stores, dirs := [2]*Store{}, [2]string{}
	var told []string
	for i := range stores {
		var err error
		if stores[i], err = Open(t.TempDir(), 1<<20, valid); err != nil {
			t.Fatal(err)
		}

		dirs[i] = t.TempDir()
		stores[i].ShareTokens(dirs[i])
		if err := stores[i].Share(func(b Bank, id string) { told = append(told, string(b)+" "+id) }); err != nil {
			t.Fatal(err)
		}
	}

	a, b := stores[0], stores[1]
	path := filepath.Join(dirs[0], "c0ffee.p")
	if err := os.WriteFile(path, []byte("token"), 0o600); err != nil {
		t.Fatal(err)
	}

	if err := a.RescanTokens(); err != nil || len(told) != 1 {
		t.Fatal(err, told)
	}

	take(t, b, get(t, a, Tokens, "c0ffee"), Taken)
	info, err := os.Stat(filepath.Join(dirs[1], "c0ffee.p"))
	if err != nil || info.Mode() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}

	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}

	if err := a.RescanTokens(); err != nil || len(told) != 2 {
		t.Fatal(err, told)
	}

	take(t, b, get(t, a, Tokens, "c0ffee"), Taken)
	if _, err := os.Stat(filepath.Join(dirs[1], "c0ffee.p")); err == nil {
		t.Error("the token is still good at the other master")
	}
}

func TestAttack16Entries(t *testing.T) {
	s := share(t, t.TempDir(), nil)
	for _, e := range []Entry{
		{Bank: Grains, ID: "../x", At: 1},
		{Bank: "jobs", ID: "min", At: 1},
		{Bank: compiled, ID: "min", At: 1},
		{Bank: Grains, ID: "min"},
		{Bank: Mine, ID: "min", At: 1, Packed: make([]byte, maxEntry+1)},
	} {
		if got, err := s.Take(e); err == nil || got != Old {
			t.Errorf("%s %s: %v, %v", e.Bank, e.ID, got, err)
		}
	}
}
