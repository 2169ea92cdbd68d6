//go:build e2e && appliance

package e2e

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/supervisor/status"
	"saltern/test/lab"
)

// What of a machine a snapshot of it holds: its disk and what glusterd calls its own.
var inSnapshot = []string{"disk", "glusterd", "ssl", "gluster"}

// powerOff ends machine i as a power cut does.
func (h *machines) powerOff(t *testing.T, i int) {
	t.Helper()
	h.off(i)
	h.must(t, "crash", fmt.Sprint(i))
}

// powerOn starts machine i as it is.
func (h *machines) powerOn(t *testing.T, i int) {
	t.Helper()
	h.must(t, "boot", fmt.Sprint(i))
	h.relaunch(t, i)
}

// relaunch starts applianced of a machine that is set up.
func (h *machines) relaunch(t *testing.T, i int) {
	t.Helper()
	h.runs[i] = h.begin(t, i, h.path(i, "log"), lab.Bin(t, "applianced"), "run", "--config",
		"/data/appliance.yaml", "--data-dir", "/data/saltern", "--runtime-dir", "/run/saltern")
}

// snapshot keeps what is on the disk of machine i, which is off; revert brings it back.
func (h *machines) snapshot(t *testing.T, i int) {
	t.Helper()
	h.copyDisk(t, filepath.Join(h.disks, fmt.Sprint(i)), filepath.Join(h.disks, fmt.Sprintf("snapshot-%d", i)))
}

func (h *machines) revert(t *testing.T, i int) {
	t.Helper()
	h.copyDisk(t, filepath.Join(h.disks, fmt.Sprintf("snapshot-%d", i)), filepath.Join(h.disks, fmt.Sprint(i)))
}

func (h *machines) copyDisk(t *testing.T, from, to string) {
	t.Helper()
	if err := os.MkdirAll(to, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, part := range inSnapshot {
		target := filepath.Join(to, part)
		lab.Eventually(t, 30*time.Second, "the machine is off", func() error { return os.RemoveAll(target) })
		if out, err := exec.Command("cp", "-a", "--sparse=always", filepath.Join(from, part), target).CombinedOutput(); err != nil {
			t.Fatalf("copy %s: %v: %s", target, err, out)
		}
	}
}

// pending puts the keys of minions that signed in onto the volume, by node i.
func (h *machines) pending(t *testing.T, i int, ids ...string) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	text := string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	for _, id := range ids {
		must(t, h.run(t, i, text, "tee", "/srv/cluster/pki/minions_pre/"+id))
	}
}

// shell runs a command on machine i.
func (h *machines) shell(t *testing.T, i int, command string) string {
	t.Helper()
	return must(t, h.run(t, i, "", "sh", "-c", command))
}

// shared is what of the volume the tests of reverts change: what must be there, with
// which content, and what must not.
type shared struct {
	there map[string]string
	gone  []string
}

// fill makes what is changed later.
func (h *machines) fill(t *testing.T) {
	t.Helper()
	h.shell(t, 1, "cd /srv/cluster && mkdir -p srv/salt/tree/deep && "+
		"echo secret >srv/pillar/leaked.sls && echo gone >srv/salt/deleted.txt && echo gone >srv/salt/tree/deep/file.txt && "+
		"echo v1 >srv/salt/inplace.txt && echo v1 >srv/salt/renamed.txt && echo name >srv/salt/oldname.txt && "+
		"echo 'keep_jobs_seconds: 7200' >etc/master.d/old.conf")
	h.pending(t, 1, "victim", "turned", "waiting", "kept")
	for _, id := range []string{"victim", "turned", "kept"} {
		h.accepts(t, 1, id)
	}
}

