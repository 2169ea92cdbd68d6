//go:build e2e && appliance

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/supervisor/status"
	"saltern/test/lab"
)

// volumeNode is a node on a pretend machine with a real glusterd.
type volumeNode struct {
	h      *machines
	number int // of the machine
}

func (n volumeNode) name() string    { return fmt.Sprintf("node%d", n.number) }
func (n volumeNode) address() string { return n.h.addr(n.number) }
func (n volumeNode) log() string     { return n.h.path(n.number, "log") }

func (n volumeNode) Launch(t testing.TB) {
	t.Helper()
	n.h.launch(t, n.number, nil)
}

// Kill also ends what outlives applianced, such as keepalived's second process.
func (n volumeNode) Kill() {
	n.h.off(n.number)
	cmd := n.h.exec(context.Background(), n.number, "pkill", "-KILL", "-f", "(/run|/data)/saltern|/applianced ")
	_ = cmd.Run() // mostly there is nothing left
}

func (n volumeNode) Status(t testing.TB) (d status.Document, err error) {
	t.Helper()
	r := n.h.verb(t, n.number, "", "status", "--json")
	if err := json.Unmarshal([]byte(r.Out), &d); err != nil {
		return d, fmt.Errorf("status: %w: %s%s", err, r.Out, r.Err)
	}
	return d, nil
}

func (n volumeNode) Tool(t testing.TB, name string, args ...string) lab.Result {
	t.Helper()
	return n.h.salt(t, n.number, name, args...)
}

func (n volumeNode) signal(pid int, s syscall.Signal) {
	cmd := n.h.exec(context.Background(), n.number, "kill", fmt.Sprintf("-%d", s), fmt.Sprint(pid))
	_ = cmd.Run() // it may just have ended
}

// fill takes all of the machine's disk, on which its brick is as well.
func (n volumeNode) fill(t *testing.T) {
	t.Helper()
	must(t, n.h.run(t, n.number, "", "sh", "-c", `
		free=$(df --output=avail -B1M /data | tail -1) number=0
		while [ "$free" -gt 0 ]; do
			number=$((number + 1))
			fallocate -l "${free}M" /data/filler.$number || free=$((free / 2))
		done 2>/dev/null
		dd if=/dev/zero of=/data/filler.last bs=4k 2>/dev/null
		true`))
}

func (n volumeNode) empty(t *testing.T) {
	t.Helper()
	must(t, n.h.run(t, n.number, "", "sh", "-c", "rm -f /data/filler.*"))
}

// struck sends a signal to a kind of the machine's processes, see test/gluster/lab.
func struck(what, signal string) func(*soak, soakNode) func() {
	return func(s *soak, n soakNode) func() {
		node := n.(volumeNode)
		strike := func(signal string) error {
			return node.h.call("signal", fmt.Sprint(node.number), signal, what)
		}
		lab.Eventually(s.t, time.Minute, what+" of "+n.name()+" is there", func() error { return strike(signal) })
		return func() {
			if signal == "STOP" {
				_ = strike("CONT") // it may have been started anew
			}
		}
	}
}

// volumeFaults are those of a node of a volume.
func volumeFaults() []soakFault {
	return []soakFault{
		{name: "glusterd killed", do: struck("glusterd", "KILL")},
		{name: "glusterd frozen", do: struck("glusterd", "STOP")},
		{name: "bricks killed", do: struck("bricks", "KILL")},
		{name: "bricks frozen", do: struck("bricks", "STOP")},
		{name: "the mount's client killed", do: struck("mount", "KILL")},
		{name: "the mount's client frozen", do: struck("mount", "STOP")},
		{name: "self-heal daemon killed", do: struck("healer", "KILL")},
		{name: "power cut", do: func(s *soak, n soakNode) func() {
			node := n.(volumeNode)
			machine := fmt.Sprint(node.number)
			n.Kill()
			node.h.must(s.t, "crash", machine)

			return func() {
				node.h.must(s.t, "boot", machine)
				n.Launch(s.t)
			}
		}, host: true},
	}
}

