package git

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"saltern/test/check"
	"saltern/test/gitrepo"
)

// large is a repository of 20,000 files and 50 branches.
func large(b testing.TB) *gitrepo.Repo {
	up := gitrepo.New(b, b.TempDir(), "a")
	var files []string
	for i := range 20000 {
		files = append(files, fmt.Sprintf("d%d/s%d/f%d.sls", i%20, i%400, i),
			strings.Repeat(fmt.Sprintf("# %d\n", i), 600))
	}
	up.Commit("master", files...)
	for i := range 49 {
		up.Branch(fmt.Sprintf("b%d", i), "master")
		up.Commit(fmt.Sprintf("b%d", i), "d1/s1/f1.sls", fmt.Sprint(i))
	}
	return up
}

func BenchmarkFetch(b *testing.B) {
	up := large(b)
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			fetch(b, add(b, open(b, b.TempDir(), Limits{}), Remote{URL: up.URL(), Depth: 1}))
		}
	})

	r := add(b, open(b, b.TempDir(), Limits{}), Remote{URL: up.URL(), Depth: 1})
	fetch(b, r)
	b.Run("nothing-new", func(b *testing.B) {
		for b.Loop() {
			fetch(b, r)
		}
	})

	list := func(branch string) (n int) {
		ref, _ := r.Snapshot().Branch(branch)
		check.Must(b, r.Walk(b.Context(), ref.Tree, func(Item) error { n++; return nil }))
		return n
	}

	b.Run("list-cold", func(b *testing.B) {
		for b.Loop() {
			r.store.trees.clear()
			list("master")
		}
	})

	b.Run("list-another-branch", func(b *testing.B) {
		i := 0
		for b.Loop() {
			list(fmt.Sprintf("b%d", i%49))
			i++
		}
	})

	b.Run("read-cold", func(b *testing.B) {
		i := 0
		for b.Loop() {
			if i%20000 == 0 {
				r.store.blobs.removeAll()
			}
			read(b, r, i)
			i++
		}
	})

	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			read(b, r, 7)
		}
	})
}

func read(b *testing.B, r *Repository, i int) {
	ref, _ := r.Snapshot().Branch("master")
	i %= 20000
	e, ok, err := r.Find(b.Context(), ref.Tree, fmt.Sprintf("d%d/s%d/f%d.sls", i%20, i%400, i))
	if err != nil || !ok {
		b.Fatal(i, ok, err)
	}
	f, err := r.Open(b.Context(), e.ID)
	check.Must(b, err)
	if n, err := io.Copy(io.Discard, f); err != nil || n < 2000 {
		b.Fatal(n, err)
	}
	check.Must(b, f.Close())
}
