package git

import (
	"strings"
	"testing"

	"saltern/test/gitrepo"
	"saltern/test/smalldisk"
)

// A small repository whose files are large fills no disk: neither as a tree nor as a file
// (finding 17 of the second audit).
func TestGitKeepsRoom(t *testing.T) {
	up := gitrepo.New(t, t.TempDir(), "big.git")
	up.Commit("master", "big", strings.Repeat("x", 14<<20))
	disk := smalldisk.Mount(t, 12, 5000)
	s := open(t, disk, Limits{})
	r := add(t, s, Remote{URL: up.URL()})
	fetch(t, r)
	ref, ok := r.Snapshot().Branch("master")
	if !ok {
		t.Fatal("no branch")
	}

	f, ok, err := r.Find(t.Context(), ref.Tree, "big")
	if err != nil || !ok {
		t.Fatal(err)
	}

	if h, err := r.Open(t.Context(), f.ID); err == nil || !strings.Contains(err.Error(), "MiB free") {
		t.Errorf("a file: %v %v", h, err)
	}

	if dir, err := r.Checkout(t.Context(), ref.Tree); err == nil || !strings.Contains(err.Error(), "are to stay free") {
		t.Errorf("a tree: %q %v", dir, err)
	}

	if bytes, _ := smalldisk.Free(t, disk); bytes < 8<<20 {
		t.Errorf("%d bytes are left", bytes)
	}
}

// A fetch of more than there is room for is ended.
func TestFetchKeepsRoom(t *testing.T) {
	up := gitrepo.New(t, t.TempDir(), "big.git")
	up.Commit("master", "big", noise(8<<20))
	disk := smalldisk.Mount(t, 6, 5000)
	s := open(t, disk, Limits{})
	r := add(t, s, Remote{URL: up.URL()})
	if _, err := r.Fetch(t.Context()); err == nil {
		t.Error("it is fetched")
	}
	if bytes, _ := smalldisk.Free(t, disk); bytes < 256<<10 {
		t.Errorf("%d bytes are left", bytes)
	}
}

// noise is text that git cannot make smaller.
func noise(size int) string {
	var b strings.Builder
	b.Grow(size)
	x := uint64(88172645463325252)
	for b.Len() < size {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		for i := range 8 {
			b.WriteByte(byte(x >> (8 * i)))
		}
	}
	return b.String()
}
