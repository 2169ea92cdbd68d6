//go:build e2e && appliance

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/supervisor/status"
	"saltern/test/await"
	"saltern/test/baddisk"
	"saltern/test/lab"
)

// clusterFault is what a node of a cluster must say about a fault.
type clusterFault struct {
	head  string // beginning of the first line
	exit  int
	code  status.Code
	title string // part of it
	cause string // part of it
}

// tells waits until a node's status is as it must be, as text and as JSON, and
// gives the next step.
func tells(t *testing.T, n *lab.Appliance, f clusterFault) (next string) {
	t.Helper()
	lab.Eventually(t, 90*time.Second, fmt.Sprintf("%s says %s", n.Name, f.code), func() error {
		d, err := n.Status(t)
		if err != nil {
			return err
		}

		i := slices.IndexFunc(d.Problems,
			func(p status.Problem) bool { return p.Code == f.code && strings.Contains(p.Title, f.title) })
		if i < 0 {
			return fmt.Errorf("%s: %+v", d.Health, d.Problems)
		}

		p := d.Problems[i]
		next = p.Next
		if !strings.Contains(p.Cause, f.cause) {
			return fmt.Errorf("%+v", p)
		}

		r := n.Applianced(t, "status")
		if !strings.HasPrefix(r.Out, f.head) || !strings.Contains(r.Out, "\n  "+string(f.code)+" ") ||
			!strings.Contains(r.Out, "next: "+next) || r.Code != f.exit {
			return fmt.Errorf("exit %d:\n%s", r.Code, r.Out)
		}

		return nil
	})

	return next
}

// mendedAll waits until a node has nothing to say any more.
func mendedAll(t *testing.T, n *lab.Appliance, codes ...status.Code) {
	t.Helper()
	lab.Eventually(t, 90*time.Second, n.Name+" is well", func() error {
		d, err := n.Status(t)
		if err != nil {
			return err
		}

		for _, p := range d.Problems {
			if slices.Contains(codes, p.Code) || p.Severity == status.Fatal {
				return fmt.Errorf("%+v", p)
			}
		}

		if d.ServingSince == nil || d.Health == status.NotServing {
			return fmt.Errorf("%s", d.Health)
		}

		return nil
	})
}

// typed types one of the commands of a next step, the one that begins like
// that, and gives what came of it.
func typed(t *testing.T, n *lab.Appliance, next, begins string) lab.Result {
	t.Helper()
	for part := range strings.SplitSeq(next, ";") {
		_, command, ok := strings.Cut(part, "applianced ")
		if ok && strings.HasPrefix(command, begins) {
			return n.Applianced(t, strings.Fields(command)...)
		}
	}
	t.Fatalf("no applianced %s in %q", begins, next)
	return lab.Result{}
}

