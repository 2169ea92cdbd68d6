//go:build e2e && appliance

package e2e

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"saltern/test/lab"
)

// directoryNode is a node whose storage is a directory that all nodes of the test have.
type directoryNode struct{ *lab.Appliance }

func (n directoryNode) name() string    { return n.Name }
func (n directoryNode) address() string { return n.Addr }
func (n directoryNode) log() string     { return filepath.Join(n.Dir, "log") }
func (n directoryNode) filler() string  { return filepath.Join(n.Data(), "filler") }

func (n directoryNode) signal(pid int, s syscall.Signal) {
	_ = syscall.Kill(pid, s) // it may just have ended
}

func (n directoryNode) fill(t *testing.T) {
	t.Helper()
	fill(t, n.filler())
}

func (n directoryNode) empty(t *testing.T) {
	t.Helper()
	if err := os.Remove(n.filler()); err != nil {
		t.Fatal(err)
	}
}

// directoryCluster starts three nodes with a virtual address that share a directory.
func directoryCluster(t *testing.T) soakCluster {
	t.Helper()
	net := lab.NewNetwork(t, "sok", "10.83")
	c := soakCluster{
		net:     net,
		virtual: net.Virtual(),
		limits: soakLimits{
			ready:      15 * time.Second,
			afterHosts: 20 * time.Second,
		},
	}

	shared := lab.Dir(t)
	var nodes []*lab.Appliance
	var peers []string
	for i := 1; i <= 3; i++ {
		n := lab.NewAppliance(t, net, i, shared, soakAnswers(c.virtual, peers))
		nodes = append(nodes, n)
		peers = []string{nodes[0].Addr}
		c.nodes = append(c.nodes, directoryNode{n})
	}

	for _, n := range nodes {
		n.OwnDisk(t, "2g") // the set-up takes none of less than 1 GiB
		n.Launch(t)
	}

	c.cluster = lab.ClusterOf(net, nodes...)
	return c
}
