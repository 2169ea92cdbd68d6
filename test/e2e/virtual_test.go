//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/supervisor/status"
	"saltern/test/lab"
)

// holder waits until all of these nodes see that exactly one node has the
// virtual address, not one of not, and gives it.
func holder(t *testing.T, among []*lab.Appliance, not ...string) *lab.Appliance {
	t.Helper()
	var who string
	lab.Eventually(t, 60*time.Second, "one node has the virtual address", func() error {
		who = ""
		for _, n := range among {
			d, err := n.Status(t)
			switch {
			case err != nil:
				return err
			case d.Virtual == nil || len(d.Virtual.Nodes) != 1:
				return fmt.Errorf("%s sees %+v; %s", n.Name, d.Virtual, problems(d))
			case slices.Contains(not, d.Virtual.Nodes[0]) || who != "" && who != d.Virtual.Nodes[0]:
				return fmt.Errorf("%s sees %s, others %s", n.Name, d.Virtual.Nodes[0], who)
			}

			who = d.Virtual.Nodes[0]
		}

		return nil
	})

	i := slices.IndexFunc(among, func(n *lab.Appliance) bool { return n.Name == who })
	if i < 0 {
		t.Fatalf("%s has the virtual address", who)
	}

	return among[i]
}

// problems words what a status shows.
func problems(d status.Document) string {
	var out []string
	for _, p := range d.Problems {
		out = append(out, fmt.Sprintf("%s %s (%s)", p.Code, p.Title, p.Cause))
	}
	return strings.Join(out, "; ")
}

