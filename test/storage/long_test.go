//go:build e2e

package storage

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/supervisor/nodes"
	"saltern/supervisor/status"
	"saltern/test/lab"
)

// A node whose disk is gone is replaced by another machine, then one is removed
// that is there, and one that is not; applianced is killed at every step.
func TestLongReplaceAndRemove(t *testing.T) {
	h := grown(t)
	program := h.writer(t)
	w := h.wrote(t, 1, program, 5)
	h.prepareFourth(t)

	h.stop(3, syscall.SIGKILL)
	h.must(t, time.Minute, "crash", "3")
	h.must(t, time.Minute, "new-disk", "3")
	h.table.Nodes[2].State = nodes.Removed
	h.member(4)
	h.spread(t, 1, 2, 4)
	h.start(t, 4)
	k := h.kills(t, wholeStep, 1, 2, 4)
	k.until(t, 3, 1, 2, 4)
	h.on(t, 4, program, "check", strings.Replace(returnsOf(1), "/srv/cluster", brick, 1), fmt.Sprint(w.Kept))

	// One that is there leaves: two copies stay.
	h.table.Nodes[1].State = nodes.Leaving
	h.spread(t, 1, 2, 4)
	k.until(t, 2, 1, 4)
	h.on(t, 4, program, "check", strings.Replace(returnsOf(1), "/srv/cluster", brick, 1), fmt.Sprint(w.Kept))
	out := h.on(t, 1, "gluster", "--mode=script", "pool", "list")
	if strings.Contains(out, "node2") || strings.Contains(out, "node3") {
		t.Errorf("pool:\n%s", out)
	}

	// What is left works alone with the first copy.
	h.stop(4, syscall.SIGKILL)
	h.must(t, time.Minute, "crash", "4")
	h.table.Nodes[3].State = nodes.Removed
	h.spread(t, 1)
	k.until(t, 1, 1)
	h.on(t, 1, program, "check", returnsOf(1), fmt.Sprint(w.Kept))
	k.hit(t, `"replace-brick node3`, `"remove-brick node2`, `"remove-brick node4`, `"detach node2`,
		`"detach node3`, `"detach node4`)
}

func (h *hosts) prepareFourth(t *testing.T) {
	t.Helper()
	h.must(t, time.Minute, "boot", "4")
	h.prepare(t, 4)
}

// applianced of the node that makes the changes, whichever that is, is killed
// at every step of forming and growing, and the end is the same.
func TestLongInterrupted(t *testing.T) {
	h := newHosts(t, 3)
	h.member(1)
	h.spread(t, 1)
	h.on(t, 1, "sh", "-c", "mkdir -p /data/saltern/storage && touch /data/saltern/storage/forms-the-volume")
	k := h.kills(t, wholeStep, 1)
	h.start(t, 1)
	k.until(t, 1, 1)

	if len(k.at) < 4 { // create, options, start, directories; the mount may be made by another way
		t.Errorf("killed at %d steps of forming only: %v", len(k.at), k.at)
	}

	program := h.writer(t)
	w := h.wrote(t, 1, program, 5)
	h.member(2)
	h.member(3)
	h.spread(t, 1, 2, 3)
	h.start(t, 2)
	h.start(t, 3)
	k.until(t, 3, 1, 2, 3)
	h.on(t, 2, program, "check", returnsOf(1), fmt.Sprint(w.Kept))

	for i := 1; i <= 3; i++ { // every copy has everything
		h.on(t, i, program, "check", strings.Replace(returnsOf(1), "/srv/cluster", brick, 1), fmt.Sprint(w.Kept))
	}

	for step, i := range k.at {
		t.Logf("killed on node%d at: %s", i, step)
	}

	if len(k.at) < 12 {
		t.Errorf("killed at %d steps only", len(k.at))
	}
}

// The one that makes the changes goes; another takes over.
func TestLongLeaderLost(t *testing.T) {
	h := grown(t)
	h.must(t, time.Minute, "cut", "1")
	h.stop(1, syscall.SIGKILL)
	h.must(t, time.Minute, "crash", "1")
	start := time.Now()
	lab.Eventually(t, 2*time.Minute, "another node leads", func() error {
		for _, i := range []int{2, 3} {
			if s, err := h.storage(i); err == nil && s.Leads {
				return nil
			}
		}
		return fmt.Errorf("nobody")
	})

	t.Logf("another node leads after %.1f s", time.Since(start).Seconds())
	h.must(t, time.Minute, "boot", "1")
	h.must(t, time.Minute, "uncut", "1")
	h.start(t, 1)
	h.settled(t, 4*time.Minute, 3, 1, 2, 3)
	leaders := 0
	for i := 1; i <= 3; i++ {
		if s, err := h.storage(i); err == nil && s.Leads {
			leaders++
		}
	}

	if leaders != 1 {
		t.Errorf("%d nodes lead", leaders)
	}
}

