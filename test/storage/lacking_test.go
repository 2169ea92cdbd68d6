//go:build e2e

package storage

import (
	"strings"
	"testing"
	"time"

	"saltern/test/lab"
)

// A machine whose glusterd comes into the pool and does not get the volume, here
// because something is where it would be kept, gets it when that is gone: every
// change of the volume fails until then.
func TestLongLackingVolume(t *testing.T) {
	t.Parallel()
	h := newHosts(t, 2)
	h.two = true
	h.prepare(t, 1)
	h.prepare(t, 2)
	h.member(1)
	h.spread(t, 1)
	h.on(t, 1, "sh", "-c", "mkdir -p /data/saltern/storage && touch /data/saltern/storage/forms-the-volume")
	h.start(t, 1)
	h.settled(t, 90*time.Second, 1, 1)
	const kept = "/var/lib/glusterd/vols/cluster"
	h.on(t, 2, "sh", "-c", "mkdir -p /var/lib/glusterd/vols && touch "+kept)
	h.member(2)
	h.spread(t, 1, 2)
	h.start(t, 2)
	lab.Eventually(t, 90*time.Second, "node2 is in the pool", func() error {
		_, err := h.run(10*time.Second, "exec", "1", "sh", "-c",
			"gluster pool list | grep -w node2 | grep -w Connected")
		return err
	})

	if out := h.on(t, 2, "gluster", "volume", "list"); strings.TrimSpace(out) == "cluster" {
		t.Fatalf("node2 has the volume in spite of the obstacle: %s", out)
	}

	h.on(t, 2, "rm", kept)
	lab.Eventually(t, 90*time.Second, "node2 has the volume", func() error {
		_, err := h.run(10*time.Second, "exec", "2", "sh", "-c", "gluster volume list | grep -x cluster")
		return err
	})

	h.settled(t, 240*time.Second, 2, 1, 2)
}
