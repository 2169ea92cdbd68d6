package keys_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"saltern/master/crypt"
	"saltern/master/keys"
	"saltern/test/check"
)

func TestStates(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, keys.Config{})
	var log changes
	s.OnChange(log.add)
	steps := []struct {
		what  string
		do    func() error
		where string
		log   string
	}{
		{"pending", func() error { return s.Put("m", keys.Pending, pem(t, 1)) }, "pending ", "m none>pending"},
		{"again", func() error { return s.Put("m", keys.Pending, pem(t, 1)) }, "pending ", ""},
		{"accept", func() error { return s.Move("m", keys.Accepted) }, "accepted ", "m pending>accepted"},
		{"accept again", func() error { return s.Move("m", keys.Accepted) }, "accepted ", ""},
		{"deny", func() error { return s.Deny("m", pem(t, 2)) }, "accepted denied ", ""},
		{"reject", func() error { return s.Move("m", keys.Rejected) }, "rejected denied ", "m accepted>rejected"},
		{"put accepted", func() error { return s.Put("m", keys.Accepted, pem(t, 1)) }, "accepted denied ",
			"m rejected>accepted"},
		{"new key", func() error { return s.Put("m", keys.Accepted, pem(t, 3)) }, "accepted denied ",
			"m accepted>accepted"},
		{"delete denied", func() error { return s.Delete("m", keys.Denied) }, "accepted ", ""},
		{"delete", func() error { return s.Delete("m") }, "", "m accepted>none"},
		{"delete again", func() error { return s.Delete("m") }, "", ""},
	}

	for _, step := range steps {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}

		if got := where(t, dir, "m"); got != step.where {
			t.Errorf("%s: files in %q, want %q", step.what, got, step.where)
		}

		got := strings.Join(log.take(), ", ")

		// An id that Put moves is in two states for a moment; then the stricter state counts.
		if got != step.log {
			t.Errorf("%s: told %q, want %q", step.what, got, step.log)
		}

		again := open(t, dir, keys.Config{})
		if a, b := state(s, "m"), state(again, "m"); a != b {
			t.Errorf("%s: %s in memory, %s on disk", step.what, a, b)
		}
	}

	if err := s.Move("m", keys.Accepted); !errors.Is(err, keys.ErrUnknown) {
		t.Errorf("moving nothing: %v", err)
	}

	for _, st := range []keys.State{keys.None, keys.Denied, 9} {
		if s.Put("m", st, pem(t, 1)) == nil || s.Move("m", st) == nil {
			t.Errorf("state %d was taken", st)
		}
	}
}

func TestModesAndContent(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	s := open(t, dir, keys.Config{})
	check.Must(t, s.Put("m", keys.Accepted, "\r\n"+strings.ReplaceAll(pem(t, 1), "\n", "\r\n")+"\n\n"))
	for path, want := range map[string]os.FileMode{
		"":                 0o700,
		"minions":          0o700,
		"minions_pre":      0o700,
		"minions_autosign": 0o700,
		"minions/m":        0o600,
	} {
		st, err := os.Stat(filepath.Join(dir, path))
		if err != nil || st.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, st.Mode(), err)
		}
	}

	got, err := os.ReadFile(filepath.Join(dir, "minions/m"))
	if err != nil || string(got) != pem(t, 1) {
		t.Errorf("stored %q, %v", got, err)
	}

	e, ok := s.Lookup("m")
	if !ok || e.PEM != pem(t, 1) {
		t.Errorf("entry %+v", e)
	}

	if pub, err := e.Public(); err != nil || pub.Size() != 256 {
		t.Error(err)
	}

	if _, err := (keys.Entry{}).Public(); err == nil {
		t.Error("the zero entry has a key")
	}

	if _, err := keys.Open(filepath.Join(t.TempDir(), "none"), keys.Config{}); !errors.Is(err,
		os.ErrNotExist) || !strings.Contains(err.Error(), "applianced storage status") {
		t.Errorf("without Create: %v", err)
	}
}