// The one that makes the changes is frozen, with the lock in its hands: another
// takes over, and it is one of the others when it thaws.
func TestLongLeaderFrozen(t *testing.T) {
	h := grown(t)
	leader := func() (list []int) {
		for i := 1; i <= 3; i++ {
			if s, err := h.storage(i); err == nil && s.Leads {
				list = append(list, i)
			}
		}
		return list
	}

	first := leader()
	if len(first) != 1 {
		t.Fatalf("%v lead", first)
	}

	signal := func(name string) {
		h.on(t, first[0], "sh", "-c", "pkill -"+name+" -f 'a[p]plianced'; true")
	}
	signal("STOP")
	t.Cleanup(func() { signal("CONT") })
	start := time.Now()
	lab.Eventually(t, 2*time.Minute, "another node leads", func() error {
		for i := 1; i <= 3; i++ {
			if i == first[0] {
				continue
			}
			if s, err := h.storage(i); err == nil && s.Leads {
				return nil
			}
		}

		return fmt.Errorf("nobody")
	})

	t.Logf("another node leads after %.1f s", time.Since(start).Seconds())
	signal("CONT")
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
		if l := leader(); len(l) > 1 || slices.Contains(l, first[0]) {
			t.Fatalf("%v lead after the thaw", l)
		}
	}

	h.settled(t, 4*time.Minute, 3, 1, 2, 3)
}

// A node with a directory of its own is told to use a volume; it is killed
// while it moves, at several moments, and loses nothing.
func TestLongMove(t *testing.T) {
	h := newHosts(t, 1)
	h.member(1)
	h.spread(t, 1)
	yaml, err := os.ReadFile(h.path(1, "yaml"))
	if err != nil {
		t.Fatal(err)
	}

	local := strings.Replace(string(yaml), "kind: volume", "kind: local", 1)
	if err := os.WriteFile(h.path(1, "yaml"), []byte(local), 0o600); err != nil {
		t.Fatal(err)
	}

	h.start(t, 1)
	h.serving(t, 1)
	old := "/data/saltern/cluster"
	h.on(t, 1, "sh", "-c",
		fmt.Sprintf("cd %s; for i in $(seq 800); do echo key $i >pki/minions/m$i; echo \"x$i: {test.nop: []}\" >srv/salt/s$i.sls; done",
			old))
	h.on(t, 1, "sh", "-c", "mkdir -p /data/saltern/storage && touch /data/saltern/storage/forms-the-volume")

	if err := os.WriteFile(h.path(1, "yaml"), yaml, 0o600); err != nil {
		t.Fatal(err)
	}

	for _, after := range []time.Duration{10 * time.Second, 14 * time.Second, 17 * time.Second, 20 * time.Second} {
		h.killNode(t, 1)
		h.start(t, 1)
		time.Sleep(after) // a different moment each time: that is the test
	}

	lab.Eventually(t, 4*time.Minute, "the move is made", func() error {
		_, err := h.run(10*time.Second, "exec", "1", "test", "-d", old+".before-volume", "-a", "!", "-e", old)
		return err
	})

	h.settled(t, 2*time.Minute, 1, 1)
	h.serving(t, 1)
	for _, tree := range []string{"pki/minions", "srv/salt", "srv/pillar"} {
		h.on(t, 1, "diff", "-r", filepath.Join(old+".before-volume", tree), filepath.Join("/srv/cluster", tree))
	}

	h.on(t, 1, "cmp", old+".before-volume/pki/node1.pub", "/srv/cluster/pki/node1.pub")
	var d status.Document
	if err := json.Unmarshal([]byte(h.on(t, 1, filepath.Join(h.bin, "applianced"), "--config",
		h.path(1, "yaml"), "status", "--json")),
		&d); err != nil || d.Storage.Kind != "volume" {
		t.Errorf("%v %+v", err, d.Storage)
	}
}
