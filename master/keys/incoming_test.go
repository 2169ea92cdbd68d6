package keys_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/master/keys"
	"saltern/test/check"
)

// never is the time after which the store files keys in tests that file keys themselves.
const never = 24 * time.Hour

// master opens the store of a master on a volume.
func master(t testing.TB, dir, name string) *keys.Store {
	t.Helper()
	s := open(t, dir,
		keys.OnVolume(keys.Config{Incoming: name, NoNotify: true, ScanEvery: 10 * time.Millisecond, FullEvery: -1}))
	s.FileAfter(never, never, never)
	return s
}

// tool opens the store as salt-key does.
func tool(t testing.TB, dir string) *keys.Store {
	t.Helper()
	return open(t, dir, keys.OnVolume(keys.Config{NoNotify: true}))
}

func signIn(s *keys.Store, id string, st keys.State, pem string) error {
	old, _ := s.Lookup(id)
	return s.Swap(id, old, st, pem)
}

func incoming(t testing.TB, dir string) []string {
	t.Helper()
	l, err := filepath.Glob(filepath.Join(dir, "incoming_*"))
	check.Must(t, err)
	return l
}

// New keys that arrive together go into one file, all masters see them, and they become files of
// their own.
func TestIncoming(t *testing.T) {
	dir := t.TempDir()
	a, b := master(t, dir, "10.0.0.1"), master(t, dir, "10.0.0.2")
	run(t, b)
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			st := keys.Pending
			if i%2 == 0 {
				st = keys.Accepted
			}
			if err := signIn(a, fmt.Sprint("m", i), st, pem(t, i)); err != nil {
				t.Error(err)
			}
		})
	}

	wg.Wait()
	if n := len(incoming(t, dir)); n == 0 || n >= 40 {
		t.Errorf("%d incoming files for 40 keys", n)
	}

	if where(t, dir, "m0") != "" || len(a.Accepted()) != 20 || a.Count(keys.Pending) != 20 {
		t.Errorf("m0 has files in %q; accepted %d, pending %d", where(t, dir, "m0"), len(a.Accepted()),
			a.Count(keys.Pending))
	}

	before, _ := a.Lookup("m0")
	a.FileAfter(0, 0, never)
	for i := range 40 { // one master's events, as they come
		b.Hint(fmt.Sprint("m", i), keys.Accepted, pem(t, i))
	}

	within(t, 20*time.Second, "the other master knows them",
		func() bool { return len(b.Accepted()) == 20 && b.Count(keys.Pending) == 20 })
	var log changes
	a.OnChange(log.add)
	run(t, a)
	within(t, 20*time.Second, "files", func() bool { return a.Incoming().Waiting == 0 && len(incoming(t, dir)) == 0 })

	for i := range 40 {
		want := "pending "
		if i%2 == 0 {
			want = "accepted "
		}
		if got := where(t, dir, fmt.Sprint("m", i)); got != want {
			t.Errorf("m%d has files in %q", i, got)
		}
	}

	if now, _ := a.Lookup("m0"); now.Gen != before.Gen || len(log.take()) != 0 {
		t.Error("making the file was taken for a change of the key")
	}

	within(t, 20*time.Second, "the other master sees the files", func() bool { return b.Incoming().Waiting == 0 })
	if st := a.Incoming(); st.Claimed != 40 || st.Filed != 40 || len(b.Accepted()) != 20 ||
		b.Count(keys.Pending) != 20 {
		t.Errorf("%+v; the other master: %d accepted", st, len(b.Accepted()))
	}
}

// Three masters get three keys for one id: at most one key is acknowledged, and that one stays. The
// other masters return ErrChanged.
func TestIncomingConflict(t *testing.T) {
	dir := t.TempDir()
	masters := []*keys.Store{master(t, dir, "10.0.0.1"), master(t, dir, "10.0.0.2"), master(t, dir, "10.0.0.3")}
	winners := 0
	for i := range 10 {
		id := fmt.Sprint("m", i)
		states := [...]keys.State{keys.Accepted, []keys.State{keys.Accepted, keys.Pending}[i%2], keys.Accepted}
		outcome := make([]error, len(masters))
		var wg sync.WaitGroup
		for j, m := range masters {
			wg.Go(func() {
				time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
				outcome[j] = signIn(m, id, states[j], pem(t, 3*i+j))
			})
		}

		wg.Wait()
		winner := -1
		for j, err := range outcome {
			switch {
			case err == nil && winner < 0:
				winner = j
				winners++
			case err == nil:
				t.Fatalf("%s: two keys were acknowledged", id)
			case !errors.Is(err, keys.ErrChanged):
				t.Fatal(err)
			}
		}

		want := ""
		if winner >= 0 {
			want = states[winner].String() + " "
		}

		for j := range masters {
			m := masters[(i+j)%3]
			check.Must(t, m.FileAll())
			check.Must(t, m.Rescan())
			e, ok := m.Lookup(id)
			if ok != (winner >= 0) || ok && (e.PEM != pem(t, 3*i+winner) || e.State != states[winner]) {
				t.Fatalf("%s: acknowledged by %d, and master %d has it as %v", id, winner, (i+j)%3, e.State)
			}
		}

		if got := where(t, dir, id); got != want {
			t.Errorf("%s has files in %q, want %q", id, got, want)
		}
	}

	t.Logf("%d of 20 were acknowledged to somebody", winners)
}

