package writable

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"saltern/test/await"
)

// TestWatchOfAStoppedClient: a file system whose client is stopped (GlusterFS by FUSE) hangs, is told of in time, and
// takes writes again when the client goes on.
func TestWatchOfAStoppedClient(t *testing.T) {
	program, err := exec.LookPath("glusterfs")
	if err != nil || os.Getuid() != 0 {
		t.Skip("NOT TESTED: glusterfs is not installed, or this is not root")
	}

	dir := t.TempDir()
	below, mount, volume := filepath.Join(dir, "below"), filepath.Join(dir, "mount"), filepath.Join(dir, "local.vol")
	for _, made := range []string{below, mount} {
		if err := os.Mkdir(made, 0o700); err != nil {
			t.Fatal(err)
		}
	}

	text := fmt.Sprintf("volume local\n type storage/posix\n option directory %s\nend-volume\n", below)
	if err := os.WriteFile(volume, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	client := exec.Command(program, "--no-daemon", "--volfile="+volume, "--log-file="+filepath.Join(dir, "log"), mount)
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		_ = client.Process.Signal(syscall.SIGCONT)
		_ = syscall.Unmount(mount, syscall.MNT_DETACH)
		_ = client.Process.Kill()
		_ = client.Wait()
	})

	mounted := func() bool {
		var above, here syscall.Stat_t
		return syscall.Stat(dir, &above) == nil && syscall.Stat(mount, &here) == nil && above.Dev != here.Dev
	}

	await.That(t, "the mount", mounted)

	w := &Watch{
		Every: 10 * time.Millisecond,
		Takes: time.Second,
		Try:   func() error { return Try(filepath.Join(mount, ".try")) },
	}

	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() { w.Run(ctx) })
	defer watching.Wait()

	defer cancel()
	await.That(t, "a try", func() bool { return w.newest.Load() != nil && w.Err() == nil })

	if err := client.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}

	await.That(t, "that it hangs", func() bool { return errors.Is(w.Err(), ErrHangs) })
	if err := client.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}

	await.That(t, "that it goes on", func() bool { return w.Err() == nil })
}
