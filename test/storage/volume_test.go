//go:build e2e

package storage

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/supervisor/nodes"
	"saltern/supervisor/status"
	"saltern/test/lab"
)

// returnsOf is where the test writes what node i would write.
func returnsOf(i int) string { return fmt.Sprintf("/srv/cluster/nodes/node%d/returns", i) }

// formed makes three machines and forms a volume on the first, which serves.
func formed(t *testing.T, machines int) *hosts {
	t.Helper()
	h := newHosts(t, machines)
	h.member(1)
	h.spread(t, 1)
	h.on(t, 1, "sh", "-c", "mkdir -p /data/saltern/storage && touch /data/saltern/storage/forms-the-volume")
	h.start(t, 1)
	h.settled(t, 90*time.Second, 1, 1)
	return h
}

func (h *hosts) serving(t *testing.T, i int) {
	t.Helper()
	lab.Eventually(t, 60*time.Second, fmt.Sprintf("node%d serves", i), func() error {
		d, err := h.status(i)
		if err == nil && d.ServingSince == nil {
			err = fmt.Errorf("%s: %+v", d.Health, d.Problems)
		}
		return err
	})
}

// grown has three copies, on three nodes that serve.
func grown(t *testing.T) *hosts {
	t.Helper()
	h := formed(t, 3)
	h.member(2)
	h.member(3)
	h.spread(t, 1, 2, 3)
	h.start(t, 2)
	h.start(t, 3)
	h.settled(t, 240*time.Second, 3, 1, 2, 3)
	return h
}

// A volume is formed, grows to three copies, takes 200 records a second, and
// three masters on it 200 returns a second, while all of GlusterFS is killed on
// one node, which repairs itself, and while that node loses its cable and its
// power: nothing acknowledged is lost, no write and no return stalls for more
// than 8 s, and when the node is back everything heals. While it grows, a client
// that does not know of the new copy replaces a file. Then its disk is gone and
// its copy is made anew, and at the end it is removed. At each kind of step
// applianced is killed where it makes it, and goes on.
func TestVolumeLife(t *testing.T) {
	t.Parallel()
	h := newHosts(t, 3)
	h.member(1)
	h.spread(t, 1)
	h.on(t, 1, "sh", "-c", "mkdir -p /data/saltern/storage && touch /data/saltern/storage/forms-the-volume")
	k := h.kills(t, kindOfStep)
	h.start(t, 1)
	k.until(t, 1, 1)
	h.serving(t, 1)
	h.on(t, 1, "sh", "-c",
		"echo 'one: {test.nop: []}' >/srv/cluster/srv/salt/one.sls; echo one >/srv/cluster/"+aloneFile+
			"; echo accepted >/srv/cluster/pki/minions/m1")
	h.oldClient(t)
	h.member(2)
	h.member(3)
	h.spread(t, 1, 2, 3)
	k.meanwhile[recordOfCopies] = func(killed int) {
		for i := 1; i <= 3; i++ {
			if i != killed {
				h.killNode(t, i)
				defer h.start(t, i)
			}
		}
		h.tear(t)
	}

	h.start(t, 2)
	h.start(t, 3)
	k.until(t, 3, 1, 2, 3)
	h.reads(t, tornFile, 1, 2, 3)

	for i := 1; i <= 3; i++ { // written on one, read on all, and copied to each for its minions
		if got := h.on(t, i, "cat", "/srv/cluster/pki/minions/m1"); got != "accepted\n" {
			t.Errorf("node%d reads %q", i, got)
		}

		lab.Eventually(t, 60*time.Second, fmt.Sprintf("node%d has a copy of the file", i), func() error {
			_, err := h.run(10*time.Second, "exec", fmt.Sprint(i), "cmp", "/srv/cluster/srv/salt/one.sls",
				"/data/saltern/mirror/srv/salt/one.sls")
			return err
		})

		h.serving(t, i)
	}

	h.newestCopies(t, 20)

	// 200 records a second, from before the first loss until well after the last.
	program := h.writer(t)
	masters := h.takers(t, program)
	end := masters.sending(t, 600)
	stop := h.writing(t, 1, program, returnsOf(1), 600)
	before := h.goesOn(t, 1, 2)

	// Killed: glusterd, bricks, healing and the mount. The node repairs itself.
	h.must(t, time.Minute, "kill", "3")
	h.must(t, time.Minute, "kill-mount", "3")
	h.goesOn(t, 1, 3)
	h.working(t, 120*time.Second, 3, 3)

	// Its cable is pulled, then its power.
	h.must(t, time.Minute, "cut", "3")
	h.goesOn(t, 1, 3)
	h.has(t, 60*time.Second, 1, status.StoragePeerAway)
	h.stop(3, syscall.SIGKILL)
	h.must(t, time.Minute, "crash", "3")
	masters.more(t, 400)
	after := h.goesOn(t, 1, 3)
	w, r := stop(), end()
	t.Logf("node3 was killed, lost its cable and its power while %d records were written in %.0f s (segment %d to %d): longest %d ms, the machine was late by %d ms then, %d faults",
		w.Kept, w.Seconds, before, after, w.Longest, w.Late, w.Faults)

	if w.Faults > 0 {
		t.Errorf("%d writes failed", w.Faults)
	}

	// 8 s is what the timers allow; a machine that is late itself is late here too.
	if w.Longest > 8000+w.Late {
		t.Errorf("a write took %d ms, the machine was late by %d ms only", w.Longest, w.Late)
	}

	h.on(t, 2, program, "check", returnsOf(1), fmt.Sprint(w.Kept))
	t.Logf("meanwhile the masters took %d returns in %.0f s: longest %d ms, the machine was late by %d ms then",
		r.Kept, r.Seconds, r.Longest, r.Late)
	if r.Longest > 8000+r.Late {
		t.Errorf("a return took %d ms, the machine was late by %d ms only", r.Longest, r.Late)
	}

	masters.have(t, 1, 2)

	h.on(t, 1, "sh", "-c", "cd /srv/cluster/srv/salt && echo two >.alone && mv .alone /srv/cluster/"+aloneFile)
	h.must(t, time.Minute, "boot", "3")
	h.must(t, time.Minute, "uncut", "3")
	h.alone(t, 3)
	h.start(t, 3)
	h.settled(t, 180*time.Second, 3, 1, 2, 3)
	h.reads(t, aloneFile, 1, 2, 3)
	h.serving(t, 3)
	masters.master(t, 3) // reads on the volume what it missed
	masters.have(t, 3)

	// In its own copy as well, seen without the volume.
	own := func(i int, brick string) {
		t.Helper()
		h.on(t, i, program, "check", strings.Replace(returnsOf(1), "/srv/cluster", brick, 1), fmt.Sprint(w.Kept))
	}

	own(3, brick)

	// Its disk is gone: the copy is made anew in another directory.
	h.stop(3, syscall.SIGKILL)
	h.must(t, time.Minute, "crash", "3")
	h.must(t, time.Minute, "new-disk", "3")
	h.must(t, time.Minute, "boot", "3")
	h.table.Nodes[2].Brick = nextBrick
	h.spread(t, 1, 2, 3)
	h.start(t, 3)
	k.until(t, 3, 1, 2, 3)
	own(3, nextBrick)

	// It is removed: two copies stay.
	h.table.Nodes[2].State = nodes.Leaving
	h.spread(t, 1, 2, 3)
	k.until(t, 2, 1, 2)
	own(2, brick)

	if out := h.on(t, 1, "gluster", "--mode=script", "pool", "list"); strings.Contains(out, "node3") {
		t.Errorf("pool:\n%s", out)
	}

	t.Logf("killed at %v", k.at)
	if ok, out := h.mounts(3); ok {
		t.Errorf("one that was removed can mount the volume: %s", out)
	} else {
		t.Logf("one that was removed cannot mount the volume: %s", out)
	}

	// The first copy is lost as well: the volume stops, and who changes keys there
	// is told what to do. The master of the other runs by then, whose supervisor may
	// have been killed a moment ago: one that cannot start has no fault to tell.
	h.serving(t, 2)
	h.on(t, 2, "sh", "-c", "cp /srv/cluster/pki/master.pub /srv/cluster/pki/minions_pre/m2")
	h.stop(1, syscall.SIGKILL)
	h.must(t, time.Minute, "crash", "1")
	h.advised(t, 2, status.VolumeNoQuorum)
	k.hit(t, "create", "set", "start", "layout", "probe", "add-brick", recordOfCopies, "replace-brick",
		"remove-brick", "detach")
}

