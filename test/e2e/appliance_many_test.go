//go:build e2e && appliance

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"saltern/internal/control"
)

// TestApplianceVolumeManyFiles has more and more files for minions on a volume (make
// e2e-many-files FILES="2000 10000 40000"). Jobs that begin while they are written and copied
// have the newest files, or say of which time theirs are; so do those afterwards, of whom few
// may have old ones. It prints how long it takes to bring what is new.
func TestApplianceVolumeManyFiles(t *testing.T) {
	sizes := strings.Fields(os.Getenv("SALTERN_FILES"))
	if len(sizes) == 0 {
		t.Skip("NOT TESTED: make e2e-many-files")
	}
	const rounds = 18
	h, _ := startVolume(t)
	c := changes{h: h}
	c.prepare(t)

	have := 0
	for _, size := range sizes {
		files, err := strconv.Atoi(size)
		if err != nil {
			t.Fatal(err)
		}
		c.grow(t, have, files)
		have = files
		c.questions(t)
		for range rounds {
			c.apply(t)
		}
		t.Logf("%d files, all copied, load %s:", files, loadAverage())
		if said := c.figures(t); said > rounds/10 {
			t.Errorf("%d of %d jobs had no newest files", said, rounds)
		}
	}
}

// grow writes files through the mount of node 1 while jobs run, until each node has copied them.
func (c *changes) grow(t *testing.T, from, to int) {
	t.Helper()
	began := time.Now()
	made := make(chan error, 1)
	last := fmt.Sprintf("salt/many/last-%d.sls", to)
	tree := filepath.Join(c.h.root(t, 1), "srv/cluster/srv")
	go func() {
		err := fillTree(filepath.Join(tree, "salt/many"), from, to)
		if err == nil {
			err = os.WriteFile(filepath.Join(tree, last), []byte(state("last")), 0o644)
		}
		made <- err
	}()

	for written := false; !written; {
		select {
		case err := <-made:
			if err != nil {
				t.Fatal(err)
			}
			written = true
		default:
			c.apply(t)
		}
	}
	t.Logf("%d files are written after %.1f s, load %s", to-from, time.Since(began).Seconds(), loadAverage())

	missing := []int{1, 2, 3}
	for began := time.Now(); len(missing) > 0; {
		missing = slices.DeleteFunc(missing, func(i int) bool {
			_, err := os.Stat(filepath.Join(c.h.root(t, i), "data/saltern/mirror/srv", last))
			if err == nil {
				t.Logf("node%d has a copy of them %.1f s later", i, time.Since(began).Seconds())
			}
			return err == nil
		})
		if time.Since(began) > 15*time.Minute {
			t.Fatalf("nodes %v have no copy of %d files after %v", missing, to-from, time.Since(began))
		}
		c.apply(t)
	}
	t.Log("meanwhile:")
	c.figures(t)
}

// fillTree writes numbered states, fifty a directory.
func fillTree(root string, from, to int) error {
	var writers errgroup.Group
	writers.SetLimit(8)
	for first := from; first < to; first += 50 {
		writers.Go(func() error {
			dir := filepath.Join(root, fmt.Sprint(first/50))
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
			for i := first; i < min(first+50, to); i++ {
				if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.sls", i)), []byte(state(fmt.Sprint(i))), 0o644); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return writers.Wait()
}

// questions asks nodes for the newest files, one after another and all at once.
func (c *changes) questions(t *testing.T) {
	t.Helper()
	ask := func(i int) (time.Duration, control.Newest, error) {
		door := control.NewDoor(filepath.Join(c.h.root(t, i), "run/saltern/door.sock"), 0)
		began := time.Now()
		n, err := door.Newest(t.Context(), control.NewestQuestion{})
		return time.Since(began), n, err
	}
	var alone []time.Duration
	for round := range 9 {
		i := 1 + round%3
		c.write(t, 1+round/3, "salt/mark.sls", state(fmt.Sprint("question ", round)), inPlace)
		took, n, err := ask(i)
		if err != nil || n.Why != "" || n.Except != "" {
			t.Logf("node%d asked alone: %s%s %v", i, n.Why, n.Except, err)
		}
		alone = append(alone, took)
	}
	together := make([]time.Duration, 3)
	var all errgroup.Group
	for i := range together {
		all.Go(func() (err error) {
			together[i], _, err = ask(i + 1)
			return err
		})
	}
	if err := all.Wait(); err != nil {
		t.Error(err)
	}

	slices.Sort(alone)
	slices.Sort(together)
	t.Logf("a question takes %v, %v at most; %v at most when all three nodes ask",
		alone[len(alone)/2].Round(time.Millisecond), alone[len(alone)-1].Round(time.Millisecond), together[2].Round(time.Millisecond))
}
