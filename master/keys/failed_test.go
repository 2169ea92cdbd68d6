package keys

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"saltern/test/await"
	"saltern/test/check"
)

// acceptedFile writes the key file of an accepted minion.
func acceptedFile(t *testing.T, dir, id string) string {
	t.Helper()
	path := filepath.Join(dir, Accepted.Dir(), id)
	check.Must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	check.Must(t, os.WriteFile(path, []byte("the key of "+id+"\n"), 0o600))
	return path
}

// runStore opens a store and runs it until the end of the test.
func runStore(t *testing.T, dir string, cfg Config) *Store {
	t.Helper()
	s, err := Open(dir, cfg)
	check.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = s.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return s
}

// TestFailedLookIsRepeated: keys were deleted while their files could not be read, as on a volume that
// does not answer. The folder was listed, and does not change any more; the keys must not count for
// longer than the fault.
func TestFailedLookIsRepeated(t *testing.T) {
	for _, n := range []int{1, 40} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			dir := t.TempDir()
			var files []string
			for i := range n {
				files = append(files, acceptedFile(t, dir, fmt.Sprintf("web%d", i)))
			}

			var failing atomic.Bool
			s := runStore(t, dir, Config{
				Create:    true,
				ScanEvery: 20 * time.Millisecond,
				FullEvery: time.Hour,
				NoNotify:  true,
				load: func(s *Store, id string, st State, before *keyFile) (*keyFile, error) {
					if failing.Load() {
						return nil, &os.PathError{Op: "lstat", Path: id, Err: errors.New("transport endpoint is not connected")}
					}
					return s.loadFile(id, st, before)
				},
			})
			if have := s.Count(Accepted); have != n {
				t.Fatalf("%d keys, want %d", have, n)
			}

			failing.Store(true)
			for _, f := range files {
				check.Must(t, os.Remove(f))
			}
			old := time.Now().Add(-time.Hour) // long ago: the time of the folder is relied on
			check.Must(t, os.Chtimes(filepath.Join(dir, Accepted.Dir()), old, old))
			await.That(t, "the folder is listed", func() bool {
				s.scanMu.Lock()
				defer s.scanMu.Unlock()
				return !s.changed(Accepted)
			})
			if have := s.Count(Accepted); have != n {
				t.Errorf("%d keys while the files cannot be read, want %d", have, n)
			}

			failing.Store(false)
			await.That(t, "the deleted keys do not count any more", func() bool { return s.Count(Accepted) == 0 })
		})
	}
}

// TestManyFailedLooks: of more ids than are remembered, all files are checked.
func TestManyFailedLooks(t *testing.T) {
	var l failedLooks
	for i := range maxFailed + 1 {
		l.add(fmt.Sprint(i), []State{Accepted})
		l.add(fmt.Sprint(i), []State{Pending, Accepted})
	}
	if states, many := l.take(); !many || len(states) != maxFailed || len(states["7"]) != 2 {
		t.Errorf("%d ids, more of them: %v, %v", len(states), many, states["7"])
	}
	if states, many := l.take(); many || len(states) != 0 || l.has("7") {
		t.Errorf("once more: %d ids, more of them: %v", len(states), many)
	}
}

// TestDeletedKeyDuringSlowListings: a listing takes long. The pause after it is bounded, so that a
// key that another machine has deleted does not count for minutes.
func TestDeletedKeyDuringSlowListings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		path := acceptedFile(t, dir, "web1")
		const listing = 10 * time.Second
		s := runStore(t, dir, Config{
			Create:   true,
			NoNotify: true,
			load: func(s *Store, id string, st State, before *keyFile) (*keyFile, error) {
				time.Sleep(listing)
				return s.loadFile(id, st, before)
			},
		})

		time.Sleep(3 * listing) // the store has listed the folder once and rests
		check.Must(t, os.Remove(path))
		removed := time.Now()
		for {
			if _, has := s.Lookup("web1"); !has {
				break
			}
			if time.Since(removed) > maxRest+2*listing+10*time.Second {
				t.Fatalf("the key still counts %v after its removal", time.Since(removed))
			}
			time.Sleep(time.Second)
		}
	})
}