// Entries of the folders that are not key files do not count as keys, and reading them never hangs.
func TestAttack16StrangeFiles(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, keys.Config{})
	in := func(name string) string { return filepath.Join(dir, "minions", name) }
	check.Must(t, os.WriteFile(in("good"), []byte(pem(t, 1)), 0o600))
	check.Must(t, os.WriteFile(in(".key_cache"), []byte("x"), 0o600))
	check.Must(t, os.WriteFile(in("empty"), nil, 0o600))
	check.Must(t, os.WriteFile(in("huge"), make([]byte, 1<<20), 0o600))
	check.Must(t, os.WriteFile(in("a*"), []byte(pem(t, 1)), 0o600))
	check.Must(t, os.WriteFile(in("garbage"), []byte("no key"), 0o600))
	check.Must(t, os.Symlink(in("good"), in("link")))
	check.Must(t, os.Mkdir(in("folder"), 0o700))
	check.Must(t, syscall.Mkfifo(in("pipe"), 0o600))
	check.Must(t, s.Rescan())

	if got := s.Accepted(); !slices.Equal(got, []string{"garbage", "good"}) {
		t.Errorf("accepted %q", got)
	}

	s.Refresh("link", "pipe", "folder", "huge", ".key_cache", "empty")
	if got := len(s.Accepted()); got != 2 {
		t.Errorf("%d accepted after refresh", got)
	}

	if e, _ := s.Lookup("garbage"); e.PEM != "no key" {
		t.Errorf("%+v", e)
	} else if _, err := e.Public(); !errors.Is(err, crypt.ErrPublicKey) {
		t.Error(err)
	}

	// A link at the path of a key file is replaced; the store never writes through it.
	check.Must(t, s.Put("link", keys.Accepted, pem(t, 2)))
	if b, err := os.ReadFile(in("good")); err != nil || string(b) != pem(t, 1) {
		t.Errorf("the link's target was written: %v", err)
	}
}

// When an id is in two folders, the stricter state counts, as in Salt. A key that is both accepted
// and pending counts as accepted.
func TestTwoFolders(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, keys.Config{})
	for i, d := range []string{"minions", "minions_pre", "minions_rejected"} {
		check.Must(t, os.WriteFile(filepath.Join(dir, d, "m"), []byte(pem(t, 1+i)), 0o600))
		check.Must(t, os.WriteFile(filepath.Join(dir, d, "again"), []byte(pem(t, 1)), 0o600))
	}

	check.Must(t, s.Rescan())
	for _, want := range []keys.State{keys.Rejected, keys.Pending, keys.Accepted} {
		if got := state(s, "m"); got != want {
			t.Errorf("%s, want %s", got, want)
		}

		if got := len(s.Accepted()) == 1; got != (want == keys.Accepted) {
			t.Errorf("accepted list wrong while %s", want)
		}

		check.Must(t, os.Remove(filepath.Join(dir, want.Dir(), "m")))
		s.Refresh("m")
	}

	if state(s, "m") != keys.None {
		t.Error("still there")
	}

	check.Must(t, s.Delete("again", keys.Rejected))
	pre := filepath.Join(dir, "minions_pre", "again")
	check.Must(t, os.WriteFile(pre, []byte(pem(t, 1)), 0o600))
	s.Refresh("again")

	if got := state(s, "again"); got != keys.Accepted {
		t.Errorf("the same key is %s", got)
	}

	check.Must(t, s.Move("again", keys.Accepted)) // as salt-key -A does
	if _, err := os.Stat(pre); !os.IsNotExist(err) || state(s, "again") != keys.Accepted {
		t.Errorf("%v, %s", err, state(s, "again"))
	}
}

func TestAttack22PendingBound(t *testing.T) {
	s := open(t, t.TempDir(), keys.Config{MaxPending: 3})
	check.Must(t, s.Put("good", keys.Accepted, pem(t, 0)))
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			err := s.Put(fmt.Sprintf("flood%d", i), keys.Pending, pem(t, i))
			if err != nil && !errors.Is(err, keys.ErrPendingFull) {
				t.Error(err)
			}
		})
	}

	wg.Wait()
	if n := s.Count(keys.Pending); n == 0 || n > 3 {
		t.Fatalf("%d pending", n)
	}

	for i := 0; s.Count(keys.Pending) < 3; i++ {
		check.Must(t, s.Put(fmt.Sprint("fill", i), keys.Pending, pem(t, i)))
	}

	if err := s.Put("more", keys.Pending, pem(t, 1)); !errors.Is(err, keys.ErrPendingFull) {
		t.Errorf("one more: %v", err)
	}

	check.Must(t, s.Put(s.List(keys.Pending)[0], keys.Pending, pem(t, 99))) // not a new one
	check.Must(t, s.Put("more", keys.Accepted, pem(t, 1)))
	check.Must(t, s.Delete(s.List(keys.Pending)[0]))
	check.Must(t, s.Put("again", keys.Pending, pem(t, 1)))
}

