//go:build e2e

package storage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/test/lab"
)

// TestLongNewest is finding B4 on a real volume: 200 changes in a row, each on one of three
// nodes and asked for on one of them without a pause, are in its copy when it says so, one
// file written in place by all of them among them; then
// with 2,000 more files, and how long the answers take.
func TestLongNewest(t *testing.T) {
	h := newHosts(t, 3)
	h.member(1)
	h.spread(t, 1)
	h.on(t, 1, "sh", "-c", "mkdir -p /data/saltern/storage && touch /data/saltern/storage/forms-the-volume")
	h.start(t, 1)
	h.settled(t, 3*time.Minute, 1, 1)
	h.member(2)
	h.member(3)
	h.spread(t, 1, 2, 3)
	h.start(t, 2)
	h.start(t, 3)
	h.settled(t, 4*time.Minute, 3, 1, 2, 3)

	for i := 1; i <= 3; i++ {
		h.serving(t, i)
	}

	h.newestCopies(t, 200)

	for i := range 2000 {
		file := filepath.Join(h.root(t, 1), "srv/cluster/srv/salt/many", fmt.Sprint(i/50), fmt.Sprintf("%d.sls", i))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("a: {test.nop: []}\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	for i := 1; i <= 3; i++ {
		lab.Eventually(t, 3*time.Minute, fmt.Sprintf("node%d has copied 2,000 files", i), func() error {
			n, err := h.door(t, i).Newest(t.Context(), control.NewestQuestion{})
			if err == nil && n.Why != "" {
				err = errors.New(n.Why)
			}
			return err
		})
	}

	h.newestCopies(t, 50)
}

// door asks the supervisor of node i.
func (h *hosts) door(t *testing.T, i int) *control.Door {
	return control.NewDoor(filepath.Join(h.root(t, i), "run/saltern/door.sock"), 0)
}

// root is the root directory of machine i, seen from here.
func (h *hosts) root(t *testing.T, i int) string {
	t.Helper()
	pid, err := os.ReadFile(filepath.Join(os.TempDir(), "lab-"+h.name, fmt.Sprint(i), "pid"))
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join("/proc", strings.TrimSpace(string(pid)), "root")
}

// newestCopies changes files through the mount of one node, asks a node for the newest at
// once, and compares its copy, round after round. On a machine that is busy with something
// else an answer may be that there was no time.
func (h *hosts) newestCopies(t *testing.T, rounds int) {
	t.Helper()
	const tree = "srv/cluster/srv/salt/newest"
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	var doors [4]*control.Door
	for i := 1; i <= 3; i++ {
		doors[i] = h.door(t, i)
	}

	must(os.MkdirAll(filepath.Join(h.root(t, 1), tree), 0o755))
	said := 0
	var took []time.Duration
	for round := range rounds {
		writer, reader := 1+round%3, 1+round/3%3
		at, text := filepath.Join(h.root(t, writer), tree), fmt.Sprintf("text %06d", round)
		file, want := "f.sls", text
		switch []int{0, 1, 0, 2, 3, 0, 4}[round/9%7] {
		case 0: // in place, the same file from all nodes
			must(os.WriteFile(filepath.Join(at, file), []byte(text), 0o644))
		case 1: // by a rename, as editors do
			must(os.WriteFile(filepath.Join(at, ".tmp"), []byte(text), 0o644))
			must(os.Rename(filepath.Join(at, ".tmp"), filepath.Join(at, file)))
		case 2: // a new file
			file = fmt.Sprintf("new/%d-%d.sls", rounds, round)
			must(os.MkdirAll(filepath.Join(at, "new"), 0o755))
			must(os.WriteFile(filepath.Join(at, file), []byte(text), 0o644))
		case 3: // a tree that was made beside
			beside := fmt.Sprintf("../beside%d-%d", rounds, round)
			tree := fmt.Sprintf("tree%d-%d", rounds, round)
			must(os.MkdirAll(filepath.Join(at, beside), 0o755))
			must(os.WriteFile(filepath.Join(at, beside, "t.sls"), []byte(text), 0o644))
			must(os.Rename(filepath.Join(at, beside), filepath.Join(at, tree)))
			file = tree + "/t.sls"
		case 4: // removed
			must(os.WriteFile(filepath.Join(at, file), []byte(text), 0o644))
			must(os.Remove(filepath.Join(at, file)))
			want = "gone"
		}

		begun := time.Now()
		n, err := doors[reader].Newest(t.Context(), control.NewestQuestion{})
		took = append(took, time.Since(begun))
		if err != nil || n.Direct {
			t.Fatalf("round %d: node%d: %+v %v", round, reader, n, err)
		}
		if n.Why != "" || n.Except != "" {
			said++
			t.Logf("round %d: node%d: %s%s", round, reader, n.Why, n.Except)
			continue
		}

		got := "gone"
		if b, err := os.ReadFile(filepath.Join(h.root(t, reader), "data/saltern/mirror/srv/salt/newest",
			file)); err == nil {
			got = string(b)
		}

		if got != want {
			t.Errorf("round %d: node%d wrote %s: %q; the copy of node%d has %q", round, writer, file, want, reader, got)
		}
	}

	slices.Sort(took)
	t.Logf("%d answers: median %v, longest %v; %d said that files are old", rounds,
		took[rounds/2].Round(time.Millisecond), took[rounds-1].Round(time.Millisecond), said)
	if said > 2+rounds/10 {
		t.Errorf("%d of %d answers were that files are old", said, rounds)
	}
}
