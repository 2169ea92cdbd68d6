//go:build e2e

package storage

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/supervisor/nodes"
	"saltern/test/lab"
)

// comes reports whether the volume can be used on node i within a time: it is
// mounted, takes writes, and this one is read again.
func (h *hosts) comes(t *testing.T, i int, limit time.Duration) (ok bool) {
	t.Helper()
	began, why := time.Now(), ""
	for end := began.Add(lab.Limit(limit)); time.Now().Before(end); {
		s, err := h.storage(i)
		if err == nil && s.Ready && !s.At.Before(began.Add(5*time.Second)) {
			if out, err := h.run(20*time.Second, "exec", fmt.Sprint(i), "timeout", "15", "sh", "-c",
				"echo x >/srv/cluster/nodes/one.new && mv /srv/cluster/nodes/one.new /srv/cluster/nodes/one && cat /srv/cluster/nodes/one"); err == nil && out == "x\n" {
				t.Logf("node%d has the volume after %.0f s", i, time.Since(began).Seconds())
				return true
			} else {
				why = fmt.Sprint(err, out)
			}
		} else {
			why = fmt.Sprint(err, s.Waiting)
		}

		time.Sleep(time.Second) // a look every second
	}

	t.Logf("node%d does not have the volume: %s", i, why)
	return false
}

// power takes a node away as a power cut does, or gives it back.
func (h *hosts) power(t *testing.T, i int, on bool) {
	t.Helper()
	if !on {
		h.stop(i, syscall.SIGKILL)
		h.must(t, time.Minute, "crash", fmt.Sprint(i))
		return
	}
	h.must(t, time.Minute, "boot", fmt.Sprint(i))
	h.start(t, i)
}

// TestLongTwoNodes holds the table "Two nodes" of docs/storage.md: who can use the
// volume when one of two nodes is lost, when the one that is left restarts then, and
// when both restart.
func TestLongTwoNodes(t *testing.T) {
	for _, tt := range []struct {
		kind    string
		copies  int
		without map[int]bool // this node lost, the other can use the volume
		alone   map[int]bool // ... and restarts, and can use it again
	}{
		{"one copy", 1, map[int]bool{1: false, 2: true}, map[int]bool{1: false, 2: true}},
		{"two copies", 2, map[int]bool{1: false, 2: true}, map[int]bool{1: false, 2: true}},
		{"arbiter", 3, map[int]bool{1: true, 2: true}, map[int]bool{1: true, 2: true}},
	} {
		t.Run(strings.ReplaceAll(tt.kind, " ", "-"), func(t *testing.T) {
			all := []int{1, 2}
			if tt.kind == "arbiter" {
				all = append(all, 3)
			}

			h := newHosts(t, len(all))
			h.two = tt.kind == "two copies"
			for _, i := range all {
				h.prepare(t, i)
			}

			h.member(1)
			h.spread(t, 1)
			h.on(t, 1, "sh", "-c", "mkdir -p /data/saltern/storage && touch /data/saltern/storage/forms-the-volume")
			h.start(t, 1)
			h.settled(t, 90*time.Second, 1, 1)

			for _, i := range all[1:] {
				h.member(i)
			}

			if len(all) == 3 {
				h.table.Nodes[2].Storage = nodes.ArbiterStorage
			}

			h.spread(t, all...)
			for _, i := range all[1:] {
				h.start(t, i)
			}

			h.settled(t, 240*time.Second, tt.copies, all...)
			for _, lost := range []int{1, 2} {
				other := 3 - lost
				h.power(t, lost, false)
				if got := h.comes(t, other, 60*time.Second); got != tt.without[lost] {
					t.Errorf("without node%d: %v", lost, got)
				}

				h.power(t, other, false)
				h.power(t, other, true)
				if got := h.comes(t, other, 120*time.Second); got != tt.alone[lost] {
					t.Errorf("without node%d, after a restart of node%d: %v", lost, other, got)
				}

				h.power(t, lost, true)
				h.settled(t, 240*time.Second, tt.copies, all...)
			}

			for _, i := range []int{1, 2} {
				h.power(t, i, false)
			}

			for _, i := range []int{2, 1} {
				h.power(t, i, true)
			}

			h.settled(t, 240*time.Second, tt.copies, all...)
		})
	}
}
