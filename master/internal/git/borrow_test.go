package git

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"saltern/test/check"
	"saltern/test/gitrepo"
)

// TestBorrowedTreesLeaveRoom: trees that are only looked at, one after the other within minutes, take no
// room from those that are served.
func TestBorrowedTreesLeaveRoom(t *testing.T) {
	up := gitrepo.New(t, t.TempDir(), "a")
	now := time.Now()
	s, err := Open(Config{
		Dir:    t.TempDir(),
		Limits: Limits{Work: 64 << 10, Checkouts: 100}, // room for eight trees
		Now:    func() time.Time { return now },
	})
	check.Must(t, err)
	t.Cleanup(s.Close)
	for i := range 30 {
		up.Commit(fmt.Sprintf("b%d", i), "f", fmt.Sprint(i), "g", "x")
	}

	r := add(t, s, Remote{URL: up.URL()})
	fetch(t, r)
	tree := func(i int) string {
		ref, ok := r.Snapshot().Branch(fmt.Sprintf("b%d", i))
		if !ok {
			t.Fatal(i)
		}
		return ref.Tree
	}
	isThere := func(dir string) bool { _, err := os.Stat(dir); return err == nil }

	var served []string
	serve := func(i int) {
		t.Helper()
		dir, err := r.Checkout(t.Context(), tree(i))
		check.Must(t, err)
		served = append(served, dir)
	}
	for i := range 3 {
		serve(i)
	}
	for i := 1; i < 25; i++ { // two of them are served
		dir, err := r.Borrow(t.Context(), tree(i))
		if err != nil || !isThere(dir) {
			t.Fatalf("tree %d: %v", i, err)
		}
		r.Release(tree(i))
	}
	for i := range 5 {
		serve(25 + i)
	}

	now = now.Add(keepTreeFor + time.Second)
	if _, err := r.Borrow(t.Context(), tree(10)); !errors.Is(err, ErrNoRoom) {
		t.Errorf("a tree is borrowed in the place of one that is served: %v", err)
	}
	for i, dir := range served {
		if !isThere(dir) {
			t.Errorf("the served tree %d is gone", i)
		}
	}
	r.Release("nosuch")
}