// An id has at most one denied key, and a flood of further keys causes no writes.
func TestAttack22DeniedBound(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, keys.Config{})
	check.Must(t, s.Put("m", keys.Accepted, pem(t, 0)))
	for i := range 20 {
		check.Must(t, s.Deny("m", pem(t, 1+i)))
	}

	e, ok := s.Denied("m")
	if !ok || e.PEM != pem(t, 1) || s.Count(keys.Denied) != 1 {
		t.Errorf("denied: %+v", e)
	}

	if got := s.List(keys.Denied); !slices.Equal(got, []string{"m"}) {
		t.Error(got)
	}

	if err := s.Deny("other", "garbage"); !errors.Is(err, crypt.ErrPublicKey) {
		t.Error(err)
	}
}

func TestAttack18NothingStored(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, keys.Config{})
	for _, text := range []string{"", "x", strings.Repeat("A", 1<<16), pem(t, 1)[:100]} {
		if err := s.Put("m", keys.Pending, text); !errors.Is(err, crypt.ErrPublicKey) {
			t.Errorf("%.20q: %v", text, err)
		}
	}
	if got := where(t, dir, "m"); got != "" {
		t.Errorf("stored in %s", got)
	}
}

// A key that was deleted and stored again has another generation.
func TestAttack30Generations(t *testing.T) {
	s := open(t, t.TempDir(), keys.Config{})
	check.Must(t, s.Put("m", keys.Accepted, pem(t, 1)))
	a, _ := s.Lookup("m")
	check.Must(t, s.Put("m", keys.Accepted, pem(t, 1)))

	if b, _ := s.Lookup("m"); b.Gen != a.Gen {
		t.Error("the same key has another generation")
	}

	check.Must(t, s.Delete("m"))
	check.Must(t, s.Put("m", keys.Accepted, pem(t, 2)))
	b, _ := s.Lookup("m")
	if b.Gen == a.Gen || b.Gen == 0 {
		t.Errorf("generation %d after %d", b.Gen, a.Gen)
	}

	if pa, err := a.Public(); err != nil {
		t.Error(err)
	} else if pb, err := b.Public(); err != nil || pa.Equal(pb) {
		t.Error("the old key is served", err)
	}
}

func TestSwap(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, keys.Config{})
	check.Must(t, s.Swap("m", keys.Entry{}, keys.Pending, pem(t, 1)))
	if err := s.Swap("m", keys.Entry{}, keys.Pending, pem(t, 2)); !errors.Is(err, keys.ErrChanged) {
		t.Errorf("second comer: %v", err)
	}

	old, _ := s.Lookup("m")

	// An administrator rejects the key, and the store has not seen that yet.
	check.Must(t, os.Rename(filepath.Join(dir, "minions_pre/m"), filepath.Join(dir, "minions_rejected/m")))
	if err := s.Swap("m", old, keys.Accepted, pem(t, 1)); !errors.Is(err, keys.ErrChanged) {
		t.Errorf("over a rejection: %v", err)
	}

	if got := where(t, dir, "m"); got != "rejected " {
		t.Errorf("in %s", got)
	}

	// If many callers store a key of a new id at once, one succeeds.
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for i := range 16 {
		wg.Go(func() {
			if s.Swap("race", keys.Entry{}, keys.Pending, pem(t, 10+i)) == nil {
				mu.Lock()
				won++
				mu.Unlock()
			}
		})
	}

	wg.Wait()
	if won != 1 {
		t.Errorf("%d winners", won)
	}
}

func TestAcceptedSnapshot(t *testing.T) {
	s := open(t, t.TempDir(), keys.Config{})
	var want []string
	for _, id := range []string{"m", "b", "z", "a", "q"} {
		check.Must(t, s.Put(id, keys.Accepted, pem(t, 1)))
		want = append(want, id)
		slices.Sort(want)
		if got := s.Accepted(); !slices.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	}

	before := s.Accepted()
	kept := slices.Clone(before)
	if &before[0] != &s.Accepted()[0] {
		t.Error("the snapshot was made again without need")
	}

	check.Must(t, s.Move("b", keys.Rejected))
	check.Must(t, s.Delete("z"))
	check.Must(t, s.Put("c", keys.Accepted, pem(t, 1)))
	if got := s.Accepted(); !slices.Equal(got, []string{"a", "c", "m", "q"}) {
		t.Errorf("%v", got)
	}

	if !slices.Equal(before, kept) {
		t.Error("an old snapshot has changed")
	}

	if got := s.List(keys.Rejected); !slices.Equal(got, []string{"b"}) {
		t.Error(got)
	}
}

