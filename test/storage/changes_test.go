//go:build e2e

package storage

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"saltern/test/lab"
)

// Three nodes change the same file without locks while the cable of one is
// pulled: no change that was acknowledged is lost, nobody waits longer than the
// volume's timers allow, and the copies agree.
func TestLongChangesWithoutLocks(t *testing.T) {
	h := grown(t)
	program := h.writer(t)
	const file = "/srv/cluster/nodes/node1/changes"
	h.on(t, 1, "mkdir", "-p", file)
	type outcome struct {
		i   int
		out string
		err error
	}

	done := make(chan outcome, 3)
	for i := 1; i <= 3; i++ {
		go func() {
			// Whoever is cut off may never come back from a call.
			out, err := h.run(3*time.Minute, "exec", fmt.Sprint(i), "timeout", "-s", "KILL", "90", program,
				"change", file+"/record", "25")
			done <- outcome{i, out, err}
		}()
	}

	time.Sleep(10 * time.Second) // of changes by all three
	h.must(t, time.Minute, "cut", "3")
	made := map[string]uint64{}
	for range 3 {
		o := <-done
		t.Logf("node%d: %v %s", o.i, o.err, o.out[max(0, len(o.out)-500):])
		if o.i == 3 {
			continue
		}

		var r struct {
			Made, Conflicts uint64
			Longest         int64
		}

		line := o.out[strings.LastIndex(strings.TrimSpace(o.out), "\n")+1:]
		if err := json.Unmarshal([]byte(line), &r); err != nil || o.err != nil {
			t.Fatalf("node%d: %v, %v", o.i, err, o.err)
		}

		if r.Made == 0 {
			t.Errorf("node%d made no change", o.i)
		}

		made[fmt.Sprintf("node%d", o.i)] = r.Made
	}

	h.must(t, time.Minute, "uncut", "3")
	defer func() {
		if t.Failed() {
			out, _ := h.run(time.Minute, "exec", "1", "gluster", "--mode=script", "volume", "heal", "cluster", "info")
			t.Logf("to be healed:\n%s", out)
		}
	}()

	h.settled(t, 4*time.Minute, 3, 1, 2, 3)
	lab.Eventually(t, time.Minute, "all nodes read the same", func() error {
		var first string
		for i := 1; i <= 3; i++ {
			out, err := h.run(30*time.Second, "exec", fmt.Sprint(i), "cat", file+"/record")
			if err != nil {
				return fmt.Errorf("node%d: %w: %s", i, err, out)
			}

			if i == 1 {
				first = out
			} else if out != first {
				return fmt.Errorf("node%d reads %s, node1 %s", i, out, first)
			}
		}

		var c struct {
			Version uint64
			By      map[string]uint64
		}

		if err := json.Unmarshal([]byte(first), &c); err != nil {
			return err
		}

		var sum uint64
		for n, have := range c.By {
			sum += have
			if have < made[n] {
				t.Errorf("%s made %d changes, %d are there", n, made[n], have)
			}
		}

		if sum != c.Version {
			t.Errorf("version %d of %d changes", c.Version, sum)
		}

		return nil
	})
}
