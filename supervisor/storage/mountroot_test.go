package storage

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"saltern/glusterctl/mount"
)

func TestMountRoot(t *testing.T) {
	m := mountRoot{path: t.TempDir()}
	if err := m.requireVolume(); err == nil {
		t.Error("a plain directory is taken for a volume")
	}

	here, err := markOf(m.path)
	if err != nil || here.id == 0 {
		t.Fatalf("%v, %+v: the kernel does not tell mounts apart", err, here)
	}

	m.known = here
	if err := m.requireVolume(); err != nil {
		t.Errorf("the same mount is asked again: %v", err)
	}

	other, err := markOf("/proc")
	if err != nil || other == here {
		t.Fatalf("%v, %+v: the mark of another mount", err, other)
	}

	m.known = other
	if err := m.requireVolume(); err == nil || m.known != (mountMark{}) {
		t.Errorf("%v, %+v: another mount is taken for the one of before", err, m.known)
	}

	m.path += "/gone"
	if err := m.requireVolume(); err == nil {
		t.Error("a directory that is not there is taken for a volume")
	}
}

// Of the looks at a mount that works one in wholeProbe writes; one that cannot be
// written is tried each time.
func TestProbesWriteNowAndThen(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "probe")
	in, questions := io.Pipe()
	answers, out := io.Pipe()
	ended := make(chan int)
	go func() { ended <- probesChild([]string{root, "probe"}, in, out) }()
	lines := bufio.NewScanner(answers)
	ask := func() (h mount.Health, wrote bool) {
		t.Helper()
		old := time.Now().Add(-time.Hour)
		_ = os.Chtimes(dir, old, old) // not there at first
		if _, err := questions.Write([]byte("{}\n")); err != nil || !lines.Scan() {
			t.Fatalf("ask: %v", err)
		}

		if err := json.Unmarshal(lines.Bytes(), &h); err != nil {
			t.Fatal(err)
		}

		st, err := os.Stat(dir)
		return h, err == nil && time.Since(st.ModTime()) < time.Minute
	}

	if h, _ := ask(); h.State != mount.OK || h.Writable {
		t.Errorf("%+v without a directory to write in", h)
	}

	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}

	for i := 2; i <= 8; i++ {
		h, wrote := ask()
		if want := i == 2 || i%wholeProbe == 1; h.State != mount.OK || !h.Writable || h.Latency <= 0 || wrote != want {
			t.Errorf("look %d: %+v, wrote %v, want %v", i, h, wrote, want)
		}
	}

	questions.Close()
	if code := <-ended; code != 0 {
		t.Errorf("it ended with %d", code)
	}
}