// The same key of a minion at two masters at once is no conflict.
func TestIncomingTwice(t *testing.T) {
	dir := t.TempDir()
	a, b := master(t, dir, "10.0.0.1"), master(t, dir, "10.0.0.2")
	check.Must(t, signIn(a, "m", keys.Pending, pem(t, 1)))
	check.Must(t, signIn(b, "m", keys.Pending, pem(t, 1)))

	// Two claims with the same key but different states are a conflict.
	check.Must(t, signIn(a, "n", keys.Pending, pem(t, 2)))
	if err := signIn(b, "n", keys.Accepted, pem(t, 2)); !errors.Is(err, keys.ErrChanged) {
		t.Errorf("pending here and accepted there: %v", err)
	}

	check.Must(t, b.FileAll())
	check.Must(t, a.FileAll())
	if m, n := where(t, dir, "m"), where(t, dir, "n"); m != "pending " || n != "pending " {
		t.Errorf("files in %q and %q", m, n)
	}

	check.Must(t, signIn(b, "n", keys.Accepted, pem(t, 2)))
	check.Must(t, a.FileAll())
	if n := where(t, dir, "n"); n != "accepted " {
		t.Errorf("files in %q", n)
	}
}

// An administrator sees every key that was acknowledged. The administrator's changes stay,
// whichever master creates files afterwards.
func TestIncomingAdmin(t *testing.T) {
	type table struct {
		name  string
		filed bool // before the administrator came
		do    func(*keys.Store) error
		want  string // files
		state keys.State
	}

	accept := func(s *keys.Store) error { return s.Move("m", keys.Accepted) }
	reject := func(s *keys.Store) error { return s.Move("m", keys.Rejected) }
	remove := func(s *keys.Store) error { return s.Delete("m", keys.Pending) }
	both := func(s *keys.Store) error { return errors.Join(accept(s), s.Delete("m", keys.Accepted)) }
	other := func(s *keys.Store) error { return s.Put("m", keys.Accepted, pem(t, 2)) }
	again := func(s *keys.Store) error { return errors.Join(remove(s), s.Put("m", keys.Accepted, pem(t, 2))) }
	for _, c := range []table{
		{"accept", false, accept, "accepted ", keys.Accepted},
		{"accept a file", true, accept, "accepted ", keys.Accepted},
		{"reject", false, reject, "rejected ", keys.Rejected},
		{"delete", false, remove, "", keys.None},
		{"delete a file", true, remove, "", keys.None},
		{"delete all", false, func(s *keys.Store) error { return s.Delete("m") }, "", keys.None},
		{"accept and delete", false, both, "", keys.None},
		{"another key", false, other, "accepted ", keys.Accepted},
		{"another key after a removal", false, again, "accepted ", keys.Accepted},
	} {
		for _, who := range []string{"salt-key", "the master", "another master"} {
			t.Run(c.name+" by "+who, func(t *testing.T) {
				dir := t.TempDir()
				a, b := master(t, dir, "10.0.0.1"), master(t, dir, "10.0.0.2")
				check.Must(t, signIn(a, "m", keys.Pending, pem(t, 1)))
				if c.filed {
					check.Must(t, a.FileAll())
				}

				check.Must(t, b.Rescan())
				s := map[string]*keys.Store{"the master": a, "another master": b, "salt-key": tool(t, dir)}[who]
				if got := s.List(keys.Pending); len(got) != 1 || got[0] != "m" {
					t.Fatalf("pending: %q", got)
				}

				check.Must(t, c.do(s))

				// A master that is late, or starts again, changes nothing.
				for _, m := range []*keys.Store{a, b, master(t, dir, "10.0.0.1"), master(t, dir, "10.0.0.3"), a} {
					check.Must(t, m.FileAll())
					check.Must(t, m.Rescan())
					if state(m, "m") != c.state || where(t, dir, "m") != c.want {
						t.Fatalf("it is %v, with files in %q", state(m, "m"), where(t, dir, "m"))
					}
				}

				// The minion may come back after its removal.
				if c.state == keys.None {
					check.Must(t, signIn(b, "m", keys.Pending, pem(t, 3)))
					check.Must(t, a.Rescan())
					check.Must(t, a.FileAll())
					if e, _ := a.Lookup("m"); e.PEM != pem(t, 3) || where(t, dir, "m") != "pending " {
						t.Errorf("back as %v, with files in %q", e.State, where(t, dir, "m"))
					}
				}
			})
		}
	}
}