// TestFaultsOfACluster: what befalls a node of three is told on that node and
// on the others; the first line is right, and the next step that is named
// works when it is typed. One minion is served all the time.
func TestFaultsOfACluster(t *testing.T) {
	t.Parallel()
	net := lab.NewNetwork(t, "flt", "10.74")
	nodes := threeNodes(t, net)

	// The program of n2's master fails to start while a file is there.
	prog := lab.Dir(t)
	broken := filepath.Join(prog, "broken")
	script := fmt.Sprintf("#!/bin/sh\nif [ -e %s ]; then echo 'cannot start: this is broken' >&2; exit 1; fi\nexec %s \"$@\"\n",
		broken, lab.Bin(t, "salt-master"))
	if err := os.WriteFile(filepath.Join(prog, "salt-master"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}

	for _, tool := range []string{"salt", "salt-run", "salt-key"} {
		if err := os.Symlink(lab.Bin(t, tool), filepath.Join(prog, tool)); err != nil {
			t.Fatal(err)
		}
	}

	nodes[1].Change(t, "settings.programs", map[string]any{"master": filepath.Join(prog, "salt-master")})
	disk := baddisk.On(t, filepath.Join(nodes[1].Dir, "data"), baddisk.Ext4, 2<<30)
	data := disk.Dir
	for _, n := range nodes {
		n.Launch(t)
	}

	for _, n := range nodes {
		n.WaitReady(t, 3)
	}

	n1, n2, n3 := nodes[0], nodes[1], nodes[2]
	n1.StartMinion(t, "m1", lab.Newest)
	n1.Ping(t, 150*time.Second, "m1")

	t.Run("a node is unreachable", func(t *testing.T) {
		net.Cut(t, n3.Addr)
		tells(t, n3,
			clusterFault{"NOT SERVING  cluster lab", status.ExitNotServing, status.NetworkDown,
				"this node has no network", "eth0, which has " + n3.Addr})
		next := tells(t, n1,
			clusterFault{"DEGRADED  cluster lab", status.ExitDegraded, status.NodeUnreachable,
				"node n3 is unreachable", n3.Addr})
		if r := typed(t, n1, next, "ping"); r.Code != status.ExitNotServing ||
			!strings.Contains(r.Out, "fail") || !strings.Contains(r.Out, "check: ") {
			t.Errorf("%+v", r)
		}

		n2.Ping(t, 120*time.Second, "m1")
		net.Mend(t, n3.Addr)
		for _, n := range nodes {
			mendedAll(t, n, status.NodeUnreachable, status.NodeNotServing, status.NodeMasterDown)
		}

		if r := typed(t, n1, next, "ping"); r.Code != 0 {
			t.Errorf("%+v", r)
		}
	})

	t.Run("a master does not start", func(t *testing.T) {
		if err := os.WriteFile(broken, nil, 0o600); err != nil {
			t.Fatal(err)
		}

		strike(t, n2, "master", syscall.SIGKILL)
		next := tells(t, n2,
			clusterFault{"DEGRADED  cluster lab", status.ExitDegraded, status.MasterDown,
				"salt-master is not running", "cannot start: this is broken"})
		if r := typed(t, n2, next, "logs master"); r.Code != 0 ||
			!strings.Contains(r.Out, "cannot start: this is broken") {
			t.Errorf("%+v", r)
		}

		next = tells(t, n1,
			clusterFault{"DEGRADED  cluster lab", status.ExitDegraded, status.NodeMasterDown,
				"the master of node n2", "SCA-201"})
		if !strings.Contains(next, "applianced status on n2") {
			t.Errorf("next: %s", next)
		}

		n1.Ping(t, 120*time.Second, "m1")
		if err := os.Remove(broken); err != nil {
			t.Fatal(err)
		}

		must(t, n2.Applianced(t, "restart", "master"))
		mendedAll(t, n2, status.MasterDown)
		mendedAll(t, n1, status.NodeMasterDown)
	})

	t.Run("a master is silent", func(t *testing.T) {
		strike(t, n2, "master", syscall.SIGSTOP)
		next := tells(t, n2,
			clusterFault{"DEGRADED  cluster lab", status.ExitDegraded, status.MasterSilent,
				"salt-master does not answer", ""})
		if r := typed(t, n2, next, "logs master"); r.Code != 0 {
			t.Errorf("%+v", r)
		}

		n3.Ping(t, 120*time.Second, "m1")
		if r := typed(t, n2, next, "restart master"); r.Code != 0 {
			t.Errorf("%+v", r)
		}

		mendedAll(t, n2, status.MasterSilent, status.MasterDown)
	})

	t.Run("a load balancer is silent", func(t *testing.T) {
		strike(t, n3, "lb", syscall.SIGSTOP)
		tells(t, n3,
			clusterFault{"NOT SERVING  cluster lab", status.ExitNotServing, status.BalancerDown,
				"the load balancer is not running", ""})
		tells(t, n1, clusterFault{"DEGRADED  cluster lab", status.ExitDegraded, status.NodeNotServing, "node n3", ""})
		must(t, n3.Applianced(t, "restart", "lb"))
		mendedAll(t, n3, status.BalancerDown, status.BalancerSilent)
		mendedAll(t, n1, status.NodeNotServing)
	})

	t.Run("options that are wrong", func(t *testing.T) {
		conf := filepath.Join(n3.Shared, "etc", "master.d", "mine.conf")
		if err := os.WriteFile(conf, []byte("timeout: 5\nfile_recv: [1, 2]\n"), 0o644); err != nil {
			t.Fatal(err)
		}

		must(t, n2.Applianced(t, "restart", "master"))
		tells(t, n2,
			clusterFault{"DEGRADED  cluster lab", status.ExitDegraded, status.MasterLastGood,
				"last good options", "mine.conf:2"})
		n2.Ping(t, 120*time.Second, "m1")
		mendedAll(t, n1, status.MasterConfig, status.MasterLastGood) // those that run go on

		if err := os.Remove(conf); err != nil {
			t.Fatal(err)
		}

		must(t, n2.Applianced(t, "restart", "master"))
		mendedAll(t, n2, status.MasterConfig, status.MasterLastGood)
	})

	t.Run("a disk is full", func(t *testing.T) {
		disk.Fill()
		tells(t, n2,
			clusterFault{"NOT SERVING  cluster lab", status.ExitNotServing, status.DiskFull,
				"the file system of " + data + " is full", "free of"})
		tells(t, n1,
			clusterFault{"DEGRADED  cluster lab", status.ExitDegraded, status.NodeNotServing, "node n2", "SCA-402"})
		n1.Ping(t, 120*time.Second, "m1")
		disk.Empty() // make room there
		mendedAll(t, n2, status.DiskFull, status.ReturnsNotKept, status.MasterProblem)
		mendedAll(t, n1, status.NodeNotServing)
		n2.Ping(t, 120*time.Second, "m1")
	})

	all := t
	t.Run("a disk hangs", func(t *testing.T) {
		disk.Freeze()
		unwell(t, nodes, 15*time.Second)
		tells(t, n2,
			clusterFault{"NOT SERVING  cluster lab", status.ExitNotServing, status.StorageUnusable,
				"storage " + data + " cannot be used", "the disk does not answer"})

		for _, n := range []*lab.Appliance{n1, n3} {
			tells(t, n,
				clusterFault{"DEGRADED  cluster lab", status.ExitDegraded, status.NodeMasterDown,
					"the master of node n2", "SCA-401"})
			n.Ping(t, 120*time.Second, "m1")
		}

		disk.Thaw()
		for _, n := range nodes {
			mendedAll(t, n, status.StorageUnusable, status.ReturnsNotKept, status.NodeMasterDown,
				status.NodeNotServing, status.NodeUnreachable)
		}

		n2.Ping(t, 120*time.Second, "m1")
	})

	t.Run("two of three are gone", func(t *testing.T) {
		n2.Kill()
		n3.Kill()
		for _, lost := range []*lab.Appliance{n2, n3} {
			next := tells(t, n1,
				clusterFault{"DEGRADED  cluster lab", status.ExitDegraded, status.NodeUnreachable,
					"node " + lost.Name + " is unreachable", lost.Addr})
			if r := typed(t, n1, next, "ping "+
				lost.Name); r.Code != status.ExitNotServing || !strings.Contains(r.Out, "fail") {
				t.Errorf("%+v", r)
			}
		}

		n1.Ping(t, 120*time.Second, "m1")
		n2.Launch(all)
		n3.Launch(all)
		for _, n := range nodes {
			mendedAll(t, n, status.NodeUnreachable, status.NodeNotServing, status.NodeMasterDown)
		}
	})

	t.Run("an address is lost", func(t *testing.T) { // finding F7: a port was said to be taken
		ip := func(args ...string) {
			t.Helper()
			if out, err := exec.Command("nsenter",
				append([]string{"--net=" + net.Namespace(n3.Addr), "ip"}, args...)...).CombinedOutput(); err != nil {
				t.Fatalf("ip %v: %v: %s", args, err, out)
			}
		}

		lost := clusterFault{"NOT SERVING  cluster lab", status.ExitNotServing, status.AddressMissing,
			"this machine does not have its address " + n3.Addr,
			"this machine has " + n3.Addr + "3 on eth0"}
		alone := func() {
			t.Helper()
			lab.Eventually(t, 30*time.Second, "the one problem of n3", func() error {
				d, err := n3.Status(t)
				others := slices.DeleteFunc(d.Problems, func(p status.Problem) bool {
					return p.Code == status.AddressMissing ||
						p.Severity != status.Fatal &&
							!slices.Contains(
								[]status.Code{status.NodeUnreachable, status.NodeMasterDown,
									status.MastersApart, status.NodeAPIDown, status.NodeNotServing},
								p.Code)
				})
				if err == nil && len(others) > 0 {
					err = fmt.Errorf("%+v", others)
				}

				return err
			})
		}

		notCopy := func() { // which would be told some seconds later
			t.Helper()
			await.Holds(t, 8*time.Second, "n3 is not told that it is a copy", func() bool {
				d, err := n3.Status(t)
				return err != nil || !slices.ContainsFunc(d.Problems,
					func(p status.Problem) bool { return p.Code == status.NotTheNode })
			})
		}

		ip("addr", "flush", "dev", "eth0")
		ip("addr", "add", n3.Addr+"3/24", "dev", "eth0")
		tells(t, n3, lost) // while it runs
		alone()
		n3.Kill()
		n3.Launch(all)
		tells(t, n3, lost) // after a start
		alone()
		notCopy()
		tells(t, n1,
			clusterFault{"DEGRADED  cluster lab", status.ExitDegraded, status.NodeUnreachable,
				"node n3 is unreachable", ""})
		ip("addr", "flush", "dev", "eth0")
		ip("addr", "add", n3.Addr+"/24", "dev", "eth0")

		for _, n := range nodes {
			mendedAll(t, n, status.AddressMissing, status.PortInUse, status.MasterDown, status.MasterSilent,
				status.NodeUnreachable, status.NodeNotServing, status.NodeMasterDown)
		}
	})

	t.Run("a port is taken", func(t *testing.T) {
		n3.Kill()
		squatter := n3.Squat(t, "4521")
		n3.Launch(t)
		tells(t, n3,
			clusterFault{"DEGRADED  cluster lab", status.ExitDegraded, status.NodeAPIDown,
				"other nodes cannot speak with this one", "in use"})
		squatter.Kill()
		mendedAll(t, n3, status.NodeAPIDown)
		n3.Kill()
	})

	t.Run("a node is gone", func(t *testing.T) {
		n3.Kill()
		next := tells(t, n1,
			clusterFault{"DEGRADED  cluster lab", status.ExitDegraded, status.NodeUnreachable,
				"node n3 is unreachable", ""})

		// nobody is there to be asked
		if r := typed(t, n1, next, "remove n3"); r.Code == 0 || !strings.Contains(r.Err, "--yes") {
			t.Errorf("%+v", r)
		}

		must(t, n1.Applianced(t, "remove", "n3", "--yes"))
		n1.WaitReady(t, 2)
		n2.WaitReady(t, 2)
		n3.Launch(t)
		next = tells(t, n3,
			clusterFault{"NOT SERVING  cluster lab", status.ExitNotServing, status.NodeRemoved,
				"this node was removed", ""})
		if r := n3.Applianced(t, "reset"); !strings.Contains(next, "applianced reset") || r.Code == 0 ||
			!strings.Contains(r.Err, "--yes") {
			t.Errorf("%+v", r)
		}

		n2.Ping(t, 120*time.Second, "m1")
	})

	t.Run("a disk has died", func(t *testing.T) { // finding F4: all nodes looked well
		disk.Break()
		unwell(t, []*lab.Appliance{n1, n2}, 15*time.Second)
		tells(t, n2,
			clusterFault{"NOT SERVING  cluster lab", status.ExitNotServing, status.StorageUnusable,
				"storage " + data + " cannot be used", "journalctl -k"})
		tells(t, n1,
			clusterFault{"DEGRADED  cluster lab", status.ExitDegraded, status.NodeMasterDown,
				"the master of node n2", "SCA-401"})
		n1.Ping(t, 120*time.Second, "m1")
	})
}

// unwell waits until the load balancers of all nodes know that a master can keep no jobs.
func unwell(t *testing.T, nodes []*lab.Appliance, limit time.Duration) {
	t.Helper()
	began := time.Now()
	for _, n := range nodes {
		lab.Eventually(t, limit, "the load balancer of "+n.Name+" knows an unwell master", func() error {
			if r := n.Applianced(t, "lb", "status"); !strings.Contains(r.Out, "unwell") {
				return errors.New(r.Out)
			}
			return nil
		})
	}
	t.Logf("all load balancers knew after %v", time.Since(began))
}

// strike sends a signal to a service of a node.
func strike(t *testing.T, n *lab.Appliance, service string, sig syscall.Signal) {
	t.Helper()
	d, err := n.Status(t)
	if err != nil {
		t.Fatal(err)
	}

	for _, s := range d.Services {
		if s.Name == service && s.PID > 0 {
			if err := syscall.Kill(s.PID, sig); err != nil {
				t.Fatal(err)
			}
			return
		}
	}

	t.Fatalf("%s of %s does not run: %+v", service, n.Name, d.Services)
}
