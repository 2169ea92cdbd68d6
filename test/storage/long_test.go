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
// that is there, and one that is not.
func TestLongReplaceAndRemove(t *testing.T) {
	h := grown(t)
	program := h.writer(t)
	w := h.writing(t, 1, program, returnsOf(1), 5)()
	h.prepareFourth(t)

	h.stop(3, syscall.SIGKILL)
	h.must(t, time.Minute, "crash", "3")
	h.must(t, time.Minute, "new-disk", "3")
	h.table.Nodes[2].State = nodes.Removed
	h.member(4)
	h.spread(t, 1, 2, 4)
	h.start(t, 4)
	h.settled(t, 4*time.Minute, 3, 1, 2, 4)
	h.on(t, 4, program, "check", strings.Replace(returnsOf(1), "/srv/cluster", brick, 1), fmt.Sprint(w.Kept))

	// One that is there leaves: two copies stay.
	h.table.Nodes[1].State = nodes.Leaving
	h.spread(t, 1, 2, 4)
	h.settled(t, 4*time.Minute, 2, 1, 4)
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
	h.settled(t, 4*time.Minute, 1, 1)
	h.on(t, 1, program, "check", returnsOf(1), fmt.Sprint(w.Kept))
}

func (h *hosts) prepareFourth(t *testing.T) {
	t.Helper()
	h.must(t, time.Minute, "boot", "4")
	h.prepare(t, 4)
}

// applianced of the node that makes the changes is killed at every step of
// forming and growing, and the end is the same.
func TestLongInterrupted(t *testing.T) {
	h := newHosts(t, 3)
	h.member(1)
	h.spread(t, 1)
	h.on(t, 1, "sh", "-c", "mkdir -p /data/saltern/storage && touch /data/saltern/storage/forms-the-volume")
	killed := h.killAtSteps(t, 1, nil)
	h.settled(t, 2*time.Minute, 1, 1)
	program := h.writer(t)
	w := h.writing(t, 1, program, returnsOf(1), 5)()
	h.member(2)
	h.member(3)
	h.spread(t, 1, 2, 3)
	h.start(t, 2)
	h.start(t, 3)
	killed = h.killAtSteps(t, 1, killed)
	h.settled(t, 5*time.Minute, 3, 1, 2, 3)
	h.on(t, 2, program, "check", returnsOf(1), fmt.Sprint(w.Kept))
	t.Logf("killed at %d steps: %s", len(killed), strings.Join(killed, "; "))
	if len(killed) < 8 {
		t.Errorf("killed at %d steps only", len(killed))
	}
}

// killAtSteps starts node i again and again, and kills it as soon as its log
// names a step at which it was not killed yet, until 40 s pass without one.
func (h *hosts) killAtSteps(t *testing.T, i int, killed []string) []string {
	t.Helper()
	h.killNode(t, i)
	offset := h.logSize(i)
	h.start(t, i)
	for quiet := time.Now(); time.Since(quiet) < 40*time.Second; time.Sleep(20 * time.Millisecond) {
		b, err := os.ReadFile(h.path(i, "log"))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b[offset:])) {
			_, step, ok := strings.Cut(line, `msg="storage step" step=`)
			if !ok {
				continue
			}
			step = step[:min(len(step), 60)]
			if slices.Contains(killed, step) {
				continue
			}
			killed = append(killed, step)
			h.killNode(t, i)
			offset = h.logSize(i)
			h.start(t, i)
			quiet = time.Now()
			break
		}
	}
	return killed
}

func (h *hosts) logSize(i int) int {
	fi, err := os.Stat(h.path(i, "log"))
	if err != nil {
		return 0
	}
	return int(fi.Size())
}

// What can be wrong with a volume is named, and the name goes when it is right
// again.
func TestLongFaults(t *testing.T) {
	h := grown(t)
	h.serving(t, 1)
	over := func(i int, codes ...status.Code) {
		t.Helper()
		lab.Eventually(t, 3*time.Minute, fmt.Sprintf("node%d no longer says %v", i, codes), func() error {
			d, err := h.status(i)
			if err != nil {
				return err
			}
			for _, p := range d.Problems {
				if slices.Contains(codes, p.Code) {
					return fmt.Errorf("%s %s", p.Code, p.Cause)
				}
			}
			return nil
		})
	}
	// The disk of one copy is full, outside of the volume.
	h.on(t, 2, "sh", "-c", "fallocate -l $(($(df --output=avail -B1 /data/brick | tail -1) - 100000)) /data/fill")
	h.has(t, 2*time.Minute, 1, status.BrickFull)
	h.on(t, 2, "rm", "/data/fill")
	over(1, status.BrickFull, status.VolumeFull, status.VolumeLow)
	// The volume is full.
	h.on(t, 1, "sh", "-c", "dd if=/dev/zero of=/srv/cluster/cache/fill bs=1M 2>/dev/null || true; sync")
	h.has(t, 2*time.Minute, 1, status.VolumeFull)
	h.on(t, 1, "rm", "/srv/cluster/cache/fill")
	over(1, status.BrickFull, status.VolumeFull, status.VolumeLow)
	// glusterd of one node is down: it is started again by itself.
	h.on(t, 2, "sh", "-c", "pkill -KILL -x glusterd")
	lab.Eventually(t, 2*time.Minute, "glusterd is started again", func() error {
		_, err := h.run(10*time.Second, "exec", "2", "pgrep", "-x", "glusterd")
		return err
	})
	h.settled(t, 3*time.Minute, 3, 1, 2, 3)
	// One brick is down: it is started again by itself.
	h.on(t, 3, "sh", "-c", "pkill -KILL -x glusterfsd")
	h.settled(t, 3*time.Minute, 3, 1, 2, 3)
	// The volume was stopped by hand: it is started again by itself.
	h.on(t, 1, "sh", "-c", "gluster --mode=script volume stop cluster force")
	h.settled(t, 4*time.Minute, 3, 1, 2, 3)
	over(1, status.VolumeStopped, status.VolumeAbsent, status.VolumeHangs)
	// The client of the mount is gone: it is mounted again by itself.
	h.must(t, time.Minute, "kill-mount", "1")
	h.has(t, time.Minute, 1, status.VolumeAbsent)
	h.settled(t, 3*time.Minute, 3, 1, 2, 3)
	// Two of three are away: the volume stops, the node says so and goes on serving.
	for _, i := range []int{2, 3} {
		h.stop(i, syscall.SIGKILL)
		h.must(t, time.Minute, "crash", fmt.Sprint(i))
	}
	h.has(t, 2*time.Minute, 1, status.VolumeNoQuorum)
	if d, err := h.status(1); err != nil || d.ServingSince == nil {
		t.Errorf("without a volume node1 does not serve: %v %+v", err, d.Problems)
	}
	for _, i := range []int{2, 3} {
		h.must(t, time.Minute, "boot", fmt.Sprint(i))
		h.start(t, i)
	}
	h.settled(t, 4*time.Minute, 3, 1, 2, 3)
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
	h.on(t, 1, "sh", "-c", fmt.Sprintf("cd %s; for i in $(seq 800); do echo key $i >pki/minions/m$i; echo \"x$i: {test.nop: []}\" >srv/salt/s$i.sls; done", old))
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
	if err := json.Unmarshal([]byte(h.on(t, 1, filepath.Join(h.bin, "applianced"), "--config", h.path(1, "yaml"), "status", "--json")), &d); err != nil || d.Storage.Kind != "volume" {
		t.Errorf("%v %+v", err, d.Storage)
	}
}