// If a master creates a file at the moment in which the key is removed or accepted, it removes the
// file again.
func TestIncomingRaces(t *testing.T) {
	for i := range 15 {
		dir := t.TempDir()
		a, b := master(t, dir, "10.0.0.1"), master(t, dir, "10.0.0.2")
		check.Must(t, signIn(a, "gone", keys.Accepted, pem(t, 1)))
		check.Must(t, signIn(a, "wanted", keys.Pending, pem(t, 2)))
		check.Must(t, b.Rescan())
		s := tool(t, dir)
		var wg sync.WaitGroup
		for _, f := range []func() error{a.FileAll, b.FileAll, func() error { return s.Delete("gone") },
			func() error { return s.Move("wanted", keys.Accepted) }} {
			wg.Go(func() {
				if err := f(); err != nil {
					t.Error(err)
				}
			})
		}

		wg.Wait()
		check.Must(t, a.FileAll())
		if g, w := where(t, dir, "gone"), where(t, dir, "wanted"); g != "" || w != "accepted " {
			t.Fatalf("round %d: removed but in %q; accepted but in %q", i, g, w)
		}
	}
}

// If a master has ended, another master files its keys. A restarted master files its own remaining
// keys. Afterwards no incoming files are left.
func TestIncomingOwnerGone(t *testing.T) {
	dir := t.TempDir()
	check.Must(t, signIn(master(t, dir, "10.0.0.1"), "m", keys.Accepted, pem(t, 1)))
	check.Must(t, signIn(master(t, dir, "10.0.0.2"), "n", keys.Pending, pem(t, 2)))
	b := master(t, dir, "10.0.0.2")
	if len(b.Accepted()) != 1 || b.Count(keys.Pending) != 1 {
		t.Fatalf("after a start: %q accepted, %q pending", b.Accepted(), b.List(keys.Pending))
	}
	b.FileAfter(never, 0, 100*time.Millisecond)
	run(t, b)
	within(t, 20*time.Second, "files", func() bool {
		return where(t, dir, "m") == "accepted " && where(t, dir, "n") == "pending " && len(incoming(t, dir)) == 0
	})
}

// When there is no room, or the folder accepts no files, new keys wait to become files, or are
// refused.
func TestIncomingFull(t *testing.T) {
	dir := t.TempDir()
	a := master(t, dir, "10.0.0.1")
	a.FillIncoming(true)
	check.Must(t, signIn(a, "m", keys.Accepted, pem(t, 1)))

	if where(t, dir, "m") != "accepted " || a.Incoming().Overflow != 1 {
		t.Errorf("in %q, %+v", where(t, dir, "m"), a.Incoming())
	}

	a.FillIncoming(false)
	check.Must(t, os.Rename(dir, dir+".away"))
	if err := signIn(a, "n", keys.Accepted, pem(t, 2)); err == nil || state(a, "n") != keys.None {
		t.Errorf("without a folder: %v, %v", err, state(a, "n"))
	}

	check.Must(t, os.Rename(dir+".away", dir))
	check.Must(t, signIn(a, "n", keys.Accepted, pem(t, 2)))
}

// A key that cannot become a file does not prevent other keys from becoming files.
func TestIncomingStuck(t *testing.T) {
	dir := t.TempDir()
	a := master(t, dir, "10.0.0.1")
	check.Must(t, os.Mkdir(filepath.Join(dir, keys.Accepted.Dir(), "a"), 0o700))
	for i, id := range []string{"a", "b", "c"} {
		check.Must(t, signIn(a, id, keys.Accepted, pem(t, i)))
	}

	a.FileAfter(0, 0, never)
	run(t, a)
	within(t, 30*time.Second, "files of the others", func() bool {
		return where(t, dir, "b") == "accepted " && where(t, dir, "c") == "accepted "
	})

	if state(a, "a") != keys.Accepted {
		t.Error("the key that waits is forgotten")
	}

	check.Must(t, os.Remove(filepath.Join(dir, keys.Accepted.Dir(), "a")))
	within(t, 60*time.Second, "the file",
		func() bool { return where(t, dir, "a") == "accepted " && len(incoming(t, dir)) == 0 })
}