// change does on node i what a reverted node would undo.
func (h *machines) change(t *testing.T, i int) shared {
	t.Helper()
	must(t, h.verb(t, i, "", "keys", "delete", "--yes", "victim"))
	must(t, h.salt(t, i, "salt-key", "-y", "--include-accepted", "-r", "turned"))
	h.accepts(t, i, "waiting")
	h.shell(t, i,
		"cd /srv/cluster && rm -r srv/salt/tree && rm srv/salt/deleted.txt srv/pillar/leaked.sls etc/master.d/old.conf && "+
			"echo v2-much-longer-than-before >srv/salt/inplace.txt && echo v2 >srv/salt/.new && mv srv/salt/.new srv/salt/renamed.txt && "+
			"mv srv/salt/oldname.txt srv/salt/newname.txt && echo new >srv/salt/added.txt && echo 'keep_jobs_seconds: 3600' >etc/master.d/new.conf")

	return shared{
		there: map[string]string{
			"srv/salt/inplace.txt":        "v2-much-longer-than-before\n",
			"srv/salt/renamed.txt":        "v2\n",
			"srv/salt/newname.txt":        "name\n",
			"srv/salt/added.txt":          "new\n",
			"etc/master.d/new.conf":       "keep_jobs_seconds: 3600\n",
			"pki/minions/waiting":         "",
			"pki/minions/kept":            "",
			"pki/minions_rejected/turned": "",
		},
		gone: []string{
			"pki/minions/victim", "pki/minions_pre/victim", "pki/minions/turned", "srv/salt/tree", "srv/salt/deleted.txt",
			"srv/pillar/leaked.sls", "etc/master.d/old.conf", "srv/salt/oldname.txt",
		},
	}
}

// look says what of the volume is not as it should be below a directory of machine i. An
// arbiter has no contents.
func (h *machines) look(t *testing.T, i int, dir string, want shared, contents bool) error {
	t.Helper()
	var faults []error
	for name, text := range want.there {
		path := filepath.Join(dir, name)
		r := h.run(t, i, "", "cat", path)
		switch {
		case r.Code != 0:
			faults = append(faults, fmt.Errorf("node%d: %s is missing: %s", i, path, strings.TrimSpace(r.Err)))
		case contents && text != "" && r.Out != text:
			faults = append(faults, fmt.Errorf("node%d: %s is %q, want %q", i, path, r.Out, text))
		}
	}

	for _, name := range want.gone {
		path := filepath.Join(dir, name)
		if r := h.run(t, i, "", "test", "!", "-e", path); r.Code != 0 {
			faults = append(faults, fmt.Errorf("node%d: %s is back", i, path))
		}
	}

	return errors.Join(faults...)
}

// brickOf is the directory of the copy that the volume counts on at node i.
func (h *machines) brickOf(t *testing.T, i int) string {
	t.Helper()
	info := must(t, h.run(t, i, "", "gluster", "--mode=script", "volume", "info"))
	for line := range strings.Lines(info) {
		if _, path, ok := strings.Cut(line, fmt.Sprintf("node%d:", i)); ok {
			return strings.Fields(path)[0]
		}
	}
	t.Fatalf("node%d has no copy:\n%s", i, info)
	return ""
}

// holds looks at the volume on all nodes, and at each copy, and fails the test.
func (h *machines) holds(t *testing.T, want shared, nodes ...int) {
	t.Helper()
	for _, i := range nodes {
		for _, dir := range []string{"/srv/cluster", h.brickOf(t, i)} {
			// The kernel of a node remembers names for a second.
			lab.Eventually(t, 10*time.Second, fmt.Sprintf("%s of node%d", dir, i),
				func() error { return h.look(t, i, dir, want, true) })
		}

		mirror := shared{there: map[string]string{}}
		for name, text := range want.there {
			if !strings.HasPrefix(name, "pki/") {
				mirror.there[name] = text
			}
		}

		for _, name := range want.gone {
			if !strings.HasPrefix(name, "pki/") {
				mirror.gone = append(mirror.gone, name)
			}
		}

		lab.Eventually(t, 60*time.Second, fmt.Sprintf("the mirror of node%d", i),
			func() error { return h.look(t, i, "/data/saltern/mirror", mirror, true) })
		keys := must(t, h.salt(t, i, "salt-key", "-L"))
		if strings.Contains(keys, "victim") {
			t.Errorf("node%d: the deleted key is back:\n%s", i, keys)
		}
	}
}

// reverting makes three machines a cluster with a volume whose new keys wait.
func reverting(t *testing.T) *machines {
	t.Helper()
	h := newMachines(t, 4)
	h.options = map[string]any{"auto_accept": false}
	h.launch(t, 1, map[string]any{"mode": "form", "secret": lab.ApplianceSecret})
	h.ready(t, 1, 1)
	for _, i := range []int{2, 3} {
		h.joins(t, i, 1)
		h.ready(t, i, i)
	}
	for i := 1; i <= 3; i++ {
		h.ready(t, i, 3)
	}
	return h
}