// TestVirtualAddress loses the node that has the virtual address in all ways,
// while a real minion knows no other address. SALTERN_ROUNDS repeats the pull of
// its cable, SALTERN_STRICT=1 holds the times that a quiet machine keeps.
func TestVirtualAddress(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("keepalived"); err != nil {
		t.Skip("NOT TESTED: keepalived is not installed")
	}

	net := lab.NewNetwork(t, "vip", "10.81")
	shared, virtual, open := lab.Dir(t), net.Virtual(), []string{"0.0.0.0"}
	var nodes []*lab.Appliance
	for i := 1; i <= 3; i++ {
		answers := map[string]any{
			"mode":            "form",
			"secret":          lab.ApplianceSecret,
			"front":           open,
			"virtual_address": virtual,
		}

		if i > 1 {
			answers["mode"], answers["peers"] = "join", []string{nodes[0].Addr}
		}

		nodes = append(nodes, lab.NewAppliance(t, net, i, shared, answers))
	}

	for _, n := range nodes {
		n.Launch(t)
	}

	for _, n := range nodes {
		n.WaitReady(t, 3)
	}

	first := holder(t, nodes)
	m1 := lab.StartMinionWith(t, "m1", lab.Newest, map[string]any{"master": virtual, "master_alive_interval": 15})
	answers := func(from *lab.Appliance) { t.Helper(); from.Ping(t, 150*time.Second, "m1") }
	answers(first)

	if r := first.Applianced(t, "virtual-address"); r.Code != 0 ||
		!strings.Contains(r.Out, virtual+", now on "+first.Name) {
		t.Errorf("virtual-address: %+v", r)
	}

	if r := first.Applianced(t, "status"); !strings.Contains(r.Out, "minions use "+virtual) {
		t.Errorf("status: %s", r.Out)
	}

	all := t

	// others are the nodes but for one.
	others := func(of *lab.Appliance) []*lab.Appliance {
		return slices.DeleteFunc(slices.Clone(nodes), func(n *lab.Appliance) bool { return n == of })
	}

	// moved waits for another holder and for the minion's answer, and says how
	// long it took.
	moved := func(t *testing.T, from *lab.Appliance, began time.Time) *lab.Appliance {
		t.Helper()
		now := holder(t, others(from), from.Name)
		t.Logf("the address moved from %s to %s: seen everywhere after %.1f s", from.Name, now.Name,
			time.Since(began).Seconds())
		answers(now)
		t.Logf("the minion answers after %.1f s", time.Since(began).Seconds())
		return now
	}

	// inTime holds, where times are held, how long a host that vanished may keep a minion away (S1).
	inTime := func(t *testing.T, began time.Time) {
		t.Helper()
		strictly(t, "the minion answers", time.Since(began), 15*time.Second)
	}
	t.Run("drained", func(t *testing.T) {
		h := holder(t, nodes)
		began := time.Now()
		t.Cleanup(func() { // what comes next needs it, whatever was found
			must(all, h.Applianced(all, "undrain", h.Name))
			h.WaitReady(all, 3)
		})

		must(t, others(h)[0].Applianced(t, "drain", h.Name))
		jobs := published(t, others(h)[0], h.Name, "m1")
		moved(t, h, began)
		returned(t, others(h)[0], jobs, m1)
	})

	t.Run("power cut", func(t *testing.T) {
		h := holder(t, nodes)
		began := time.Now()
		net.Cut(t, h.Addr)
		h.Kill()
		moved(t, h, began)
		inTime(t, began)
		net.Forget(h.Addr, virtual)
		net.Mend(t, h.Addr)
		h.Launch(all)
		h.WaitReady(t, 3)
	})

	t.Run("supervisor killed", func(t *testing.T) {
		h := holder(t, nodes)
		began := time.Now()
		if err := syscall.Kill(h.PID(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}

		moved(t, h, began)
		h.Launch(all)
		h.WaitReady(t, 3)
	})

	t.Run("supervisor hangs", func(t *testing.T) {
		h := holder(t, nodes)
		began := time.Now()
		halt(t, h.PID())
		moved(t, h, began)
		resume(t, h.PID())
		h.WaitReady(t, 3)
	})

	t.Run("load balancer hangs", func(t *testing.T) {
		h := holder(t, nodes)
		pid := serviceOf(t, h, "lb")
		began := time.Now()
		halt(t, pid)
		moved(t, h, began)
		resume(t, pid)
		h.WaitReady(t, 3)
	})

	t.Run("keepalived killed", func(t *testing.T) {
		h := holder(t, nodes)
		began := time.Now()
		_ = syscall.Kill(-serviceOf(t, h, "vip"), syscall.SIGKILL) // with its children: nobody takes the address away
		now := holder(t, nodes)
		t.Logf("the address is on %s again, %.1f s after keepalived on %s was killed", now.Name,
			time.Since(began).Seconds(), h.Name)
		answers(now)
		h.WaitReady(t, 3)
	})

	rounds, _ := strconv.Atoi(os.Getenv("SALTERN_ROUNDS"))
	for range max(rounds, 1) {
		t.Run("cable pulled", func(t *testing.T) {
			h := holder(t, nodes)
			answers(h) // the address may have moved a moment ago, and the minion be about to connect
			began := time.Now()
			net.Cut(t, h.Addr)
			now := moved(t, h, began)
			inTime(t, began)
			net.Mend(t, h.Addr)
			h.WaitReady(t, 3)

			if again := holder(t, nodes); again != now {
				t.Errorf("%s took the address back from %s", again.Name, now.Name)
			}
		})
	}

	t.Run("hears nobody", func(t *testing.T) { // S1: it can send, so that VRRP alone never notices
		h := holder(t, nodes)
		began := time.Now()
		net.Deafen(t, h.Addr)
		moved(t, h, began)
		inTime(t, began)
		net.Unbar(t, h.Addr)
		h.WaitReady(t, 3)
		holder(t, nodes)
	})
	t.Run("is heard by nobody", func(t *testing.T) { // S1: it announces the address by ARP all the same
		h := holder(t, nodes)
		began := time.Now()
		net.Mute(t, h.Addr)
		moved(t, h, began)
		inTime(t, began)
		net.Unbar(t, h.Addr)
		h.WaitReady(t, 3)
		holder(t, nodes)
	})

	t.Run("another address", func(t *testing.T) {
		h := holder(t, nodes)
		if r := h.Applianced(t, "virtual-address", others(h)[0].Addr); r.Code == 0 ||
			!strings.Contains(r.Err, "is the address of a node") {
			t.Errorf("the address of a node was taken: %+v", r)
		}

		if r := h.Applianced(t, "virtual-address", "10.80.99.1"); r.Code == 0 ||
			!strings.Contains(r.Err, "none of this node's networks") {
			t.Errorf("an address of another network was taken: %+v", r)
		}

		used := strings.TrimSuffix(virtual, "200") + "254" // the other end of the network
		if r := h.Applianced(t, "virtual-address", used); r.Code == 0 ||
			!strings.Contains(r.Err, "a machine on the network has") {
			t.Errorf("an address that is in use was taken: %+v", r)
		}

		next := strings.TrimSuffix(virtual, "200") + "201"
		must(t, h.Applianced(t, "virtual-address", next))
		lab.Eventually(t, 60*time.Second, "the new address is on a node", func() error {
			r := h.Applianced(t, "virtual-address")
			if r.Code != 0 || !strings.Contains(r.Out, next) {
				return fmt.Errorf("%+v", r)
			}
			return nil
		})

		must(t, h.Applianced(t, "virtual-address", "none"))
		lab.Eventually(t, 60*time.Second, "no node has it", func() error {
			for _, n := range nodes {
				if d, err := n.Status(t); err != nil || d.Virtual != nil {
					return fmt.Errorf("%s: %v, %+v", n.Name, err, d.Virtual)
				}
			}
			return nil
		})
	})
}

// published starts jobs for a minion, one after the other, from the moment at which a node
// still has the virtual address until some seconds after it has gone elsewhere.
func published(t *testing.T, by *lab.Appliance, from, minion string) (jobs []string) {
	t.Helper()
	var gone time.Time
	for limit := time.Now().Add(time.Minute); gone.IsZero() || time.Since(gone) < 5*time.Second; {
		if time.Now().After(limit) {
			t.Fatal("the virtual address stays where it is")
		}

		r := by.Tool(t, "salt", "--async", minion, "test.arg", fmt.Sprint(len(jobs)))
		_, jid, ok := strings.Cut(strings.TrimSpace(r.Out), "job ID: ")
		if r.Code != 0 || !ok {
			t.Fatalf("job %d: %+v", len(jobs), r)
		}

		jobs = append(jobs, jid)
		time.Sleep(400 * time.Millisecond) // a minion starts a process for each
		if d, err := by.Status(t); gone.IsZero() && err == nil && d.Virtual != nil &&
			len(d.Virtual.Nodes) > 0 && !slices.Contains(d.Virtual.Nodes, from) {
			gone = time.Now()
		}
	}

	return jobs
}

// returned waits for the returns of jobs. A minion of 3008 that opens its connections anew drops
// what it was about to send then (salt/minion.py handle_event: "RequestClient is closed") and
// says so a minute later: no master gets that return, and it is not waited for.
func returned(t *testing.T, n *lab.Appliance, jobs []string, m *lab.Minion) {
	t.Helper()
	began := time.Now()
	missing, dropped := slices.Clone(jobs), 0

	// a minion may wait a minute for an answer that went with the address
	lab.Eventually(t, 4*time.Minute, "all jobs are returned", func() error {
		missing = slices.DeleteFunc(missing, func(jid string) bool {
			r := n.Tool(t, "salt-run", "--out", "txt", "jobs.lookup_jid", jid)
			if r.Code == 0 && strings.Contains(r.Out, m.ID) {
				return true
			}

			log, err := os.ReadFile(m.Log)
			if err != nil || !bytes.Contains(log,
				[]byte("The minion failed to return the job information for job "+
					jid)) || !bytes.Contains(log, []byte("RequestClient is closed")) {
				return false
			}

			dropped++
			t.Logf("the minion has dropped the return of job %d itself", slices.Index(jobs, jid))
			return true
		})
		if len(missing) > 0 {
			return fmt.Errorf("of %d jobs %d are not returned: the jobs with the numbers %v", len(jobs),
				len(missing), positions(jobs, missing))
		}

		return nil
	})

	if dropped > 1 { // it can be in the middle of one
		t.Errorf("%d returns were dropped", dropped)
	}

	t.Logf("%d jobs, the last returned after %.1f s", len(jobs), time.Since(began).Seconds())
}

func positions(all, some []string) (at []int) {
	for _, s := range some {
		at = append(at, slices.Index(all, s))
	}
	return at
}

// serviceOf is the process of a service of a node.
// statusTeller is a node of any kind that tells its status.
type statusTeller interface {
	Status(t testing.TB) (status.Document, error)
}

// serviceOf waits until a service of a node runs and gives its process, as the node numbers it.
func serviceOf(t *testing.T, n statusTeller, name string) (pid int) {
	t.Helper()
	lab.Eventually(t, 30*time.Second, name+" runs", func() error {
		d, err := n.Status(t)
		if err != nil {
			return err
		}

		for _, s := range d.Services {
			if s.Name == name && s.State == "running" && s.PID > 0 {
				pid = s.PID
				return nil
			}
		}

		return fmt.Errorf("%+v", d.Services)
	})

	return pid
}

func halt(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) }) // it may be gone
}

func resume(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}
