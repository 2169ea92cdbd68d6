//go:build gluster

package glusterctl_test

// These tests form, grow, break and heal volumes of real glusterds on pretend
// machines, see test/gluster/lab. `make test-gluster`, as root.

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"saltern/glusterctl"
	"saltern/glusterctl/cert"
	"saltern/glusterctl/layout"
	"saltern/glusterctl/mount"
)

// TestMain is also the program that runs on a pretend machine.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "on-machine" {
		os.Exit(onMachine(os.Args[2], os.Args[3:]))
	}
	os.Exit(m.Run())
}

func onMachine(verb string, args []string) int {
	ctx := context.Background()
	switch verb {
	case "helper":
		return glusterctl.HelperMain(args, os.Stdout, os.Stderr)
	case "write":
		return writeFiles(args)
	case "install-cert":
		return installCert(args)
	}

	var d glusterctl.Desired
	if err := json.NewDecoder(os.Stdin).Decode(&d); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}

	self, _ := os.Executable()
	helper := []string{self, "on-machine", "helper"}
	var others []string
	for _, m := range d.Members {
		if m.Name != d.Self {
			others = append(others, m.Name)
		}
	}

	mnt := &mount.Mounter{Volume: d.Volume, Point: d.Mount, Server: d.Self, Others: others}
	c := glusterctl.New(glusterctl.Config{
		Mounter: mnt,
		Prober: &mount.Prober{
			Mounter:  mnt,
			Command:  append(slices.Clone(helper), "probe"),
			WriteDir: "nodes/" + d.Self + "/probe",
			Timeout:  d.Timers.ProbeTimeout(),
		},
		Tree:   func(nodes []string) layout.Tree { return layout.Cluster(0, 0, nodes...) },
		Helper: helper,
	})

	obs, err := c.Observe(ctx, d)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if verb == "observe" {
		_ = json.NewEncoder(os.Stdout).Encode(obs)
		return 0
	}

	if verb == "remount" { // what a mount.Keeper does to a mount that hangs
		fmt.Println("before:", obs.Mount.State)
		if err := mnt.Unmount(ctx, true); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}

		if err := mnt.Mount(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}

		o, _ := c.ObserveQuick(ctx, d)
		fmt.Println("after:", o.Mount.State)
		return 0
	}

	plan := c.Plan(obs, d)
	_ = plan.Text(os.Stdout)
	if verb == "plan" {
		return 0
	}

	start := time.Now()
	err = c.Apply(ctx, plan, func(e glusterctl.Event) {
		fmt.Printf("%6.1fs %-5s %s %s\n", time.Since(start).Seconds(), e.State, e.Step.What, e.Text)
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}

	return 0
}

// installCert puts a certificate for NAME, signed by the authority in DIR, where
// GlusterFS of this machine looks, and makes its glusterd use it.
func installCert(args []string) int {
	ca := cert.Pair{}
	err := errors.Join(read(filepath.Join(args[0], "ca.pem"), &ca.Cert),
		read(filepath.Join(args[0], "ca.key"), &ca.Key))
	if err == nil {
		var m cert.Pair
		if m, err = ca.Issue(args[1], rand.Reader, time.Now()); err == nil {
			err = errors.Join(cert.Install(cert.Dir, ca.Cert, m), glusterctl.EncryptManagement(glusterctl.DaemonState))
		}
	}

	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}

	return 0
}

func read(path string, to *[]byte) (err error) {
	*to, err = os.ReadFile(path)
	return err
}

// writeFiles DIR SECONDS PER-SECOND: each file is written to a temporary name,
// synced and renamed; the names of those that were acknowledged and the longest
// time that one took are printed.
func writeFiles(args []string) int {
	seconds, _ := strconv.Atoi(args[1])
	rate, _ := strconv.Atoi(args[2])
	end := time.Now().Add(time.Duration(seconds) * time.Second)
	tick := time.NewTicker(time.Second / time.Duration(rate))
	var longest time.Duration
	faults := 0
	for i := 0; time.Now().Before(end); i++ {
		<-tick.C
		start := time.Now()
		name := filepath.Join(args[0], fmt.Sprintf("f%06d", i))
		f, err := os.Create(name + ".tmp")
		if err == nil {
			_, err = f.Write(bytes.Repeat([]byte{byte('a' + i%26)}, 600))
			if err == nil {
				err = f.Sync()
			}
			f.Close()
		}
		if err == nil {
			err = os.Rename(name+".tmp", name)
		}

		longest = max(longest, time.Since(start))
		if err != nil {
			faults++
			continue
		}

		fmt.Println(filepath.Base(name))
	}

	fmt.Printf("longest %d ms, %d faults\n", longest.Milliseconds(), faults)
	return 0
}

