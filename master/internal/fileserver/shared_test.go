package fileserver

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// What is written is on the shared storage when the answer comes, and never in the copy.
func TestSharedTreeIsWrittenAtItsSource(t *testing.T) {
	copied, source := t.TempDir(), t.TempDir()
	passes := 0
	var away, late error
	s := NewShared(Tree{map[string][]string{"base": {copied}}},
		func(context.Context, string) (string, error) { return source, away },
		func(context.Context) error { passes++; return late })
	got, err := s.Write(t.Context(), "data", "a/b.sls", "base", 0)
	if b, _ := os.ReadFile(filepath.Join(source, "a/b.sls")); err != nil ||
		got != "Wrote data to file "+source+"/a/b.sls" || string(b) != "data" || passes != 1 {
		t.Errorf("%s %v; %q; %d passes", got, err, b, passes)
	}

	if l, _ := os.ReadDir(copied); len(l) > 0 {
		t.Errorf("written into the copy: %v", l)
	}

	for path, want := range map[string]string{
		"../x": "Invalid path: ../x",
		"/x":   "The path passed in /x is not relative to the environment base",
	} {
		if got, err := s.Write(t.Context(), "data", path, "base", 0); got != want || err != nil {
			t.Errorf("%s: %s %v", path, got, err)
		}
	}

	if err := os.Symlink(t.TempDir(), filepath.Join(source, "out")); err != nil {
		t.Fatal(err)
	}

	if got, err := s.Write(t.Context(), "data", "out/x", "base", 0); err == nil {
		t.Errorf("by a link out of the root: %s", got)
	}

	late = errors.New("it hangs")
	if got, err := s.Write(t.Context(), "data", "c.sls", "base", 0); err != nil ||
		!strings.Contains(got, "later: it hangs") {
		t.Errorf("no pass follows: %s %v", got, err)
	}

	away = errors.New("the shared volume does not answer")
	if got, err := s.Write(t.Context(), "data", "d.sls", "base", 0); !errors.Is(err, away) {
		t.Errorf("without the storage: %s %v", got, err)
	}

	away = nil
	if err := os.RemoveAll(source); err != nil {
		t.Fatal(err)
	}

	if got, err := s.Write(t.Context(), "data", "d.sls", "base", 0); err == nil {
		t.Errorf("where nothing is mounted: %s", got)
	}

	if _, err := os.Stat(source); err == nil {
		t.Error("a root was made where nothing is mounted")
	}
}

// TestWritersOfOneFile: of two requests for one file, on one node or on two that share it, one
// is in it afterwards, whole, and both have been carried out.
func TestWritersOfOneFile(t *testing.T) {
	dir := t.TempDir()
	texts := []string{strings.Repeat("a", 300_000), "b"}
	var all sync.WaitGroup
	for _, text := range texts {
		all.Go(func() {
			for range 30 {
				tree := Tree{map[string][]string{"base": {dir}}}
				if _, err := tree.Write(t.Context(), text, "top.sls", "base", 0); err != nil {
					t.Error(err)
					return
				}

				if b, err := os.ReadFile(filepath.Join(dir, "top.sls")); err != nil ||
					!slices.Contains(texts, string(b)) {
					t.Errorf("%d bytes are in it: %v", len(b), err)
					return
				}
			}
		})
	}

	all.Wait()
	if l, _ := os.ReadDir(dir); len(l) != 1 {
		t.Errorf("left behind: %v", l)
	}
}

// A storage that hangs holds one write; others are told.
func TestSharedTreeThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewShared(Tree{map[string][]string{"base": {"/copy"}}},
			func(context.Context, string) (string, error) { return "/source", nil },
			func(context.Context) error { return nil })
		s.turn <- struct{}{}
		if got, err := s.Write(t.Context(), "data", "a.sls", "base", 0); err == nil ||
			!strings.Contains(err.Error(), "has not ended") {
			t.Errorf("%s %v", got, err)
		}
	})
}
