//go:build e2e

package storage

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"saltern/test/lab"
)

// tornFile is replaced by a client that does not know of the second copy.
const tornFile = "srv/salt/torn.sls"

// oldClient mounts the volume on node 1 as it is now; it never learns of
// another copy.
func (h *hosts) oldClient(t *testing.T) {
	t.Helper()
	h.on(t, 1, "sh", "-c", "echo one >/srv/cluster/"+tornFile+` && cp /var/lib/glusterd/vols/cluster/trusted-cluster.tcp-fuse.vol /run/old.vol &&
		mkdir -p /run/old && glusterfs --volfile=/run/old.vol --log-file=/run/old.log /run/old`)
	lab.Eventually(t, 60*time.Second, "the old client has the volume mounted", func() error {
		_, err := h.run(10*time.Second, "exec", "1", "test", "-e", "/run/old/"+tornFile)
		return err
	})
}

// tear lets the old client replace a file that the second copy has already, as
// every client may in the moment in which it learns of a new copy. Nobody is
// there who changes the volume, and the second copy is not recorded as complete.
func (h *hosts) tear(t *testing.T) {
	t.Helper()
	lab.Eventually(t, 60*time.Second, "the second copy has the file", func() error {
		_, err := h.run(10*time.Second, "exec", "2", "test", "-e", brick+"/"+tornFile)
		if err != nil {
			_, err = h.run(10*time.Second, "exec", "3", "test", "-e", brick+"/"+tornFile)
		}
		return err
	})
	lab.Eventually(t, 3*time.Minute, "only the first copy is recorded as complete", func() error {
		out, err := h.run(2*time.Minute, "exec", "1", "gluster", "--mode=script", "volume", "set", "cluster", "user.glusterctl-complete", "node1:"+brick)
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	})
	h.on(t, 1, "sh", "-c", "cd /run/old/srv/salt && echo two >.torn && mv .torn "+"/run/old/"+tornFile)
	h.on(t, 1, "sh", "-c", "umount /run/old")
	lab.Eventually(t, 60*time.Second, "the copies hold different files", func() error {
		out, err := h.run(30*time.Second, "exec", "1", "cat", "/srv/cluster/"+tornFile)
		if err == nil || !strings.Contains(out, "Input/output error") {
			return fmt.Errorf("%w %s", err, out)
		}
		return nil
	})
	out := h.on(t, 1, "gluster", "--mode=script", "volume", "heal", "cluster", "info")
	t.Logf("with a file of which the copies differ, to be healed:\n%s", out)
}

// mended checks that what was torn can be read everywhere, as it was written
// last, and is in each node's copy for its minions.
func (h *hosts) mended(t *testing.T, list ...int) {
	t.Helper()
	for _, i := range list {
		lab.Eventually(t, 60*time.Second, fmt.Sprintf("node%d reads what was written last", i), func() error {
			out, err := h.run(30*time.Second, "exec", fmt.Sprint(i), "cat", "/srv/cluster/"+tornFile, "/data/saltern/mirror/"+tornFile)
			if err != nil || out != "two\ntwo\n" {
				return fmt.Errorf("%v: %q", err, out)
			}
			return nil
		})
	}
}