// TestRevertedNode puts one of three machines back to a snapshot of it: nothing of what
// the cluster has deleted, rejected, replaced or added since is undone.
func TestRevertedNode(t *testing.T) {
	h := reverting(t)
	h.fill(t)
	h.powerOff(t, 3)
	h.snapshot(t, 3)
	h.powerOn(t, 3)

	for i := 1; i <= 3; i++ {
		h.ready(t, i, 3)
	}

	want := h.change(t, 1)
	h.holds(t, want, 1, 2, 3)
	time.Sleep(30 * time.Second) // the age of what is put back: that is the test
	h.powerOff(t, 3)
	h.revert(t, 3)
	h.powerOn(t, 3)

	for i := 1; i <= 3; i++ {
		h.ready(t, i, 3)
	}

	h.holds(t, want, 1, 2, 3)
}

// says waits until node i tells of a problem, with a word in its cause.
func (h *machines) says(t *testing.T, i int, code status.Code, word string) {
	t.Helper()
	lab.Eventually(t, 120*time.Second, fmt.Sprintf("node%d says %s, %s", i, code, word), func() error {
		var d status.Document
		r := h.verb(t, i, "", "status", "--json")
		if err := json.Unmarshal([]byte(r.Out), &d); err != nil {
			return fmt.Errorf("%w: %s%s", err, r.Out, r.Err)
		}

		for _, p := range d.Problems {
			if p.Code == code && strings.Contains(p.Cause, word) {
				return nil
			}
		}

		return fmt.Errorf("%s", r.Out)
	})
}

// cycle takes a snapshot of machine i, which runs, and waits until all are ready again.
func (h *machines) cycle(t *testing.T, i, nodes int) {
	t.Helper()
	h.powerOff(t, i)
	h.snapshot(t, i)
	h.powerOn(t, i)
	for n := 1; n <= 3; n++ {
		h.ready(t, n, nodes)
	}
}

