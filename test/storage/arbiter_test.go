//go:build e2e

package storage

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/supervisor/nodes"
	"saltern/supervisor/status"
	"saltern/test/lab"
)

// fields runs a command on node i and gives the words of its last line.
func (h *hosts) fields(t *testing.T, i int, args ...string) []string {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(h.on(t, i, args...)), "\n")
	return strings.Fields(lines[len(lines)-1])
}

// TestLongArbiter: two copies and an arbiter whose disk is smaller. The volume has
// the room of the copies, and the arbiter keeps names only. Each of the three loses
// power in turn while records are written on a node that stays: none stalls for more
// than 8 s, what was lost heals. Then the node with the first copy is lost for good
// and removed: the other copy stays, alone, and lacks nothing.
func TestLongArbiter(t *testing.T) {
	h := newHosts(t, 3)
	h.must(t, time.Minute, "crash", "3")
	small := *h
	small.env = append(small.env, "LAB_DISK_MB=320")
	small.must(t, time.Minute, "new-disk", "3")
	small.must(t, time.Minute, "boot", "3")
	h.member(1)
	h.spread(t, 1)
	h.on(t, 1, "sh", "-c", "mkdir -p /data/saltern/storage && touch /data/saltern/storage/forms-the-volume")
	h.start(t, 1)
	h.settled(t, 90*time.Second, 1, 1)
	h.member(2)
	h.member(3)
	h.table.Nodes[2].Storage = nodes.ArbiterStorage
	h.spread(t, 1, 2, 3)
	h.start(t, 2)
	h.start(t, 3)
	h.settled(t, 240*time.Second, 3, 1, 2, 3)
	s, err := h.storage(2)
	if err != nil || len(s.Bricks) != 3 || s.Bricks[0].Arbiter || s.Bricks[1].Arbiter ||
		!s.Bricks[2].Arbiter || s.Spare != 1 {
		t.Fatalf("%v: %+v", err, s)
	}

	h.on(t, 2, "sh", "-c",
		"dd if=/dev/zero of=/srv/cluster/large bs=1M count=60 status=none; for i in $(seq 400); do echo $i >/srv/cluster/nodes/f$i; done; sync")
	for i, most := range map[int]int{1: 1 << 30, 2: 1 << 30, 3: 5 << 20} {
		size, err := strconv.Atoi(h.fields(t, i, "du", "-sxB1", brick)[0])
		if err != nil || size > most || i < 3 && size < 60<<20 {
			t.Errorf("the brick of node%d has %d bytes: %v", i, size, err)
		}
		t.Logf("the brick of node%d has %d KiB; its disk and its inodes: %v, %v; the volume: %v", i,
			size>>10, h.fields(t, i, "df", "-k", "/data"), h.fields(t, i, "df", "-i", "/data"),
			h.fields(t, i, "df", "-k", "/srv/cluster"))
	}

	program := h.writer(t)
	for _, lost := range []int{3, 2, 1} {
		from := map[int]int{3: 1, 2: 1, 1: 2}[lost]
		stop := h.writing(t, from, program, returnsOf(10+lost), 600)
		began := func(more int) { // segments of a second
			t.Helper()
			lab.Eventually(t, 2*time.Minute, "records are written", func() error {
				if n := len(strings.Fields(h.on(t, from, "ls", returnsOf(10+lost)))); n < more {
					return fmt.Errorf("%d segments", n)
				}
				return nil
			})
		}

		began(2)
		h.stop(lost, syscall.SIGKILL)
		h.must(t, time.Minute, "crash", fmt.Sprint(lost))
		began(16)
		h.has(t, 60*time.Second, from, status.StoragePeerAway)
		w := stop()
		t.Logf("node%d lost power while %d records were written on node%d in %.0f s: longest %d ms, the machine was late by %d ms then, %d faults",
			lost, w.Kept, from, w.Seconds, w.Longest, w.Late, w.Faults)

		if w.Faults > 0 || w.Longest > 8000+w.Late {
			t.Errorf("node%d lost power: %+v", lost, w)
		}

		h.must(t, time.Minute, "boot", fmt.Sprint(lost))
		h.start(t, lost)
		h.settled(t, 180*time.Second, 3, 1, 2, 3)
		for _, i := range []int{1, 2} { // in its own copy, seen without the volume
			h.on(t, i, program, "check", strings.Replace(returnsOf(10+lost), "/srv/cluster", brick, 1),
				fmt.Sprint(w.Kept))
		}
	}

	h.stop(1, syscall.SIGKILL)
	h.must(t, time.Minute, "crash", "1")
	w := h.wrote(t, 2, program, 3)
	h.table.Nodes[0].State = nodes.Removed
	h.spread(t, 2, 3)
	h.settled(t, 180*time.Second, 1, 2)
	h.on(t, 2, program, "check", returnsOf(2), fmt.Sprint(w.Kept))
	h.wrote(t, 2, program, 2)

	if out := h.on(t, 2, "gluster", "--mode=script", "pool", "list"); strings.Contains(out, "node1") {
		t.Errorf("pool:\n%s", out)
	}
}