type lab struct {
	t      *testing.T
	script string
	env    []string
	net    string
}

func newLab(t *testing.T) *lab {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("these tests need root")
	}

	script, err := filepath.Abs("../test/gluster/lab")
	if err != nil {
		t.Fatal(err)
	}

	l := &lab{t: t, script: script, net: "10.239.5"}
	l.env = append(os.Environ(), "LAB_NAME=gctest", "LAB_DIR="+filepath.Join(os.TempDir(), "gctest-lab"),
		"LAB_NET="+l.net)
	l.must("down")
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := l.run(time.Minute, nil, "logs", "1")
			t.Logf("logs of node1:\n%s", out)
		}
		l.must("down")
	})

	return l
}

func (l *lab) run(limit time.Duration, in io.Reader, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, l.script, args...)
	cmd.Env = l.env
	cmd.Stdin = in
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (l *lab) must(args ...string) string {
	l.t.Helper()
	out, err := l.run(2*time.Minute, nil, args...)
	if err != nil {
		l.t.Fatalf("lab %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// machine boots a machine with our configuration of glusterd.
func (l *lab) machine(i int) {
	l.t.Helper()
	n := strconv.Itoa(i)
	l.must("boot", n)
	l.configure(n)
	l.must("glusterd", n)
}

func (l *lab) configure(n string) {
	l.t.Helper()
	if out, err := l.run(time.Minute, bytes.NewReader(glusterctl.DaemonConfig(0)), "exec", n, "tee",
		"/etc/glusterfs/glusterd.vol"); err != nil {
		l.t.Fatalf("write glusterd.vol: %v\n%s", err, out)
	}
}

func (l *lab) want(self string, members ...string) glusterctl.Desired {
	d := want(self, members...)
	d.Form = self == "node1"
	for i := range d.Members {
		d.Members[i].Address = l.net + ".1" + strings.TrimPrefix(d.Members[i].Name, "node")
	}
	return d
}

func (l *lab) onMachine(verb string, d glusterctl.Desired) (string, error) {
	self, err := os.Executable()
	if err != nil {
		l.t.Fatal(err)
	}
	b, _ := json.Marshal(d)
	return l.run(8*time.Minute, bytes.NewReader(b), "exec", strings.TrimPrefix(d.Self, "node"), self,
		"on-machine", verb)
}

func (l *lab) apply(d glusterctl.Desired) string {
	l.t.Helper()
	start := time.Now()
	out, err := l.onMachine("apply", d)
	l.t.Logf("apply on %s (%.1f s):\n%s", d.Self, time.Since(start).Seconds(), out)
	if err != nil {
		l.t.Fatalf("apply on %s: %v", d.Self, err)
	}
	return out
}

func (l *lab) observe(d glusterctl.Desired) *glusterctl.Observation {
	l.t.Helper()
	out, err := l.onMachine("observe", d)
	var o glusterctl.Observation
	if err == nil {
		err = json.Unmarshal([]byte(out), &o)
	}
	if err != nil {
		l.t.Fatalf("observe on %s: %v\n%s", d.Self, err, out)
	}
	return &o
}

func (l *lab) until(limit time.Duration, what string, f func() bool) {
	l.t.Helper()
	for end := time.Now().Add(limit); !f(); time.Sleep(500 * time.Millisecond) {
		if time.Now().After(end) {
			l.t.Fatalf("after %v still not: %s", limit, what)
		}
	}
}

func (l *lab) sh(i int, script string) (string, error) {
	return l.run(40*time.Second, nil, "exec", strconv.Itoa(i), "timeout", "30", "sh", "-c", script)
}

func (l *lab) shMust(i int, script string) string {
	l.t.Helper()
	out, err := l.sh(i, script)
	if err != nil {
		l.t.Fatalf("node%d: %s: %v\n%s", i, script, err, out)
	}
	return out
}

// writing writes files on machine i for so many seconds, does something while
// it does, and gives the names that were acknowledged. A fault, or a write that
// takes longer than 8 s, fails the test.
func (l *lab) writing(i, seconds, rate int, after time.Duration, do func()) []string {
	l.t.Helper()
	self, _ := os.Executable()
	w := exec.Command(l.script, "exec", strconv.Itoa(i), self, "on-machine", "write",
		"/srv/cluster/nodes/node"+strconv.Itoa(i), strconv.Itoa(seconds), strconv.Itoa(rate))
	w.Env = l.env
	out, err := w.StdoutPipe()
	if err != nil {
		l.t.Fatal(err)
	}

	if err := w.Start(); err != nil {
		l.t.Fatal(err)
	}
	defer time.AfterFunc(after, do).Stop()

	var acked []string
	longest := ""
	for s := bufio.NewScanner(out); s.Scan(); {
		if strings.HasPrefix(s.Text(), "longest") {
			longest = s.Text()
		} else {
			acked = append(acked, s.Text())
		}
	}

	if err := w.Wait(); err != nil {
		l.t.Fatal(err)
	}

	l.t.Logf("%d files acknowledged, %s", len(acked), longest)
	var ms, faults int
	if _, err := fmt.Sscanf(longest, "longest %d ms, %d faults", &ms, &faults); err != nil || faults > 0 ||
		ms > 8000 || len(acked) == 0 {
		l.t.Errorf("writes: %q", longest)
	}

	return acked
}

// A volume's whole life: alone, three copies, a node killed while files are
// written, a node whose disk is gone, one that leaves.
func TestLife(t *testing.T) {
	l := newLab(t)
	for i := 1; i <= 3; i++ {
		l.machine(i)
	}

	l.apply(l.want("node1", "1"))
	l.shMust(1, "for i in $(seq 50); do echo $i > /srv/cluster/nodes/node1/a$i; done")
	three := func(self string) glusterctl.Desired { return l.want(self, "1", "2", "3") }
	l.apply(three("node1"))

	for i := 2; i <= 3; i++ {
		l.apply(three(fmt.Sprintf("node%d", i)))
		if got := l.shMust(i, "cat /srv/cluster/nodes/node1/a* | wc -l"); strings.TrimSpace(got) != "50" {
			t.Fatalf("node%d reads %s of 50 files", i, got)
		}
	}

	t.Log("node3 is killed while files are written")
	acked := l.writing(1, 25, 60, 6*time.Second, func() { _, _ = l.run(time.Minute, nil, "crash", "3") })
	all := func(i int) {
		t.Helper()
		have := strings.Fields(l.shMust(i, "ls /srv/cluster/nodes/node1"))
		for _, f := range acked {
			if !slices.Contains(have, f) {
				t.Fatalf("%s was acknowledged and node%d does not see it", f, i)
			}
		}
	}

	all(2)
	o := l.observe(three("node1"))
	if h := o.HealState(); h.Pending.Known || len(h.Away) != 1 {
		t.Errorf("healing while node3 is off: %+v", h)
	}

	t.Log("node3 comes back by itself")
	l.machine(3)
	l.apply(three("node3"))
	l.until(3*time.Minute, "everything healed", func() bool {
		o := l.observe(three("node1"))
		return o.HealState().Pending.Zero()
	})

	all(3)
	if got := strings.Fields(l.shMust(3, "ls /data/brick/cluster-1/nodes/node1")); len(got) < len(acked) {
		t.Errorf("the brick of node3 has %d of %d files", len(got), len(acked))
	}

	t.Log("node2 loses its disk")
	l.must("crash", "2")
	l.must("new-disk", "2")
	l.machine(2)
	fresh := l.want("node1", "1", "2/2", "3")
	l.apply(fresh)
	fresh.Self, fresh.Form = "node2", false
	l.apply(fresh)

	if got := strings.Fields(l.shMust(2, "ls /data/brick/cluster-2/nodes/node1")); len(got) < len(acked) {
		t.Errorf("the new brick of node2 has %d of %d files", len(got), len(acked))
	}

	all(2)

	t.Log("node3 dies and leaves")
	l.must("crash", "3")
	two := l.want("node1", "1", "2/2")
	two.Leaving = []string{"node3"}
	l.apply(two)
	all(1)
	o = l.observe(two)
	if len(o.Pool) != 2 || len(o.Volume.Bricks) != 2 || !o.HealState().Pending.Zero() {
		t.Errorf("after node3 left: %d pool members, bricks %v, healing %+v", len(o.Pool), o.Volume.Bricks,
			o.HealState())
	}

	t.Log("node3 comes back and believes that it is a member")
	l.machine(3)
	l.until(time.Minute, "node3 sees that it was let go", func() bool {
		o := l.observe(three("node3"))
		return len(o.Disowned) > 0
	})

	if out, err := l.onMachine("apply", three("node3")); err == nil || !strings.Contains(out, "storage.disowned") {
		t.Errorf("apply on the node that was let go: %v\n%s", err, out)
	}

	t.Log("node2 leaves alive")
	one := l.want("node1", "1")
	one.Leaving = []string{"node2"}
	l.apply(one)
	all(1)
}

// A pool with TLS on all its connections: who is not a member can neither mount
// the volume nor join by himself. Then a cable is pulled, and a client hangs.
func TestAttack33OutsiderCannotMount(t *testing.T) {
	l := newLab(t)
	self, _ := os.Executable()
	authority := func(name string) string {
		dir := t.TempDir()
		ca, err := cert.New(name, rand.Reader, time.Now())
		if err == nil {
			err = errors.Join(os.WriteFile(filepath.Join(dir, "ca.pem"), ca.Cert, 0o600),
				os.WriteFile(filepath.Join(dir, "ca.key"), ca.Key, 0o600))
		}

		if err != nil {
			t.Fatal(err)
		}

		return dir
	}

	ours, theirs := authority("pool"), authority("another pool")
	for _, i := range []string{"1", "2"} {
		l.must("boot", i)
		l.configure(i)
		l.must("exec", i, self, "on-machine", "install-cert", ours, "node"+i)
		l.must("glusterd", i)
	}

	d := l.want("node1", "1", "2")
	d.TLS, d.TwoCopies = true, true
	l.apply(d)
	l.shMust(1, "echo secret > /srv/cluster/nodes/node1/x")
	d.Self, d.Form = "node2", false
	l.apply(d)
	l.shMust(2, "grep -q secret /srv/cluster/nodes/node1/x")

	mountIt := "mkdir -p /mnt/x; timeout 20 mount -t glusterfs node1:/cluster /mnt/x && ls /mnt/x/nodes"
	outside := func(what string) {
		t.Helper()
		if out, err := l.sh(3, mountIt); err == nil {
			t.Errorf("%s: mounted: %s", what, out)
		}

		_, _ = l.sh(3, "umount -l /mnt/x; true")
		if out, err := l.sh(3, "timeout 20 gluster --mode=script --remote-host=node1 volume info"); err == nil && strings.Contains(out, "cluster-1") {
			t.Errorf("%s: learned about the volume: %s", what, out)
		}
	}

	l.must("boot", "3")
	outside("no certificate")
	l.must("exec", "3", self, "on-machine", "install-cert", theirs, "node1")
	outside("certificate of another authority in a member's name")
	l.must("exec", "3", self, "on-machine", "install-cert", ours, "node9")

	if out, err := l.sh(3, mountIt); err == nil {
		t.Errorf("certificate of ours in a name that is no member's: mounted: %s", out)
	}

	t.Log("node3 becomes a member")
	l.configure("3")
	l.must("exec", "3", self, "on-machine", "install-cert", ours, "node3")
	l.must("glusterd", "3")
	three := l.want("node1", "1", "2", "3")
	three.TLS = true
	l.apply(three)
	three.Self, three.Form = "node3", false
	l.apply(three)
	l.shMust(3, "grep -q secret /srv/cluster/nodes/node1/x")
	three.Self = "node1"

	t.Log("the cable of node3 is pulled while files are written")
	acked := l.writing(1, 30, 40, 6*time.Second, func() { l.must("cut", "3") })
	var noticed time.Duration
	start := time.Now()
	l.until(2*time.Minute, "the pool notices that node3 is away", func() bool {
		o := l.observe(three)
		noticed = time.Since(start)
		return o.StatusError == "" && o.Quorum().Known && o.Quorum().Up == 2
	})

	t.Logf("all of it observed %v after the writing", noticed.Round(time.Second))
	l.must("uncut", "3")
	l.until(3*time.Minute, "everything healed", func() bool { return l.observe(three).HealState().Pending.Zero() })
	have := strings.Fields(l.shMust(3, "ls /data/brick/cluster-1/nodes/node1"))
	for _, f := range acked {
		if !slices.Contains(have, f) {
			t.Fatalf("%s was acknowledged and the brick of node3 does not have it", f)
		}
	}

	t.Log("the client process of node1 hangs")
	l.shMust(1, "pkill -STOP -f '[p]rocess-name fuse'")
	began := time.Now()
	out, err := l.onMachine("remount", three)
	t.Logf("%.1f s: %s", time.Since(began).Seconds(), out)

	if err != nil || !strings.Contains(out, "before: hung") || !strings.Contains(out, "after: ok") {
		t.Errorf("remount: %v\n%s", err, out)
	}

	l.shMust(1, "grep -q secret /srv/cluster/nodes/node1/x")
}
