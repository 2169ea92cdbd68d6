//go:build e2e

package storage

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/test/lab"
)

// writer builds the program that writes records.
func (h *hosts) writer(t *testing.T) string {
	t.Helper()
	out := filepath.Join(h.dir, "writer")
	cmd := exec.Command("go", "build", "-o", out, "saltern/test/gluster/writer")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the writer: %v\n%s", err, b)
	}
	return out
}

// written is what a writer says at its end.
type written struct {
	Kept    int     `json:"kept"`
	Seconds float64 `json:"seconds"`
	Longest int64   `json:"longest"` // ms
	Late    int64   `json:"late"`    // ms, how late the machine was meanwhile
	Faults  int     `json:"faults"`
}

// writing runs a writer on node i for so long at most; the function given ends
// it.
func (h *hosts) writing(t *testing.T, i int, program, dir string, seconds int) func() written {
	t.Helper()
	h.on(t, i, "mkdir", "-p", dir)
	type answer struct {
		out string
		err error
	}

	done := make(chan answer, 1)
	go func() {
		out, err := h.run(time.Duration(seconds+120)*time.Second, "exec", fmt.Sprint(i), program, "write",
			dir, fmt.Sprint(seconds))
		done <- answer{out, err}
	}()

	return func() written {
		t.Helper()

		// it may have ended
		_, _ = h.run(10*time.Second, "exec", fmt.Sprint(i), "pkill", "-TERM", "-x", filepath.Base(program))
		a := <-done
		var w written
		if err := json.Unmarshal([]byte(a.out), &w); err != nil || a.err != nil {
			t.Fatalf("writer: %v %v: %s", a.err, err, a.out)
		}

		return w
	}
}

// wrote runs a writer on node i until so many segments of a second are full.
func (h *hosts) wrote(t *testing.T, i int, program string, segments int) written {
	t.Helper()
	stop := h.writing(t, i, program, returnsOf(i), 600)
	h.goesOn(t, i, segments)
	return stop()
}

// goesOn waits until the writer of node i has begun so many segments more, and
// gives the number of the newest.
func (h *hosts) goesOn(t *testing.T, i, more int) int {
	t.Helper()
	from, at := -1, 0
	lab.Eventually(t, 2*time.Minute, fmt.Sprintf("node%d goes on writing", i), func() error {
		out, err := h.run(30*time.Second, "exec", fmt.Sprint(i), "ls", returnsOf(i))
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}

		at = len(strings.Fields(out))
		if from < 0 {
			from = at
		}

		if at < from+more {
			return fmt.Errorf("%d segments of %d", at, from+more)
		}

		return nil
	})

	return at
}

// working waits until node i has the volume mounted, and so many copies run.
func (h *hosts) working(t *testing.T, limit time.Duration, copies, i int) {
	t.Helper()
	start := time.Now()
	lab.Eventually(t, limit, fmt.Sprintf("node%d has fixed itself", i), func() error {
		s, err := h.storage(i)
		up := upCopies(s)
		switch {
		case err != nil:
			return err
		case !s.Ready:
			return fmt.Errorf("it waits for %s", s.Waiting)
		case up != copies:
			return fmt.Errorf("copies: %+v", s.Bricks)
		}

		return nil
	})

	t.Logf("node%d works again after %.1f s", i, time.Since(start).Seconds())
}