// A volume that hangs does not stop the node: it says so, serves files from its
// copy, and is fixed without a hand.
func TestVolumeHangs(t *testing.T) {
	t.Parallel() // most of it is waiting; it is over before TestVolumeLife writes
	h := formed(t, 1)
	h.serving(t, 1)
	h.on(t, 1, "sh", "-c", "echo 'one: {test.nop: []}' >/srv/cluster/srv/salt/one.sls")
	lab.Eventually(t, 60*time.Second, "the copy has the file", func() error {
		_, err := h.run(10*time.Second, "exec", "1", "test", "-e", "/data/saltern/mirror/srv/salt/one.sls")
		return err
	})

	key := h.masterKey(t, 1)

	// The client stands still: calls on the mount do not come back, not even with
	// an error.
	h.on(t, 1, "sh", "-c",
		"for p in $(pgrep -x glusterfs); do if grep -q fuse /proc/$p/cmdline; then kill -STOP $p; fi; done")
	h.has(t, 60*time.Second, 1, status.VolumeHangs)
	h.told(t, 1, status.VolumeHangs, key)
	d, err := h.status(1)
	if err != nil || d.ServingSince == nil || d.Health != status.Degraded {
		t.Errorf("while the volume hangs: %s, serving since %v, %v", d.Health, d.ServingSince, err)
	}

	out, err := h.run(30*time.Second, "exec", "1", "timeout", "20", filepath.Join(h.bin, "salt-run"), "-c",
		"/data/saltern/etc/salt", "fileserver.file_list")
	if err != nil || !strings.Contains(out, "one.sls") {
		t.Errorf("files while the volume hangs: %v %q", err, out)
	}

	lab.Eventually(t, 150*time.Second, "the volume is mounted again", func() error {
		d, err := h.status(1)
		if err != nil {
			return err
		}

		for _, p := range d.Problems {
			if strings.HasPrefix(string(p.Code), "SCA-41") {
				return errors.New(p.Cause)
			}
		}

		return nil
	})
}