// volumeLimits are those of a directory and what a volume may add to them by its own timers.
func volumeLimits() soakLimits {
	const (
		directory = 15 * time.Second
		stall     = 8 * time.Second // of writes when a copy is gone: up to 1.75 of network.ping-timeout, 5 s
		// until a mount that works again is seen; one whose client has died is made anew then
		mountProbe = 5 * time.Second
		glusterd   = 17 * time.Second // the longest that it takes to answer after its start
		healing    = time.Minute      // cluster.heal-timeout: the self-heal daemons look so often by themselves
		counting   = 30 * time.Second // nodes count so often what is to be healed
	)

	return soakLimits{
		ready:      directory + stall + mountProbe,
		afterHosts: directory + stall + mountProbe + glusterd,
		mended:     healing + 2*counting, // what is healed is known at the next count; between them lies a copy
	}
}

// volumeCluster makes three machines a cluster on a volume with a virtual address. Minions are
// outside of the machines, on the same network.
func volumeCluster(t *testing.T) soakCluster {
	t.Helper()
	h := newMachines(t, 3)
	h.must(t, "outside")
	net := h.network()
	c := soakCluster{
		net:     net,
		virtual: net.Virtual(),
		faults:  volumeFaults(),
		mended:  h.mended,
		limits:  volumeLimits(),
	}

	var peers []string
	for i := 1; i <= 3; i++ {
		h.launch(t, i, soakAnswers(c.virtual, peers))
		peers = []string{h.addr(1)}
		h.ready(t, i, i)
		c.nodes = append(c.nodes, volumeNode{h: h, number: i})
	}

	h.ready(t, 1, 3)

	c.cluster = h.cluster(t)
	return c
}

// network is that of the machines.
func (h *machines) network() *lab.Network {
	hosts, links := map[string]string{}, map[string]string{}
	for i := 1; i <= 3; i++ {
		hosts[h.addr(i)] = fmt.Sprintf("%s-%d", h.name, i)
		links[h.addr(i)] = fmt.Sprintf("p%d", i)
	}
	return lab.AdoptNetwork(h.net+".", h.name+"-sw", hosts, links)
}

// cluster is that of the nodes on machines 1 to 3, with the volume as machine 1 has it
// mounted now.
func (h *machines) cluster(t *testing.T) *lab.Cluster {
	t.Helper()
	pid, err := os.ReadFile(filepath.Join(h.disks, "1", "pid"))
	if err != nil {
		t.Fatal(err)
	}
	var members []*lab.Member
	for i := 1; i <= 3; i++ {
		enter := append([]string{"env"}, h.settings...)
		enter = append(enter, h.script, "exec", fmt.Sprint(i))
		members = append(members, lab.ForeignMember(h.addr(i), "/data/saltern/etc/salt", enter...))
	}
	volume := filepath.Join("/proc", strings.TrimSpace(string(pid)), "root/srv/cluster")
	return lab.ForeignCluster(volume, members...)
}

// mended returns what the volume lacks of a whole copy on each of three nodes. Gluster is asked
// as well: what nodes have counted may be half a minute old.
func (h *machines) mended(t *testing.T) error {
	t.Helper()
	for i := 1; i <= 3; i++ {
		if err := h.volumeWhole(t, i, 3); err != nil {
			return fmt.Errorf("node%d: %w", i, err)
		}
	}
	r := h.run(t, 1, "", "gluster", "--mode=script", "--xml", "--timeout=20", "volume", "heal", "cluster",
		"info", "summary")
	if n := strings.Count(r.Out, "<totalNumberOfEntries>0</totalNumberOfEntries>"); n != 3 {
		return fmt.Errorf("gluster has nothing to heal for %d of 3 copies: %s%s", n, r.Out, r.Err)
	}
	return nil
}