// The expected values are the results of the Python function for the same file.
func TestFingerprint(t *testing.T) {
	text, err := os.ReadFile("testdata/minion.pub")
	check.Must(t, err)
	for _, c := range []struct{ hash, want string }{
		{"md5", "07:d3:fd:fb:79:59:b5:bd:77:85:60:87:98:5f:e5:b9"},
		{"sha1", "1d:b8:4c:59:42:8c:cc:c8:1e:35:11:4d:3e:fc:5a:ed:c4:34:1c:78"},
		{"sha224", "e0:cb:f8:36:9d:ce:41:14:e5:f6:75:35:7c:a0:77:b5:bc:5b:08:36:da:b5:32:46:50:59:82:aa"},
		{"sha256", "64:ec:18:59:fe:e7:b7:ee:61:7d:e5:c9:19:62:c4:a1:dd:6c:dc:c2:69:6d:67:e1:cd:d7:71:a5:8f:ac:85:e7"},
		{"sha384",
			"db:23:63:4e:11:30:64:56:00:47:e2:36:77:79:77:e9:a0:a5:64:4e:35:13:7c:0f:32:cd:6b:b5:a8:3b:9b:af:c5:b4:20:df:66:d4:78:28:a9:81:22:60:f2:0a:19:8c"},
		{"sha512",
			"6f:e7:ca:07:69:b4:a7:a2:55:10:6c:d9:fc:b6:f5:5e:ef:e8:03:2a:f5:74:8b:a5:7b:05:17:71:16:0e:ab:9d:11:c8:aa:ac:62:81:45:7c:b4:f9:18:1a:94:5e:25:e2:1d:fd:c4:d2:22:c0:53:04:ec:80:5e:37:a0:15:e8:1d"},
	} {
		for _, text := range []string{string(text), strings.ReplaceAll(string(text), "\n", "\r\n"),
			"\n" + strings.TrimSpace(string(text))} {
			if got, err := keys.Fingerprint(text, c.hash); err != nil || got != c.want {
				t.Errorf("%s: %s, %v", c.hash, got, err)
			}
		}
	}

	if _, err := keys.Fingerprint(string(text), "crc32"); err == nil {
		t.Error("unknown hash taken")
	}

	s := open(t, t.TempDir(), keys.Config{})
	check.Must(t, s.Put("m", keys.Accepted, string(text)))
	if got, err := s.Finger("m", "md5"); err != nil || len(got) != 47 {
		t.Error(got, err)
	}

	if _, err := s.Finger("x", "md5"); !errors.Is(err, keys.ErrUnknown) {
		t.Error(err)
	}
}

func TestSweepsOwnLeftovers(t *testing.T) {
	dir := t.TempDir()
	open(t, dir, keys.Config{})
	old := filepath.Join(dir, "minions", ".tmp-1")
	fresh := filepath.Join(dir, "minions", ".tmp-2")
	check.Must(t, os.WriteFile(old, nil, 0o600))
	check.Must(t, os.WriteFile(fresh, nil, 0o600))
	past := time.Now().Add(-2 * time.Hour)
	check.Must(t, os.Chtimes(old, past, past))
	open(t, dir, keys.Config{})

	if _, err := os.Stat(old); !errors.Is(err, os.ErrNotExist) {
		t.Error("the leftover is still there")
	}

	if _, err := os.Stat(fresh); err != nil {
		t.Error("somebody's file was removed")
	}
}

func many(b testing.TB, n int) (string, *keys.Store) {
	dir := b.TempDir()
	open(b, dir, keys.Config{})
	text := []byte(pem(b, 1))
	for i := range n {
		check.Must(b, os.WriteFile(filepath.Join(dir, "minions", fmt.Sprintf("minion-%05d", i)), text, 0o600))
	}
	return dir, open(b, dir, keys.Config{})
}

func BenchmarkOpen35000(b *testing.B) {
	dir, _ := many(b, 35000)
	for b.Loop() {
		open(b, dir, keys.Config{})
	}
}

func BenchmarkLookup35000(b *testing.B) {
	_, s := many(b, 35000)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			if e, ok := s.Lookup("minion-17000"); !ok || e.State != keys.Accepted {
				b.Fail()
			}
		}
	})
}

func BenchmarkRescan35000(b *testing.B) {
	_, s := many(b, 35000)
	for b.Loop() {
		check.Must(b, s.Rescan())
	}
}

func BenchmarkAcceptedAfterChange35000(b *testing.B) {
	_, s := many(b, 35000)
	s.Accepted()
	for b.Loop() {
		b.StopTimer()
		check.Must(b, s.Delete("minion-17000"))
		check.Must(b, s.Put("minion-17000", keys.Accepted, pem(b, 1)))
		b.StartTimer()
		if len(s.Accepted()) != 35000 {
			b.Fail()
		}
	}
}
