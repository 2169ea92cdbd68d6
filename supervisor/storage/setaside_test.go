package storage

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"saltern/glusterctl/disk"
	"saltern/test/check"
	"saltern/test/smalldisk"
)

// makeCopy makes what a brick leaves in its directory.
func makeCopy(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, ".glusterfs"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "content"), []byte(filepath.Base(dir)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestSetAside renames every copy of a volume, also one that the table does not name, keeps
// the newest of them, and leaves their names free for nobody.
func TestSetAside(t *testing.T) {
	bricks := filepath.Join(t.TempDir(), "bricks")
	for _, name := range []string{"cluster-1", "cluster-2", "other-1"} {
		makeCopy(t, filepath.Join(bricks, name))
	}

	if err := os.Mkdir(filepath.Join(bricks, "cluster-3"), 0o755); err != nil { // made, and never a copy
		t.Fatal(err)
	}

	m := New(Config{Volume: "cluster", Bricks: bricks})
	now := time.Date(2026, 11, 28, 9, 0, 0, 0, time.UTC)

	copies := func() (names []string) {
		for _, dir := range Copies(bricks, "cluster") {
			names = append(names, filepath.Base(dir))
		}
		return names
	}

	if got := copies(); !slices.Equal(got, []string{"cluster-1", "cluster-2"}) {
		t.Fatalf("copies: %v", got)
	}

	for range 2 {
		if err := m.SetAside(t.Context(), now); err != nil {
			t.Fatal(err)
		}
	}

	if got := copies(); len(got) > 0 {
		t.Errorf("copies afterwards: %v", got)
	}

	kept := KeptCopies(bricks, "cluster")
	if len(kept) != 2 || filepath.Base(kept[0]) != "cluster-1.before-20261128T090000" {
		t.Errorf("kept: %v", kept)
	}

	if b, err := os.ReadFile(filepath.Join(kept[0], "content")); err != nil || string(b) != "cluster-1" {
		t.Errorf("content: %q %v", b, err)
	}

	makeCopy(t, filepath.Join(bricks, "cluster-4"))
	if err := m.SetAside(t.Context(), now.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}

	kept = KeptCopies(bricks, "cluster")
	if len(kept) != maxAside || filepath.Base(kept[1]) != "cluster-4.before-20261128T100000" {
		t.Errorf("kept, an hour later: %v", kept)
	}

	if !exists(filepath.Join(bricks, "other-1", "content")) {
		t.Error("a copy of another volume is gone")
	}
}

// TestContained: processes of containers are not this machine's.
func TestContained(t *testing.T) {
	if inContainer("/proc/self") {
		t.Error("this process")
	}

	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	if err := cmd.Start(); err != nil {
		t.Skipf("NOT TESTED: no namespace of processes can be made: %v", err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()

	if !inContainer(fmt.Sprintf("/proc/%d", cmd.Process.Pid)) {
		t.Error("a process in a namespace of its own")
	}
}

// TestFreshBrickIsNoneOfBefore: the name of a copy that was set aside, and that of the copy
// which the volume still counts on, are not given again.
func TestFreshBrickIsNoneOfBefore(t *testing.T) {
	root := smalldisk.Mount(t, 8, 100) // bricks on the root file system are refused
	check.Must(t, disk.CheckRoot(root))
	for _, name := range []string{"cluster-1.before-20261128T090000", "cluster-2"} {
		if err := os.Mkdir(filepath.Join(root, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}

	got, err := FreshBrick(root, "cluster")
	if err != nil || filepath.Base(got) != "cluster-3" {
		t.Errorf("%s %v", got, err)
	}

	got, err = disk.FreshBrick(root, "cluster", got)
	if err != nil || filepath.Base(got) != "cluster-4" {
		t.Errorf("%s %v", got, err)
	}
}

// TestHeldCopyWaits: while it is not known whether this node's copy may be served, its
// state says what for.
func TestHeldCopyWaits(t *testing.T) {
	m := good(t)
	m.cfg.MayServe = func() (bool, string) { return false, "the other nodes" }
	if got := m.State().Waiting; got != "" {
		t.Errorf("glusterd runs, and it waits for %q", got)
	}
	m.obs.Daemon = "Connection failed"
	if got := m.State().Waiting; got != "the other nodes" {
		t.Errorf("waits for %q", got)
	}
}