// The content of the folder is checked: an incomplete file counts for nothing, a bad key is
// skipped, and no name becomes a path.
func TestIncomingDamaged(t *testing.T) {
	dir := t.TempDir()
	a := master(t, dir, "10.0.0.1")
	write := func(n int, text string) {
		t.Helper()
		check.Must(t,
			os.WriteFile(filepath.Join(dir,
				fmt.Sprintf("incoming_10.0.0.9_%019d_%016x_%s", n, n, keys.ShortHash("half"))),
				[]byte(text), 0o600))
	}

	good := strings.ReplaceAll(pem(t, 1), "\n", `\n`)
	write(1, `[{"id":"half","state":"accepted","pub":"`+good)
	write(2, `[{"id":"../../up","state":"accepted","pub":"`+good+`"},{"id":"bad","state":"accepted","pub":"x"},{"id":"r","state":"rejected","pub":"`+good+`"},
		{"id":"good","state":"accepted","pub":"`+good+`"}]`)
	write(3, "[{\"id\":\"m\"},"+strings.Repeat(`{"id":"m"},`, 100)+`{"id":"m"}]`)
	write(4, strings.Repeat("[", 100_000))
	write(6, strings.Repeat(" ", 1<<20))
	check.Must(t, a.Rescan())

	if got := a.Accepted(); len(got) != 1 || got[0] != "good" {
		t.Errorf("accepted: %q", got)
	}

	check.Must(t, a.FileAll())
	if where(t, dir, "good") != "accepted " {
		t.Error("the good key has no file")
	}

	// The store waits for an incomplete file and reads it when it is complete. If it never is, it
	// counts for nothing.
	whole := `[{"id":"half","state":"accepted","pub":"` + good + `"}]`
	time.AfterFunc(50*time.Millisecond, func() { write(1, whole) })
	if err := signIn(a, "half", keys.Accepted, pem(t, 9)); !errors.Is(err, keys.ErrChanged) {
		t.Errorf("another key than in the file that was not whole: %v", err)
	}

	check.Must(t, a.Delete("half"))
	write(5, whole[:40])
	check.Must(t, signIn(a, "half", keys.Accepted, pem(t, 9)))
}

// Whatever an incoming file contains, parsing it returns only ids and states that a minion may
// have, and no more keys than a file may hold.
func FuzzIncoming(f *testing.F) {
	good := strings.ReplaceAll(pem(f, 1), "\n", `\n`)
	f.Add([]byte(`[{"id":"m","state":"accepted","pub":"` + good + `"},{"id":"n","state":"pending","pub":"` +
		good + `"}]`))
	f.Add([]byte(`[{"id":"../m","state":"rejected","pub":"` + good + `"}]`))
	f.Add([]byte(`[{"id":"half","sta`))
	f.Fuzz(func(t *testing.T, data []byte) {
		ids, n := keys.ParseIncoming(data)
		if n > 16 {
			t.Fatalf("%d keys", n)
		}

		for id, st := range ids {
			if keys.ValidID(id) != nil || st != keys.Accepted && st != keys.Pending {
				t.Fatalf("%q as %v", id, st)
			}
		}
	})
}

// A master creates the file of a pending key. It then ends, or its volume fails, before it sees
// that another master has filed the key and an administrator has accepted it: the key does not
// become pending again.
func TestIncomingHalfFiled(t *testing.T) {
	for name, known := range map[string]bool{"ended": false, "volume failed": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			a := master(t, dir, "10.0.0.1")
			check.Must(t, signIn(a, "min", keys.Pending, pem(t, 1)))
			check.Must(t, tool(t, dir).Move("min", keys.Accepted))

			if known {
				a.Refresh("min")
				if e, _ := a.Lookup("min"); e.State != keys.Accepted {
					t.Fatalf("the key is %v", e.State)
				}
			}

			check.Must(t, os.WriteFile(filepath.Join(dir, keys.Pending.Dir(), "min"), []byte(pem(t, 1)), 0o600))
			if !known {
				a = master(t, dir, "10.0.0.1")
			}

			check.Must(t, a.FileAll())
			check.Must(t, a.Rescan())
			if e, _ := a.Lookup("min"); e.State != keys.Accepted || where(t, dir, "min") != "accepted " {
				t.Errorf("the key is %v, its files are %q", e.State, where(t, dir, "min"))
			}
		})
	}
}

// A key that was filed, and whose file another tool has removed, is not filed again.
func TestIncomingRemovedBySalt(t *testing.T) {
	dir := t.TempDir()
	a := master(t, dir, "10.0.0.1")
	check.Must(t, signIn(a, "min", keys.Pending, pem(t, 1)))
	check.Must(t, tool(t, dir).Move("min", keys.Accepted))
	a.Refresh("min")
	check.Must(t, os.Remove(filepath.Join(dir, keys.Accepted.Dir(), "min")))
	check.Must(t, a.FileAll())
	check.Must(t, a.Rescan())
	if got := where(t, dir, "min"); got != "" {
		t.Errorf("its files are %q", got)
	}
}
