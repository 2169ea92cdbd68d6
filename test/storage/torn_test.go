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
		out, err := h.run(2*time.Minute, "exec", "1", "gluster", "--mode=script", "volume", "set", "cluster",
			"user.glusterctl-complete", "node1:"+brick)
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

// aloneFile is replaced while node 3 is away.
const aloneFile = "srv/salt/alone.sls"

// alone leaves on the copy of a machine whose daemons do not run what a client
// leaves there that loses its cable while it replaces a file: another file by
// the name, and a folder that says it was being changed. Its writer was never
// told that it is stored.
func (h *hosts) alone(t *testing.T, i int) {
	t.Helper()
	h.on(t, i, "python3", "-c", `
import glob, os, sys, uuid
brick, name = sys.argv[1:]
path, internal = os.path.join(brick, name), os.path.join(brick, ".glusterfs")
def link(g):
    g = str(g)
    return os.path.join(internal, g[:2], g[2:4], g)
os.unlink(link(uuid.UUID(bytes=os.getxattr(path, "trusted.gfid"))))
os.unlink(path)
new = uuid.uuid4()
with open(path, "w") as f:
    f.write("never stored\n")
os.setxattr(path, "trusted.gfid", new.bytes)
os.makedirs(os.path.dirname(link(new)), exist_ok=True)
os.link(path, link(new))
folder, dirty = os.path.dirname(path), os.path.join(internal, "indices/dirty")
os.setxattr(folder, "trusted.afr.dirty", bytes(11) + b"\x02")
base = (glob.glob(dirty + "/dirty-*") + [dirty + "/dirty-" + str(uuid.uuid4())])[0]
open(base, "a").close()
os.link(base, os.path.join(dirty, str(uuid.UUID(bytes=os.getxattr(folder, "trusted.gfid")))))
`, brick, aloneFile)
}

// reads checks that a file of which the copies differed can be read everywhere,
// as it was written last, and is in each node's copy for its minions.
func (h *hosts) reads(t *testing.T, file string, list ...int) {
	t.Helper()
	for _, i := range list {
		lab.Eventually(t, 60*time.Second, fmt.Sprintf("node%d reads what was written last", i), func() error {
			out, err := h.run(30*time.Second, "exec", fmt.Sprint(i), "cat", "/srv/cluster/"+file,
				"/data/saltern/mirror/"+file)
			if err != nil || out != "two\ntwo\n" {
				return fmt.Errorf("%v: %q", err, out)
			}
			return nil
		})
	}
}
