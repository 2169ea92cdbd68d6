package storage

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func put(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o640); err != nil {
		t.Fatal(err)
	}
}

func content(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func testCopier(t *testing.T) (c *copier, src, dst string) {
	t.Helper()
	src, dst = filepath.Join(t.TempDir(), "volume"), filepath.Join(t.TempDir(), "copy")
	for _, tree := range mirroredTrees() {
		if err := os.MkdirAll(filepath.Join(src, tree), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return newCopier(mirrorSpec{Source: src, Dest: dst, Trees: mirroredTrees(), Any: true}), src, dst
}

func pass(t *testing.T, c *copier) mirrorReport {
	t.Helper()
	r, err := c.runPass()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestCopyFollowsTheSource(t *testing.T) {
	c, src, dst := testCopier(t)
	put(t, filepath.Join(src, "srv/salt/top.sls"), "base: {}")
	put(t, filepath.Join(src, "srv/salt/a/b/c.txt"), "deep")
	put(t, filepath.Join(src, "srv/pillar/p.sls"), "secret")
	put(t, filepath.Join(src, "pki/minions/m1"), "a key")

	if err := os.Symlink("top.sls", filepath.Join(src, "srv/salt/link")); err != nil {
		t.Fatal(err)
	}

	if err := os.Symlink(filepath.Join(src, "srv/salt/a"), filepath.Join(src, "srv/salt/abs")); err != nil {
		t.Fatal(err)
	}

	if r := pass(t, c); r.Copied != 5 {
		t.Errorf("first pass: %+v", r)
	}

	if got := content(filepath.Join(dst, "srv/salt/abs/b/c.txt")); got != "deep" {
		t.Errorf("through an absolute link: %q", got)
	}

	if to, _ := os.Readlink(filepath.Join(dst, "srv/salt/abs")); strings.HasPrefix(to, src) {
		t.Errorf("the copy's link leads to the volume: %s", to)
	}

	if _, err := os.Stat(filepath.Join(dst, "pki")); err == nil {
		t.Error("keys were copied")
	}

	fi, err := os.Stat(filepath.Join(dst, "srv/pillar/p.sls"))
	if err != nil || fi.Mode().Perm() != 0o640 {
		t.Errorf("mode of the copy: %v %v", fi, err)
	}

	if r := pass(t, c); r.Copied+r.Removed != 0 {
		t.Errorf("nothing changed, and the pass did %+v", r)
	}

	// The same content under a new time is not written again.
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(filepath.Join(src, "srv/salt/top.sls"), later, later); err != nil {
		t.Fatal(err)
	}

	if r := pass(t, c); r.Copied != 0 {
		t.Errorf("touched only, and the pass did %+v", r)
	}

	put(t, filepath.Join(src, "srv/salt/top.sls"), "base: {'*': [a]}")
	if err := os.RemoveAll(filepath.Join(src, "srv/salt/a")); err != nil {
		t.Fatal(err)
	}

	put(t, filepath.Join(src, "srv/salt/a"), "a file where a directory was")
	if r := pass(t, c); r.Copied != 2 {
		t.Errorf("after changes: %+v", r)
	}

	if got := content(filepath.Join(dst, "srv/salt/a")); !strings.HasPrefix(got, "a file") {
		t.Errorf("got %q", got)
	}

	if err := os.Remove(filepath.Join(src, "srv/pillar/p.sls")); err != nil {
		t.Fatal(err)
	}

	pass(t, c)
	if _, err := os.Stat(filepath.Join(dst, "srv/pillar/p.sls")); err == nil {
		t.Error("a file that was removed is still served")
	}
}

// A copy that was damaged on this node's disk is made good, also by a new
// process that has only the index.
func TestCopyIsMended(t *testing.T) {
	c, src, dst := testCopier(t)
	put(t, filepath.Join(src, "srv/salt/f"), "right")
	pass(t, c)
	put(t, filepath.Join(dst, "srv/salt/f"), "wrong!")
	put(t, filepath.Join(dst, "srv/salt/stray"), "x")
	c = newCopier(c.spec)
	pass(t, c)
	if got := content(filepath.Join(dst, "srv/salt/f")); got != "right" {
		t.Errorf("got %q", got)
	}
	if _, err := os.Stat(filepath.Join(dst, "srv/salt/stray")); err == nil {
		t.Error("a stray file stays in the copy")
	}
}

// While the source is away nothing is removed.
func TestCopyKeepsWhatItHasWithoutASource(t *testing.T) {
	c, src, dst := testCopier(t)
	put(t, filepath.Join(src, "srv/salt/f"), "here")
	pass(t, c)
	if err := os.Rename(src, src+".away"); err != nil {
		t.Fatal(err)
	}

	if _, err := c.runPass(); err == nil {
		t.Error("a pass without a source succeeds")
	}

	if err := os.MkdirAll(src, 0o755); err != nil { // an empty mount point
		t.Fatal(err)
	}

	if _, err := c.runPass(); err == nil {
		t.Error("a pass over an empty mount point succeeds")
	}

	c.spec.Any = false // as on a node: only a volume counts
	if err := os.MkdirAll(filepath.Join(src, "srv/salt"), 0o755); err != nil {
		t.Fatal(err)
	}

	if _, err := c.runPass(); err == nil {
		t.Error("a pass over a local directory succeeds")
	}

	if got := content(filepath.Join(dst, "srv/salt/f")); got != "here" {
		t.Errorf("got %q", got)
	}
}

func TestCopyOnlyOwn(t *testing.T) {
	c, src, dst := testCopier(t)
	c.spec.OnlyOwn, c.spec.Index = true, filepath.Join(t.TempDir(), "index.json")
	put(t, filepath.Join(src, "srv/salt/ours"), "1")
	put(t, filepath.Join(dst, "srv/salt/theirs"), "2")
	pass(t, c)

	if err := os.Remove(filepath.Join(src, "srv/salt/ours")); err != nil {
		t.Fatal(err)
	}

	c = newCopier(c.spec)
	pass(t, c)
	if _, err := os.Stat(filepath.Join(dst, "srv/salt/ours")); err == nil {
		t.Error("what was removed at the source comes back")
	}

	if got := content(filepath.Join(dst, "srv/salt/theirs")); got != "2" {
		t.Errorf("a file of somebody else: %q", got)
	}
}

// A directory that is empty is listed again when its times say so, when it has
// changed of late, and now and then.
func TestCopyOfEmptyDirectories(t *testing.T) {
	c, src, dst := testCopier(t)
	pillar := filepath.Join(src, "srv/pillar")
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(pillar, old, old); err != nil {
		t.Fatal(err)
	}

	pass(t, c)
	fi, err := os.Lstat(pillar)
	if err != nil {
		t.Fatal(err)
	}

	w := walk{copier: c, emptyNow: map[string]emptied{}}
	if !w.stillEmpty("srv/pillar", fi) {
		t.Error("an empty directory of old times is listed")
	}

	if fresh, err := os.Lstat(filepath.Join(src, "srv/salt")); err != nil || w.stillEmpty("srv/salt", fresh) {
		t.Errorf("%v: a directory that has just changed is not listed", err)
	}

	e := c.emptyDirs["srv/pillar"]
	e.listed = e.listed.Add(-emptyAnyway)
	c.emptyDirs["srv/pillar"] = e
	if w.stillEmpty("srv/pillar", fi) {
		t.Error("an empty directory is never listed again")
	}

	pass(t, c)
	put(t, filepath.Join(pillar, "p.sls"), "a: 1")
	if err := os.Chtimes(pillar, old, old); err != nil { // its time of change stays another
		t.Fatal(err)
	}

	if r := pass(t, c); r.Copied != 1 || content(filepath.Join(dst, "srv/pillar/p.sls")) != "a: 1" {
		t.Errorf("%+v: the new file was not copied", r)
	}
}
