package keys_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"saltern/master/keys"
	"saltern/test/check"
)

// On a volume only the listings show changes: new, replaced and removed files.
func TestListsOnVolume(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, keys.Config{ScanEvery: 10 * time.Millisecond, FullEvery: -1, NoNotify: true})
	s.AsOnVolume()
	other := open(t, dir, keys.Config{NoNotify: true}) // another master
	run(t, s)

	for i := range 20 {
		check.Must(t, other.Put(fmt.Sprint("m", i), keys.Accepted, pem(t, i)))
	}

	within(t, 20*time.Second, "new files", func() bool { return len(s.Accepted()) == 20 })
	check.Must(t, other.Put("m3", keys.Accepted, pem(t, 33)))
	check.Must(t, other.Move("m4", keys.Rejected))
	check.Must(t, other.Delete("m5"))
	within(t, 20*time.Second, "replaced, rejected and removed files", func() bool {
		e, _ := s.Lookup("m3")
		return e.PEM == pem(t, 33) && state(s, "m4") == keys.Rejected && state(s, "m5") == keys.None &&
			len(s.Accepted()) == 18
	})
}

// A hint that agrees with the index costs nothing. For any other hint the store checks the folder,
// and only the folder's content counts.
func TestHint(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, keys.Config{ScanEvery: time.Hour, FullEvery: -1, NoNotify: true})
	other := open(t, dir, keys.Config{NoNotify: true})
	run(t, s)
	check.Must(t, other.Put("new", keys.Accepted, pem(t, 1)))
	check.Must(t, other.Put("gone", keys.Pending, pem(t, 2)))
	s.Hint("new", keys.Accepted, pem(t, 1))
	s.Hint("gone", keys.Pending, pem(t, 2))
	within(t, 20*time.Second, "both keys", func() bool {
		return state(s, "new") == keys.Accepted && state(s, "gone") == keys.Pending
	})
	check.Must(t, other.Delete("gone"))
	check.Must(t, other.Put("new", keys.Accepted, pem(t, 3)))
	check.Must(t, other.Deny("new", pem(t, 4)))
	s.Hint("gone", keys.None, "")
	s.Hint("new", keys.Accepted, pem(t, 3))
	s.Hint("new", keys.Denied, pem(t, 4))
	within(t, 20*time.Second, "the changes", func() bool {
		e, _ := s.Lookup("new")
		_, denied := s.Denied("new")
		return state(s, "gone") == keys.None && e.PEM == pem(t, 3) && denied
	})

	// A false hint changes nothing.
	s.Hint("nobody", keys.Accepted, pem(t, 5))
	s.Hint("new", keys.None, "")
	s.Hint("../../x", keys.Accepted, pem(t, 5))
	check.Must(t, other.Put("last", keys.Accepted, pem(t, 6)))
	s.Hint("last", keys.Accepted, pem(t, 6))
	within(t, 20*time.Second, "the last key", func() bool { return state(s, "last") == keys.Accepted })

	if state(s, "nobody") != keys.None || state(s, "new") != keys.Accepted {
		t.Error("a hint was believed")
	}
}

// If several masters store the first key of an id at the same moment, exactly one succeeds.
func TestSwapNewOnce(t *testing.T) {
	dir := t.TempDir()
	var masters []*keys.Store
	for range 3 {
		masters = append(masters, open(t, dir, keys.Config{NoNotify: true}))
	}

	for round := range 30 {
		id := fmt.Sprint("m", round)
		var won atomic.Int32
		var wg sync.WaitGroup
		for i, s := range masters {
			wg.Go(func() {
				switch err := s.Swap(id, keys.Entry{}, keys.Accepted, pem(t, i)); {
				case err == nil:
					won.Add(1)
				case !errors.Is(err, keys.ErrChanged):
					t.Error(err)
				}
			})
		}

		wg.Wait()
		if won.Load() != 1 {
			t.Fatalf("%d masters stored the key of %s", won.Load(), id)
		}
	}
}

// If a master dies after it has created a file and before it has written it, the file delays the
// minion only for a moment.
func TestSwapAbandonedFile(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, keys.Config{NoNotify: true})
	path := filepath.Join(dir, "minions", "m")
	check.Must(t, os.WriteFile(path, nil, 0o600))
	if err := s.Swap("m", keys.Entry{}, keys.Accepted, pem(t, 1)); !errors.Is(err, keys.ErrChanged) {
		t.Errorf("while it may still be written: %v", err)
	}
	old := time.Now().Add(-time.Minute)
	check.Must(t, os.Chtimes(path, old, old))
	check.Must(t, s.Swap("m", keys.Entry{}, keys.Accepted, pem(t, 1)))
	if other := open(t, dir, keys.Config{}); state(other, "m") != keys.Accepted {
		t.Error("the key is not there")
	}
}
