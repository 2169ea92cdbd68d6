//go:build e2e && appliance

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/test/lab"
)

// oldMaster is a master of Salt's on the machine of the minions, at an address that
// moves later.
type oldMaster struct {
	*lab.Site
	h   *machines
	run *exec.Cmd
}

func (o *oldMaster) launch(t *testing.T) {
	t.Helper()
	o.Configure(t)
	o.run = o.h.begin(t, o.h.minions, filepath.Join(o.Dir, "master.out"),
		filepath.Join(lab.Venv(t, lab.Newest), "salt-master"), "-c", filepath.Join(o.Dir, "etc"))
	t.Cleanup(o.end)
}

func (o *oldMaster) end() {
	if o.run != nil {
		_ = syscall.Kill(-o.run.Process.Pid, syscall.SIGKILL)
		_ = o.run.Wait()
		o.run = nil
	}
}

// answer waits until the minions answer this master.
func (o *oldMaster) answer(t *testing.T, ids ...string) {
	t.Helper()
	lab.Eventually(t, 4*time.Minute, "minions answer Salt's master", func() error {
		r := o.h.run(t, o.h.minions, "", lab.Bin(t, "salt"), "-c", filepath.Join(o.Dir, "etc"), "-t", "20",
			"--out", "txt", "*", "test.ping")
		for _, id := range ids {
			if !strings.Contains(r.Out, id+": True") {
				return fmt.Errorf("%s does not: %+v", id, r)
			}
		}
		return nil
	})
}

// gives takes an address from a machine, unless it is 0, and gives it to another one.
func (h *machines) gives(t *testing.T, address string, from, to int) {
	t.Helper()
	if from > 0 {
		must(t, h.run(t, from, "", "ip", "addr", "del", address+"/24", "dev", "eth0"))
	}
	must(t, h.run(t, to, "", "ip", "addr", "add", address+"/24", "dev", "eth0"))
	must(t, h.run(t, h.minions, "", "ip", "neigh", "flush", "all")) // as an announcement would
}

// digests are those of all files below a folder as machine i has it.
func (h *machines) digests(t *testing.T, i int, folder string) string {
	t.Helper()
	out := must(t,
		h.run(t, i, "", "sh", "-ec", `cd "$0" && find . -type f -print0 | sort -z | xargs -0 sha256sum`, folder))
	if strings.Count(out, "\n") < 2 {
		t.Fatalf("%s on node%d: %s", folder, i, out)
	}
	return out
}

// volumeOldTree fills what a master of Salt's serves: files in folders, a large one, an empty
// one, names with spaces, and pillars.
func volumeOldTree(t *testing.T, dir string) {
	t.Helper()
	files := map[string]string{
		"srv/pillar/top.sls":     "base:\n  '*':\n    - word\n",
		"srv/pillar/word.sls":    "word: of {{ grains['id'] }}\n",
		"srv/salt/hello.sls":     "hello:\n  test.succeed_without_changes\n",
		"srv/salt/empty":         "",
		"srv/salt/a file, ä.txt": "with spaces\n",
		"srv/salt/large":         string(bytes.Repeat([]byte("0123456789abcde\n"), 1<<16)),
	}
	for i := range 60 {
		files[fmt.Sprintf("srv/salt/formulas/f%02d/files/conf", i)] = fmt.Sprintf("number %d\n", i)
	}
	lab.WriteTree(t, dir, files)
}

