//go:build e2e

package storage

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"saltern/supervisor/status"
	"saltern/test/lab"
	"saltern/test/minion"
)

// over waits until node i no longer says any of the codes.
func (h *hosts) over(t *testing.T, i int, codes ...status.Code) {
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

// What can be wrong with a volume is named with code, cause and next step: in
// the status, in the master's log, and to a minion that notices. The name goes
// when it is right again. A mount that hangs: see TestVolumeHangs.
func TestLongFaults(t *testing.T) {
	h := grown(t)
	for i := 1; i <= 3; i++ {
		h.serving(t, i)
	}

	key := h.masterKey(t, 1)

	// The disk of one copy is full, outside of the volume.
	h.on(t, 2, "sh", "-c", "fallocate -l $(($(df --output=avail -B1 /data/brick | tail -1) - 100000)) /data/fill")
	h.has(t, 2*time.Minute, 1, status.BrickFull)
	h.logged(t, 1, status.BrickFull)
	h.on(t, 2, "rm", "/data/fill")
	h.over(t, 1, status.BrickFull, status.VolumeFull, status.VolumeLow)

	// The volume is full.
	h.on(t, 1, "sh", "-c", "dd if=/dev/zero of=/srv/cluster/cache/fill bs=1M 2>/dev/null || true; sync")
	h.has(t, 2*time.Minute, 1, status.VolumeFull)
	h.told(t, 1, status.VolumeFull, key)
	h.on(t, 1, "rm", "/srv/cluster/cache/fill")
	h.over(t, 1, status.BrickFull, status.VolumeFull, status.VolumeLow)

	// glusterd of one node is down, and is started again by itself; here it
	// cannot be for a while.
	h.on(t, 2, "sh", "-c", "mount --bind /bin/false /usr/sbin/glusterd && pkill -KILL -x glusterd")
	h.has(t, 2*time.Minute, 2, status.StorageDaemon)
	h.logged(t, 2, status.StorageDaemon)
	h.has(t, 2*time.Minute, 1, status.StoragePeerAway)
	h.on(t, 2, "umount", "/usr/sbin/glusterd")
	h.settled(t, 3*time.Minute, 3, 1, 2, 3)

	// One brick is down: it is started again by itself.
	h.on(t, 3, "sh", "-c", "pkill -KILL -x glusterfsd")
	lab.Eventually(t, 3*time.Minute, "the brick is started again", func() error {
		_, err := h.run(10*time.Second, "exec", "3", "pgrep", "-x", "glusterfsd")
		return err
	})

	h.settled(t, 3*time.Minute, 3, 1, 2, 3)

	// The volume was stopped by hand: it is started again by the node that comes
	// first, which is not there for a while.
	h.killNode(t, 1)
	h.on(t, 1, "sh", "-c", "gluster --mode=script volume stop cluster force")
	h.has(t, 2*time.Minute, 2, status.VolumeStopped)
	h.told(t, 2, status.VolumeStopped, key)
	h.start(t, 1)
	h.settled(t, 4*time.Minute, 3, 1, 2, 3)
	h.over(t, 2, status.VolumeStopped, status.VolumeAbsent, status.VolumeHangs)

	// The client of the mount is gone: it is mounted again by itself.
	h.must(t, time.Minute, "kill-mount", "1")
	h.has(t, time.Minute, 1, status.VolumeAbsent)
	h.logged(t, 1, status.VolumeAbsent)
	h.settled(t, 3*time.Minute, 3, 1, 2, 3)

	h.skewed(t)

	// Two of three are away: the volume stops, the node says so and goes on serving.
	for _, i := range []int{2, 3} {
		h.stop(i, syscall.SIGKILL)
		h.must(t, time.Minute, "crash", fmt.Sprint(i))
	}

	h.has(t, 2*time.Minute, 1, status.VolumeNoQuorum)
	h.told(t, 1, status.VolumeNoQuorum, key)
	if d, err := h.status(1); err != nil || d.ServingSince == nil {
		t.Errorf("without a volume node1 does not serve: %v %+v", err, d.Problems)
	}

	for _, i := range []int{2, 3} {
		h.must(t, time.Minute, "boot", fmt.Sprint(i))
		h.start(t, i)
	}

	h.settled(t, 4*time.Minute, 3, 1, 2, 3)
	lab.Eventually(t, time.Minute, "keys of new minions are stored again", func() error {
		if err := h.stranger(t, 1, key); !errors.Is(err, minion.ErrWaiting) {
			return fmt.Errorf("%w", err)
		}
		return nil
	})
}

// skewed lets node 3 tell the time as a machine whose clock is a minute ahead
// does: machines of the lab have one clock between them.
func (h *hosts) skewed(t *testing.T) {
	t.Helper()
	h.killNode(t, 3)
	const file = "/srv/cluster/nodes/node3/probe/clock"
	h.on(t, 3, "sh", "-c",
		`touch /run/skewed; (while [ -e /run/skewed ]; do date -u -d '+60 sec' '+"%Y-%m-%dT%H:%M:%S.%NZ"' >`+
			file+`.new && mv `+file+`.new `+file+`; sleep 3; done) >/dev/null 2>&1 &`)
	p := h.has(t, 2*time.Minute, 1, status.ClockSkew)
	if p.Subject != "node3" {
		t.Errorf("the clock of %q differs", p.Subject)
	}

	h.logged(t, 1, status.ClockSkew)
	h.on(t, 3, "rm", "/run/skewed")
	h.start(t, 3)
	h.over(t, 1, status.ClockSkew)
	h.settled(t, 3*time.Minute, 3, 1, 2, 3)
}
