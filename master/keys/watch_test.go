package keys_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"saltern/master/keys"
	"saltern/test/await"
	"saltern/test/check"
)

// salt-key changes the folders without telling the master. Release 3008 removes the file first and
// then writes it elsewhere; older releases move it.
func TestWatchSaltKey(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, keys.Config{ScanEvery: time.Hour}) // inotify alone
	check.Must(t, s.Put("new", keys.Pending, pem(t, 1)))
	check.Must(t, s.Put("old", keys.Pending, pem(t, 2)))
	run(t, s)
	watched(t, s, dir)
	var log changes
	s.OnChange(log.add)

	in := func(st keys.State, id string) string { return filepath.Join(dir, st.Dir(), id) }
	check.Must(t, os.Remove(in(keys.Pending, "new")))
	check.Must(t, os.WriteFile(in(keys.Accepted, "tmpk3x"), []byte(pem(t, 1)), 0o600))
	check.Must(t, os.Rename(in(keys.Accepted, "tmpk3x"), in(keys.Accepted, "new")))
	check.Must(t, os.Rename(in(keys.Pending, "old"), in(keys.Rejected, "old")))
	took := within(t, 10*time.Second, "both changes", func() bool {
		return state(s, "new") == keys.Accepted && state(s, "old") == keys.Rejected
	})
	t.Logf("seen after %v", took)

	for _, line := range log.take() {
		if line != "new pending>accepted" && line != "old pending>rejected" {
			t.Errorf("told %q", line)
		}
	}

	if got := s.Accepted(); len(got) != 1 || got[0] != "new" {
		t.Errorf("accepted %q", got)
	}

	// The file is rewritten in place, as 3006 does in open mode.
	e, _ := s.Lookup("new")
	check.Must(t, os.WriteFile(in(keys.Accepted, "new"), []byte(pem(t, 3)), 0o600))
	within(t, 10*time.Second, "new content", func() bool {
		n, _ := s.Lookup("new")
		return n.PEM == pem(t, 3) && n.Gen != e.Gen
	})

	check.Must(t, os.Remove(in(keys.Accepted, "new")))
	within(t, 10*time.Second, "removal", func() bool { return state(s, "new") == keys.None })
}

// watched waits until the store notices changes in its folders.
func watched(t *testing.T, s *keys.Store, dir string) {
	t.Helper()
	probe := filepath.Join(dir, keys.Pending.Dir(), "probe")
	await.That(t, "a watch", func() bool {
		check.Must(t, os.WriteFile(probe, []byte(pem(t, 9)), 0o600))
		return state(s, "probe") == keys.Pending
	})
	check.Must(t, os.Remove(probe))
	await.That(t, "the probe's end", func() bool { return state(s, "probe") == keys.None })
}

// Without inotify, as on a network volume, the periodic check finds changes.
func TestWatchByScan(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, keys.Config{ScanEvery: 10 * time.Millisecond, FullEvery: 50 * time.Millisecond, NoNotify: true})
	run(t, s)
	path := filepath.Join(dir, "minions", "m")
	check.Must(t, os.WriteFile(path, []byte(pem(t, 1)), 0o600))
	within(t, 10*time.Second, "new file", func() bool { return state(s, "m") == keys.Accepted })
	check.Must(t, os.WriteFile(path, []byte(pem(t, 2)), 0o600))
	within(t, 10*time.Second, "new content", func() bool { e, _ := s.Lookup("m"); return e.PEM == pem(t, 2) })
	check.Must(t, os.Remove(path))
	within(t, 10*time.Second, "removal", func() bool { return state(s, "m") == keys.None })
}

// If the volume is unmounted, minions must not be locked out.
func TestVolumeGone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	s := open(t, dir, keys.Config{ScanEvery: 10 * time.Millisecond, FullEvery: 20 * time.Millisecond})
	check.Must(t, s.Put("m", keys.Accepted, pem(t, 1)))
	run(t, s)
	check.Must(t, os.Rename(dir, dir+".away"))
	check.Must(t, os.Mkdir(dir, 0o700)) // the empty mount point
	await.Holds(t, 100*time.Millisecond, "the key", func() bool { return state(s, "m") == keys.Accepted })

	if err := s.Rescan(); !errors.Is(err, os.ErrNotExist) || state(s, "m") != keys.Accepted {
		t.Errorf("rescan: %v, %v", err, state(s, "m"))
	}

	check.Must(t, os.Remove(dir))
	check.Must(t, os.Rename(dir+".away", dir))
	check.Must(t, os.Remove(filepath.Join(dir, "minions", "m")))
	within(t, 10*time.Second, "removal after return", func() bool { return state(s, "m") == keys.None })
}

// There are more changes at once than the store remembers names.
func TestWatchFlood(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, keys.Config{ScanEvery: time.Hour})
	run(t, s)
	watched(t, s, dir)
	file := filepath.Join(dir, "key")
	check.Must(t, os.WriteFile(file, []byte(pem(t, 1)), 0o600))
	const n = 6000
	for i := range n {
		check.Must(t, os.Link(file, filepath.Join(dir, "minions", fmt.Sprint("m", i))))
	}
	within(t, 20*time.Second, "all files", func() bool { return len(s.Accepted()) == n })
}