// TestApplianceVolumeImport: a master of Salt's with minions of two releases is taken over
// by a cluster of three nodes on a volume, while one machine is off. The address moves to a
// node, and to another one when that machine dies. The machine that was off comes back and
// has all files, on its own brick too. What is exported again is what came, and Salt's
// master serves the same minions with it, which nobody has touched.
func TestApplianceVolumeImport(t *testing.T) {
	h := newMachines(t, 4)
	h.options = map[string]any{"auto_accept": false}
	anywhere := []string{"0.0.0.0"} // the address moves
	h.launch(t, 1, map[string]any{"mode": "form", "secret": lab.ApplianceSecret, "front": anywhere})
	h.ready(t, 1, 1)

	for i := 2; i <= 3; i++ {
		h.launch(t, i,
			map[string]any{"front": anywhere, "join": strings.TrimSpace(must(t, h.verb(t, 1, "", "join-string")))})
		h.ready(t, i, i)
	}

	h.ready(t, 1, 3)

	address := h.net + ".200"
	h.gives(t, address, 0, h.minions)
	old := &oldMaster{Site: lab.NewSites(t, 1)[0], h: h}
	old.Addr, old.Python = address, true
	old.Options = map[string]any{"nodegroups": map[string]any{"both": "L@m3006,m3008"}}
	volumeOldTree(t, old.Dir)
	old.launch(t)
	minions := map[string]*exec.Cmd{
		"m3006": h.minion(t, "m3006", lab.Versions()[0], address),
		"m3008": h.minion(t, "m3008", lab.Newest, address),
	}

	old.Accept(t, volumeMinions...)
	old.answer(t, volumeMinions...)
	conf := filepath.Join(old.Dir, "etc")
	want := h.digests(t, 1, filepath.Join(old.Dir, "srv/salt"))

	h.off(3)
	h.must(t, "crash", "3")
	began := time.Now()
	lab.Eventually(t, 3*time.Minute, "import", func() error {
		r := h.verb(t, 1, "", "import", "--config-dir", conf, "/")
		if r.Code != 2 || !strings.Contains(r.Out, "imported:") ||
			!strings.Contains(r.Out, "node node3 takes it when it starts") {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})

	t.Logf("imported after %.0f s, with one machine off", time.Since(began).Seconds())
	for i := 1; i <= 2; i++ {
		if got := h.digests(t, i, "/srv/cluster/srv/salt"); got != want {
			t.Errorf("node%d has\n%s\nwant\n%s", i, got, want)
		}
	}

	old.end()
	h.gives(t, address, h.minions, 2)
	h.answer(t, 1, volumeMinions...)
	h.answer(t, 2, volumeMinions...)
	h.states(t, 1, "m3008")

	h.must(t, "boot", "3")
	h.launch(t, 3, nil)
	for i := 1; i <= 3; i++ {
		h.ready(t, i, 3)
	}

	brick := strings.TrimSpace(must(t,
		h.run(t, 3, "", "sh", "-ec",
			`find /data/brick -path '*/.glusterfs' -prune -o -type d -path '*/srv/salt' -print`)))
	for _, folder := range []string{"/srv/cluster/srv/salt", brick} {
		if got := h.digests(t, 3, folder); got != want {
			t.Errorf("the node that was away has in %s\n%s\nwant\n%s", folder, got, want)
		}
	}

	h.off(2)
	h.must(t, "crash", "2") // with the address and its sessions
	h.must(t, "boot", "2")
	h.gives(t, address, 2, 3)
	h.answer(t, 3, volumeMinions...)
	h.launch(t, 2, nil)
	h.ready(t, 2, 3)
	h.answer(t, 2, volumeMinions...)
	h.states(t, 2, "m3006")

	// A minion of 3008 shows values of its pillar only when it is told to.
	for id, more := range map[string][]string{"m3006": nil, "m3008": {"unmask=True"}} {
		if r := h.salt(t, 3, "salt",
			append([]string{"-t", "30", "--out", "txt", id, "pillar.get", "word"}, more...)...); !strings.Contains(r.Out, id+": of "+id) {
			t.Errorf("pillars: %+v", r)
		}
	}

	tree := filepath.Join(h.dir, "back")
	must(t, h.verb(t, 2, "", "export", tree))
	if got := h.digests(t, 1, tree+"/srv/salt"); got != want {
		t.Errorf("exported\n%s\nwant\n%s", got, want)
	}

	for _, i := range []int{1, 2, 3} {
		h.off(i)
	}

	h.gives(t, address, 3, h.minions)
	old.Options = map[string]any{
		"pki_dir":         tree + "/etc/salt/pki/master",
		"default_include": tree + "/etc/salt/master.d/*.conf",
		"file_roots":      map[string][]string{"base": {tree + "/srv/salt"}},
		"pillar_roots":    map[string][]string{"base": {tree + "/srv/pillar"}},
	}

	old.launch(t)
	old.answer(t, volumeMinions...)
	for _, half := range []string{"master.pem", "master.pub"} {
		was, err1 := os.ReadFile(filepath.Join(old.Dir, "pki", half))
		now, err2 := os.ReadFile(filepath.Join(tree, "etc/salt/pki/master", half))
		if err1 != nil || err2 != nil || !bytes.Equal(was, now) {
			t.Errorf("%s is another than before: %v %v", half, err1, err2)
		}
	}

	for id, cmd := range minions {
		state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
		if err != nil || strings.Contains(string(state), ") Z ") {
			t.Errorf("minion %s has ended: %s %v", id, state, err)
		}
	}
}