// TestRevertedNodeMissedMembers: while the state to which a node is put back was taken, the
// cluster had another secret and one node less.
func TestRevertedNodeMissedMembers(t *testing.T) {
	h := reverting(t)
	h.fill(t)
	h.cycle(t, 3, 3)
	want := h.change(t, 1)
	lab.Eventually(t, 60*time.Second, "the cluster has another secret", func() error {
		if r := h.verb(t, 1, "", "secret", "rotate"); r.Code != 0 {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})

	h.joins(t, 4, 1)
	for i := 1; i <= 4; i++ {
		h.ready(t, i, 4)
	}

	h.powerOff(t, 3)
	h.revert(t, 3)
	h.powerOn(t, 3)
	for i := 1; i <= 4; i++ {
		h.ready(t, i, 4)
	}

	h.holds(t, want, 1, 2)
	h.says(t, 3, status.CopyKept, "was put back to 20")
	if a, b := must(t, h.verb(t, 1, "", "join-string")), must(t, h.verb(t, 3, "", "join-string")); a != b {
		t.Errorf("join strings %q and %q", a, b)
	}
}

// TestRevertedTogether: all machines were switched off, and are put back to that: this is
// what a cluster restored from image backups is, and nobody takes another one for old.
func TestRevertedTogether(t *testing.T) {
	h := reverting(t)
	h.fill(t)
	all := []int{1, 2, 3}
	each := func(do func(*testing.T, int)) {
		for _, i := range all {
			do(t, i)
		}
	}

	each(h.powerOff)
	each(h.snapshot)
	each(h.powerOn)
	for _, i := range all {
		h.ready(t, i, 3)
	}

	want := h.change(t, 1)
	h.holds(t, want, all...)
	time.Sleep(30 * time.Second) // the age of what is put back
	each(h.powerOff)
	each(h.revert)
	each(h.powerOn)

	for _, i := range all {
		h.ready(t, i, 3)
		if r := h.verb(t, i, "", "status"); strings.Contains(r.Out, "SCA-429") || strings.Contains(r.Out, "SCA-43") {
			t.Errorf("node%d:\n%s", i, r.Out)
		}
	}

	before := shared{
		there: map[string]string{
			"srv/salt/inplace.txt":        "v1\n",
			"srv/salt/oldname.txt":        "name\n",
			"pki/minions/victim":          "",
			"srv/salt/tree/deep/file.txt": "gone\n",
		},
		gone: []string{"srv/salt/newname.txt", "pki/minions_rejected/turned", "etc/master.d/new.conf"},
	}

	for _, i := range all {
		if err := errors.Join(h.look(t, i, "/srv/cluster", before, true),
			h.look(t, i, h.brickOf(t, i), before, true)); err != nil {
			t.Error(err)
		}
	}
}

// TestRevertedMost puts two and three of three machines back to different times. The old
// copies are not served, each says so, and the newest becomes the cluster's when somebody
// says so.
func TestRevertedMost(t *testing.T) {
	for _, nodes := range [][]int{{1, 2}, {1, 2, 3}} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			h := reverting(t)
			h.fill(t)
			h.cycle(t, 1, 3)
			h.shell(t, 2, "rm /srv/cluster/srv/salt/deleted.txt && echo gone >/srv/cluster/srv/salt/deleted.txt")
			h.cycle(t, 2, 3)
			want := h.change(t, 3)
			h.holds(t, want, 1, 2, 3)
			h.cycle(t, 3, 3)
			time.Sleep(30 * time.Second) // the age of what is put back

			for _, i := range nodes {
				h.powerOff(t, i)
			}

			for _, i := range nodes {
				h.revert(t, i)
			}

			for _, i := range nodes {
				h.powerOn(t, i)
			}

			for _, i := range []int{1, 2} {
				h.says(t, i, status.CopyUndecided, "different times")
				if r := h.run(t, i, "", "pgrep", "-x", "glusterd"); r.Code == 0 {
					t.Errorf("node%d serves its old copy", i)
				}
			}

			if r := h.verb(t, 3, "", "status"); strings.Contains(r.Out, "SCA-430") {
				t.Errorf("node3, the newest:\n%s", r.Out)
			}

			h.powerOff(t, 1)
			h.powerOff(t, 2)
			lab.Eventually(t, 120*time.Second, "node3 becomes the cluster", func() error {
				if r := h.verb(t, 3, "", "recover", "--new-cluster", "--yes"); r.Code != 0 {
					return fmt.Errorf("%+v", r)
				}
				return nil
			})

			h.ready(t, 3, 1)
			h.holds(t, want, 3)

			h.powerOn(t, 1)
			lab.Eventually(t, 60*time.Second, "node1 is a new machine", func() error {
				if r := h.verb(t, 1, "", "reset", "--yes"); r.Code != 0 {
					return fmt.Errorf("%+v", r)
				}
				return nil
			})

			h.off(1)
			h.joins(t, 1, 3)
			h.ready(t, 1, 2)
			h.holds(t, want, 3)
		})
	}
}

// TestRevertedArbiter puts one of two nodes and then the arbiter back, whose names alone
// would bring deleted files back.
func TestRevertedArbiter(t *testing.T) {
	h := newMachines(t, 4)
	h.options = map[string]any{"auto_accept": false}
	h.launch(t, 1, map[string]any{"mode": "form", "secret": lab.ApplianceSecret})
	h.ready(t, 1, 1)
	h.joins(t, 2, 1)
	h.ready(t, 2, 2)
	must(t, h.joinArbiter(t, 3, 1))

	for i := 1; i <= 3; i++ {
		h.ready(t, i, 3)
	}

	h.fill(t)
	for _, i := range []int{3, 2} {
		h.cycle(t, i, 3)
	}

	want := h.change(t, 1)
	h.holds(t, want, 1, 2)
	time.Sleep(30 * time.Second) // the age of what is put back
	for _, i := range []int{3, 2} {
		h.powerOff(t, i)
		h.revert(t, i)
		h.powerOn(t, i)
		for n := 1; n <= 3; n++ {
			h.ready(t, n, 3)
		}

		h.holds(t, want, 1, 2)
		if err := h.look(t, 3, h.brickOf(t, 3), want, false); err != nil {
			t.Error(err)
		}

		h.says(t, i, status.CopyKept, "was put back to 20")
	}
}
